#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace mnemo::core {

/// Implemented by attentions that draw values when they are built (random projections, rotations, a pattern of blocks):
/// the caller may replace them.
class TakesDraw {
 public:
  virtual ~TakesDraw() = default;
  /// Name of the values in golden files.
  virtual std::string_view draw_name() const = 0;
  /// Replaces the values. Throws InputError naming the shape expected and the shape found.
  virtual void set_draw(const at::Tensor& values) = 0;
};

}  // namespace mnemo::core
