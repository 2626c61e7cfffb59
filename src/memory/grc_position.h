#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "core/attention.h"
#include "core/attention_build.h"
#include "core/wrapped_attention.h"
#include "layers/parameters.h"
#include "memory/grc_options.h"

namespace mnemo::memory {

/// The convolutional position of the gated recurrent cache (the code of Zhang et al. 2024; Chu et al. 2021).
///   y = Conv3x3(x on its grid), C groups, zero padding 1, with a bias; rows before the grid get zero
class GrcPosition {
 public:
  GrcPosition() = default;
  /// D `dim`, C `channels` groups. Throws InputError unless C divides D.
  GrcPosition(const layers::Scope& scope, int64_t dim, int64_t channels, double std);
  bool defined() const { return weight_.defined(); }
  /// x [B,T,D], where the last grid.size() rows are the image. Throws ShapeError if there are fewer rows, or a number
  /// of rows before the image other than `class_tokens` (if not negative).
  at::Tensor operator()(const at::Tensor& x, core::Grid grid, int64_t class_tokens) const;

 private:
  at::Tensor weight_, bias_;  // [D,D/C,3,3], [D]
};

/// The rows of an image with zeros in place of padding, as that convolution reads them; rows of texts unchanged.
at::Tensor real_rows(const core::AttentionInput& input);

/// An attention of images with that position and no cache: a control without GRC's cache and gates.
///   y = attention(x) + position(x),  C = int(D * cache_ratio) groups
class GrcPositionAlone final : public core::WrappedAttention<core::Attention> {
 public:
  GrcPositionAlone(const GrcOptions& options, const core::AttentionBuild& build,
                   std::unique_ptr<core::CoreAttention> inner);
  core::AttentionResult forward(const core::AttentionInput& input, const core::State& state) const override;

 private:
  GrcPosition position_;
};

}  // namespace mnemo::memory
