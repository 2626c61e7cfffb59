#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "options_check.h"
#include "text/tokenizer.h"

/// A vocabulary.json: read into a tokenizer, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  using text::Tokenizer;
  fuzz::only_input_errors([&] {
    const std::string name(Tokenizer::kFile);
    const auto tokenizer = Tokenizer::load({{name, std::string(reinterpret_cast<const char*>(data), size)}}, "model");
    const std::string type = tokenizer->type();
    fuzz::demand(tokenizer->size() > 0 && tokenizer->unknown_id() < tokenizer->size(), "size of " + type);

    // A vocabulary that was read can be saved, and reads back the same.
    const text::Files saved = tokenizer->save();
    const auto again = Tokenizer::load(saved, "again");
    fuzz::demand(again->save() == saved && again->type() == type && again->size() == tokenizer->size() &&
                     again->unknown_id() == tokenizer->unknown_id(),
                 "saved and read again: " + saved.at(name));

    // Both ends of the vocabulary, to text and back. An unknown character becomes U+FFFD, which may be a known one.
    const int32_t replacement = type == "characters" ? tokenizer->encode("\xEF\xBF\xBD").at(0) : -1;
    std::vector<int64_t> ids, expected;
    for (int64_t id = 0; id < tokenizer->size(); ++id) {
      if (id >= 64 && id < tokenizer->size() - 64) continue;
      ids.push_back(id);
      expected.push_back(type == "characters" && id == tokenizer->unknown_id() ? replacement : id);
    }
    const std::string text = tokenizer->decode(ids);
    fuzz::demand(again->decode(ids) == text, "the same text: " + text);
    const std::vector<int32_t> back = tokenizer->encode(text);
    fuzz::demand(std::equal(back.begin(), back.end(), expected.begin(), expected.end()), "text and back: " + text);

    // Streamed in pieces, only whole characters come out.
    text::StreamDecoder decoder(tokenizer);
    for (const int64_t id : ids) fuzz::demand(!base::first_invalid_utf8(decoder.put(id)), "a piece of " + text);
    fuzz::demand(!base::first_invalid_utf8(decoder.finish()), "the end of " + text);
  });
  return 0;
}
