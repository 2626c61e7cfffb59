#include "models/left_padding.h"

#include <torch/types.h>

#include "core/model.h"

namespace mnemo::models {
namespace {

/// rows [B,T,..] in that order [B,T]; undefined stays undefined.
at::Tensor in_order(const at::Tensor& rows, const at::Tensor& order) {
  if (!rows.defined()) return rows;
  at::Tensor index = order;
  while (index.dim() < rows.dim()) index = index.unsqueeze(-1);
  return rows.gather(1, index.expand_as(rows));
}

}  // namespace

LeftPadding::LeftPadding(const at::Tensor& valid) {
  if (!valid.defined() || valid.dim() != 2 || valid.size(1) < 2) return;
  const int64_t rows = valid.size(1);
  const at::Tensor behind_padding = at::logical_and(valid.narrow(1, 1, rows - 1),
                                                    valid.narrow(1, 0, rows - 1).logical_not());
  if (!behind_padding.any().item<bool>()) return;
  there_ = std::get<1>(valid.to(at::kInt).sort(/*stable=*/true, 1, /*descending=*/true));
  back_ = std::get<1>(there_.sort(1));
}

core::Segment LeftPadding::right_padded(const core::Segment& segment) const {
  core::Segment moved = segment;
  moved.tokens = in_order(segment.tokens, there_);
  moved.rows = in_order(segment.rows, there_);
  moved.valid = in_order(segment.valid, there_);
  moved.token_types = in_order(segment.token_types, there_);
  return moved;
}

at::Tensor LeftPadding::back(const at::Tensor& rows) const { return in_order(rows, back_); }

}  // namespace mnemo::models
