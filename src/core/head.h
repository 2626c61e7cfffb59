#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>

namespace mnemo::core {

class DecodeHead;
struct DecodeBuild;

/// Which rows of a segment a head reads.
///   tokens     every token row: hidden [B,T,D]
///   first_row  the row before the tokens: [B,1,D]
///   first_token  the first row, which is the first token's unless a memory has its own [CLS] row there: [B,1,D]
///   mean       the mean of the token rows without padding: [B,1,D]
enum class HeadInput { tokens, first_row, first_token, mean };

/// Whether a parameter has no rows for classes, one row for each class, or several.
enum class ClassRows { none, one, several };

/// Computes predictions and losses from a model's hidden states.
class Head {
 public:
  virtual ~Head() = default;
  virtual HeadInput input() const { return HeadInput::tokens; }
  /// Whether its logits predict the token after each row.
  virtual bool predicts_next_token() const { return false; }
  /// The number of classes of a head that classifies a whole segment; else 0.
  virtual int64_t num_classes() const { return 0; }
  /// The rows for classes in a parameter, by its name in the model.
  virtual ClassRows class_rows(std::string_view /*parameter*/) const { return ClassRows::none; }
  /// Whether weights of the same names stand for the same things in both models, the backbone's apart.
  virtual bool shares_weights_with(const Head& /*other*/) const { return true; }
  /// Dropout applied to its input rows in training.
  virtual double input_dropout() const { return 0.0; }
  /// hidden [..,D] -> logits [..,V].
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  /// -log p(target), natural logarithm: hidden [..,D], targets [..] int64 -> [..]; 0 where the target is
  /// base::kIgnoreTarget.
  virtual at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const = 0;
  /// Its decoder (core/decode.h); null if it has none.
  virtual std::unique_ptr<DecodeHead> decoder(const DecodeBuild& build) const;
};

}  // namespace mnemo::core
