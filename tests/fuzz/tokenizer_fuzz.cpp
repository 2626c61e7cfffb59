#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "options_check.h"
#include "text/open_tokenizer.h"

namespace {

constexpr std::size_t kLongestText = 2048;

struct Input {
  mnemo::text::Files files;
  std::string text;
};

/// A line of file names, then their contents and a text, separated by the byte 0x1E.
Input read(std::string_view input) {
  Input out;
  const std::size_t line = std::min(input.find('\n'), input.size());
  std::string_view names = input.substr(0, line), rest = input.substr(std::min(line + 1, input.size()));
  while (!names.empty()) {
    const std::size_t name = std::min(names.find(' '), names.size());
    const std::size_t end = std::min(rest.find('\x1e'), rest.size());
    out.files[std::string(names.substr(0, name))] = rest.substr(0, end);
    names.remove_prefix(std::min(name + 1, names.size()));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  out.text = rest.substr(0, kLongestText);
  out.text.resize(mnemo::base::first_invalid_utf8(out.text).value_or(out.text.size()));
  return out;
}

}  // namespace

/// The files of a pretrained tokenizer and a text: read into a tokenizer that encodes and decodes it and others, or
/// rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  fuzz::only_input_errors([&] {
    const Input input = read({reinterpret_cast<const char*>(data), size});
    const auto tokenizer = text::open_tokenizer_files(input.files, "folder");
    fuzz::demand(tokenizer->size() > 0 && tokenizer->unknown_id() < tokenizer->size(), "size of " + tokenizer->type());
    const auto again = text::open_tokenizer_files(tokenizer->save(), "again");
    for (const std::string& text : std::vector<std::string>{"", "the cat sat, 12,5", " a  <x>\t\n",
                                                            "e\u0301\u00e9 \u4e2d\u6587 \U0001F600 \u2581",
                                                            "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", input.text}) {
      const std::vector<int32_t> ids = tokenizer->encode(text);
      fuzz::demand(ids == again->encode(text), std::string("saved and read again: ") + text);
      for (const int32_t id : ids)
        fuzz::demand((id >= 0 && id < tokenizer->size()) || id == tokenizer->unknown_id(),
                     std::string("ids of ") + text);
      tokenizer->with_special_tokens(ids, ids);
    }
    std::vector<int64_t> all;
    for (int64_t id = 0; id < std::min<int64_t>(tokenizer->size(), 64); ++id) all.push_back(id);
    tokenizer->decode(all);
    std::string text;
    for (const int64_t id : all) tokenizer->append(text, id);
  });
  return 0;
}
