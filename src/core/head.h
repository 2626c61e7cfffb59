#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::core {

/// Which rows of a segment a head reads.
///   tokens     each token row: hidden [B,T,D]
///   first_row  the row in front of the tokens: [B,1,D]
///   mean       the mean of the token rows that are real: [B,1,D]
enum class HeadInput { tokens, first_row, mean };

/// What a model's hidden rows are for.
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
  /// -log p(target), natural logarithm: hidden [..,D], targets [..] int64 -> [..]; 0 where the target is -100.
  virtual at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const = 0;
};

/// Targets of this value are left out of every loss and count.
inline constexpr int64_t kIgnoreTarget = -100;

}  // namespace mnemo::core
