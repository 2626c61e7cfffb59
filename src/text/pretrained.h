#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace mnemo::text {

/// The parts of a pretrained model's tokenizer other than its vocabulary.
struct PretrainedParts {
  Files files = {};   ///< the files it was read from
  Files beside = {};  ///< files of other libraries in the same folder; only kept
  SpecialTokens special = {};
  SequenceTemplate sequences = {};
};

/// What a part of a text begins with, which decides about a space in front of it.
enum class PartBegins {
  text,     ///< the text
  section,  ///< the text behind an added token
  nothing,  ///< it goes on behind the part before it
};

/// A tokenizer of a pretrained model, read from that model's files. It encodes a text as a whole, or in parts where a
/// cut changes nothing.
class PretrainedTokenizer : public Tokenizer {
 public:
  explicit PretrainedTokenizer(PretrainedParts parts)
      : parts_(std::make_shared<const PretrainedParts>(std::move(parts))) {}
  explicit PretrainedTokenizer(std::shared_ptr<const PretrainedParts> parts) : parts_(std::move(parts)) {}

  SpecialTokens special_tokens() const override { return parts_->special; }
  ModelInput with_special_tokens(std::span<const int32_t> first,
                                 std::optional<std::span<const int32_t>> second = {}) const override {
    return parts_->sequences.apply(first, second);
  }
  std::unique_ptr<Encoder> encoder(std::string where, int64_t offset = 0) const override;
  std::vector<int32_t> leading_tokens() const override { return parts_->sequences.leading(); }
  Files save() const override;
  Files defining_files() const override { return parts_->files; }

  /// Appends the tokens of a part of a text, valid UTF-8.
  virtual void encode_part(std::string_view part, PartBegins begins, std::vector<int32_t>& out) const = 0;
  /// The last position, other than 0, where the text can be cut without changing its tokens, whatever follows; 0 if
  /// there is none.
  virtual size_t last_cut(std::string_view text) const = 0;
  /// A text as its characters are changed before it is split; what it returns may be given to encode_part().
  virtual std::string normalised(std::string_view text) const { return std::string(text); }
  /// Appends the text of a token that is not one of this vocabulary.
  virtual void append_added(std::string& out, std::string_view token) const { out += token; }

  std::shared_ptr<const PretrainedParts> parts() const { return parts_; }

 private:
  std::shared_ptr<const PretrainedParts> parts_;
};

}  // namespace mnemo::text
