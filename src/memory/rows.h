#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include "core/memory.h"

namespace mnemo::memory {

/// Puts rows [B,m,D] before or after a segment's rows; they are all real.
inline void add_rows(core::SegmentRows& segment, const at::Tensor& rows, bool in_front) {
  segment.rows = in_front ? at::cat({rows, segment.rows}, 1) : at::cat({segment.rows, rows}, 1);
  if (!segment.valid.defined()) return;
  const at::Tensor real = at::ones({rows.size(0), rows.size(1)}, segment.valid.options());
  segment.valid = in_front ? at::cat({real, segment.valid}, 1) : at::cat({segment.valid, real}, 1);
}

}  // namespace mnemo::memory
