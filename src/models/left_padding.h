#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::core {
struct Segment;
}

namespace mnemo::models {

/// Padding in front of a sequence or between its tokens, which positions, memories and heads do not know: the real
/// tokens of every sequence are moved to the left, in their order.
class LeftPadding {
 public:
  /// valid [B,T] bool; undefined = no padding.
  explicit LeftPadding(const at::Tensor& valid);
  /// False where all padding is on the right already.
  bool moves() const { return there_.defined(); }
  /// The segment with its tokens on the left.
  core::Segment right_padded(const core::Segment& segment) const;
  /// Rows [B,T,..] of that segment in the places of the tokens that they came from.
  at::Tensor back(const at::Tensor& rows) const;

 private:
  at::Tensor there_, back_;  ///< [B,T] int64
};

}  // namespace mnemo::models
