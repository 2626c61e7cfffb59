#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "options_check.h"
#include "text/sentencepiece_tokenizer.h"

namespace {

constexpr std::size_t kLongestText = 512;

/// Laws of every SentencePiece tokenizer for a text.
void check(const mnemo::text::Tokenizer& tokenizer, const std::string& text) {
  using namespace mnemo;
  std::vector<int64_t> ids;
  for (const int32_t id : tokenizer.encode(text)) {
    fuzz::demand(id >= 0 && id < tokenizer.size(), "ids of " + text);
    ids.push_back(id);
  }
  tokenizer.decode(ids);
  std::string streamed;
  for (const int64_t id : ids) tokenizer.append(streamed, id);
}

}  // namespace

/// First byte: what to do with the rest. Even: a text and the file of a model, separated by the byte 0x1E; the model is
/// read, with the options of ALBERT or T5 by the next bits, and encodes the text. Odd: the lines of a text, on which a
/// model of few pieces is trained, unigram or BPE. Either works or is rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  if (size == 0) return 0;
  const int choice = data[0];
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  fuzz::only_input_errors([&] {
    if (choice % 2 != 0) {
      const std::string text(input.substr(0, kLongestText));
      const auto tokenizer = text::train_sentencepiece(choice % 4 == 1 ? "unigram" : "bpe",
                                                       {text::TextSource::in_memory("text", text)}, 8 + choice / 4);
      fuzz::demand(tokenizer->size() <= 8 + choice / 4, "at most the size asked for");
      check(*tokenizer, text);
      return;
    }
    const std::size_t end = std::min(input.find('\x1e'), input.size());
    const std::string text(input.substr(0, std::min(end, kLongestText)));
    text::SentencePieceOptions options;
    options.straight_quotes = options.strip_accents = options.lowercase = (choice & 2) != 0;
    options.digit_commas = (choice & 4) != 0;
    const auto tokenizer = text::make_sentencepiece(input.substr(std::min(end + 1, input.size())), options, {},
                                                    "model");
    check(*tokenizer, text);
    check(*tokenizer, "the cat sat, 12,5 ``e\u0301\u00e9'' \u4e2d\u6587 \U0001F600 \u2581 ");
  });
  return 0;
}
