#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include "base/options.h"
#include "core/memory.h"
#include "core/model_outline.h"

namespace mnemo::memory {

/// Throws InputError if a learned position table is too small for a segment with `beside` memory rows.
inline void require_room(const core::ModelOutline& model, int64_t num_mem_tokens, int64_t beside,
                         const base::Where& where) {
  if (!model.position_rows || num_mem_tokens == 0) return;
  const int64_t rows = model.segment_size + beside;
  where.require(rows <= *model.position_rows, "memory",
                "more memory tokens than a segment has room for: num_mem_tokens = {} and segment_size = {} make {} "
                "rows, but backbone.position.max_len is {}",
                num_mem_tokens, model.segment_size, rows, *model.position_rows);
}

/// Adds rows [B,m,D] before or after a segment's rows; none of them is padding.
inline void add_rows(core::SegmentRows& segment, const at::Tensor& rows, bool in_front) {
  segment.rows = in_front ? at::cat({rows, segment.rows}, 1) : at::cat({segment.rows, rows}, 1);
  if (!segment.valid.defined()) return;
  const at::Tensor real = at::ones({rows.size(0), rows.size(1)}, segment.valid.options());
  segment.valid = in_front ? at::cat({real, segment.valid}, 1) : at::cat({segment.valid, real}, 1);
}

}  // namespace mnemo::memory
