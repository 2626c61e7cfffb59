#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace mnemo::data {

/// The vocabulary of one side of a translation model: bos 0, pad 1, eos 2, unk 3, then the tokens of a tokenizer; or
/// the tokens of a published model's tokenizer, special ones included, under its own ids.
class PairVocabulary {
 public:
  static constexpr int64_t kBos = 0, kPad = 1, kEos = 2, kUnknown = 3, kSpecial = 4;
  explicit PairVocabulary(std::shared_ptr<const text::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  /// The vocabulary of a published model, whose tokenizer has these special tokens.
  PairVocabulary(std::shared_ptr<const text::Tokenizer> tokenizer, int64_t eos, int64_t pad)
      : tokenizer_(std::move(tokenizer)), special_(0), eos_(eos), pad_(pad), unknown_(tokenizer_->unknown_id()) {}

  int64_t size() const { return tokenizer_->size() + special_; }
  int64_t eos() const { return eos_; }
  int64_t pad() const { return pad_; }
  /// Whether its ids are those of a published model's tokenizer.
  bool is_published() const { return special_ == 0; }
  /// The token of the model for one of the tokenizer.
  int64_t of_tokenizer(int64_t id) const { return id + special_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Whether a token is unknown: unk, or the tokenizer's own unknown token, which no line
  /// has.
  bool is_unknown(int64_t id) const { return id == unknown_ || id - special_ == tokenizer_->unknown_id(); }
  /// The tokens of a line, without the blanks around it, ending with eos. Throws InputError that names `where` for
  /// invalid UTF-8.
  std::vector<int64_t> encode(std::string_view line, const std::string& where) const;
  /// The tokens of a part of a line of UTF-8, blanks included.
  std::vector<int64_t> encode_part(std::string_view part, const std::string& where) const;
  /// The line of tokens that may end with eos. Special tokens give nothing, invalid UTF-8 gives U+FFFD, unk gives
  /// `unknown`, with a blank to each side of it where there is none.
  std::string decode(std::span<const int64_t> ids, std::string_view unknown = "<unk>") const;
  /// The same; the token ids[place], which is unk, gives unknown(place).
  std::string decode(std::span<const int64_t> ids, const std::function<std::string(size_t place)>& unknown) const;

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  int64_t special_ = kSpecial;  ///< tokens before those of the tokenizer
  int64_t eos_ = kEos, pad_ = kPad, unknown_ = kUnknown;
};

/// The vocabularies of both sides: one object if they share it.
struct PairVocabularies {
  std::shared_ptr<const PairVocabulary> source, target;
};

}  // namespace mnemo::data
