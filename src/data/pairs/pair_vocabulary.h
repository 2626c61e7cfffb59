#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace mnemo::data {

/// The vocabulary of one side of a translation model: bos 0, pad 1, eos 2, unk 3, then the tokens of a tokenizer.
class PairVocabulary {
 public:
  static constexpr int64_t kBos = 0, kPad = 1, kEos = 2, kUnknown = 3, kSpecial = 4;
  explicit PairVocabulary(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  int64_t size() const { return tokenizer_->size() + kSpecial; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Whether a token stands for what the vocabulary lacks: unk, or the tokenizer's own unknown token, which no line has.
  bool is_unknown(int64_t id) const { return id == kUnknown || id - kSpecial == tokenizer_->unknown_id(); }
  /// The tokens of a line, ending with eos. Throws InputError that names `where` for invalid UTF-8.
  std::vector<int64_t> encode(std::string_view line, const std::string& where) const;
  /// The line of tokens that may end with eos. Special tokens give nothing, unk gives `unknown`.
  std::string decode(std::span<const int64_t> ids, std::string_view unknown = "<unk>") const;
  /// The same; the token ids[place], which is unk, gives unknown(place).
  std::string decode(std::span<const int64_t> ids, const std::function<std::string(size_t place)>& unknown) const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace mnemo::data
