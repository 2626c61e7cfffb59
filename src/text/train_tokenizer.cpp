#include "text/train_tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/node.h"
#include "text/sentencepiece_tokenizer.h"

namespace mnemo::text {

const std::vector<std::string_view>& tokenizer_types() {
  static const std::vector<std::string_view> types = {"bytes", "characters", "words", "unigram", "bpe"};
  return types;
}

std::shared_ptr<const Tokenizer> train_tokenizer(std::string_view type, const std::vector<TextSource>& texts,
                                                 int64_t vocab_size) {
  base::require(std::find(tokenizer_types().begin(), tokenizer_types().end(), type) != tokenizer_types().end(),
                "type: expected one of {}, found {}", fmt::join(tokenizer_types(), ", "), base::in_quotes(type));
  if (type == "unigram" || type == "bpe") return train_sentencepiece(type, texts, vocab_size);
  base::require(texts.size() == 1, "a tokenizer of {} takes one text, found {}", type, texts.size());
  base::require(vocab_size >= 0 && (type != "bytes" || vocab_size == 0),
                "vocabulary size of {} (--vocab-size): expected {}, found {}", type,
                type == "bytes" ? "none" : "0 or more", vocab_size);
  return make_tokenizer(type, texts.front(), {.max_size = vocab_size});
}

}  // namespace mnemo::text
