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

/// Which of a table's spans of rows has the segment's own tokens; memories' special tokens have tags.
inline size_t token_span(const core::AttendTable& table) {
  size_t span = 0;
  while (table.rows().at(span).kind != core::SpanKind::tokens || table.rows()[span].tag != 0) ++span;
  return span;
}

/// Whether the tokens of a segment see each other in both directions, as in an encoder.
inline bool both_ways(const core::AttendTable& table) {
  const size_t own = token_span(table);
  return table.rule(own, table.contexts().size() + own).kind == core::Rule::Kind::all;
}

/// Which sequences have a real row in the segment, [B,1,1] bool, of a table with padding.
inline at::Tensor has_rows(const core::AttendTable& table) {
  return table.valid().narrow(1, table.num_context(), table.num_rows()).any(1).view({-1, 1, 1});
}

/// Adds rows [B,m,D] before or after a segment's rows; none of them is padding.
inline void add_rows(core::SegmentRows& segment, const at::Tensor& rows, bool in_front) {
  segment.rows = in_front ? at::cat({rows, segment.rows}, 1) : at::cat({segment.rows, rows}, 1);
  if (!segment.valid.defined()) return;
  const at::Tensor real = at::ones({rows.size(0), rows.size(1)}, segment.valid.options());
  segment.valid = in_front ? at::cat({real, segment.valid}, 1) : at::cat({segment.valid, real}, 1);
}

}  // namespace mnemo::memory
