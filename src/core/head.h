#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace mnemo::core {

class DecodeHead;
struct DecodeBuild;

/// Which rows of a segment a head reads.
///   tokens     each token row: hidden [B,T,D]
///   first_row  the row in front of the tokens: [B,1,D]
///   mean       the mean of the token rows that are real: [B,1,D]
enum class HeadInput { tokens, first_row, mean };

/// Turns a model's hidden rows into predictions and losses.
class Head {
 public:
  virtual ~Head() = default;
  virtual HeadInput input() const { return HeadInput::tokens; }
  /// Whether its logits are those of the token after each row.
  virtual bool predicts_next_token() const { return false; }
  /// Of a head that gives a segment one class; else 0.
  virtual int64_t num_classes() const { return 0; }
  /// Dropout of the rows that enter it, in training.
  virtual double input_dropout() const { return 0.0; }
  /// hidden [..,D] -> logits [..,V].
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  /// -log p(target), natural logarithm: hidden [..,D], targets [..] int64 -> [..]; 0 where the target is
  /// base::kIgnoreTarget.
  virtual at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const = 0;
  /// Its form for decoding (core/decode.h); null: it has none.
  virtual std::unique_ptr<DecodeHead> decoder(const DecodeBuild& build) const;
};

}  // namespace mnemo::core
