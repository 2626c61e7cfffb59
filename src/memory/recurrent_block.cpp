#include "memory/recurrent_block.h"

#include <torch/types.h>

#include "base/error.h"
#include "core/require_state.h"
#include "memory/rows.h"

namespace mnemo::memory {

using core::Rule;
using core::SpanKind;

RecurrentBlock::RecurrentBlock(const RecurrentTokensOptions& options, const core::MemoryBuild& build)
    : options_(options), tokens_(build, options.num_mem_tokens, options.init, options.init_std), embed_(build.embed) {
  base::require(embed_ != nullptr,
                "recurrent_tokens: layout = \"encoder\" needs an embedding for its special tokens, which a "
                "layer_stack does not have");
}

core::State RecurrentBlock::initial_state(int64_t batch) const {
  return RecurrentTokensState{tokens_.for_batch(batch)};
}

void RecurrentBlock::enter(core::SegmentRows& rows, const core::State& state, core::Part part) const {
  base::ensure(part.starts && part.ends, "an encoder's segment is whole");
  const int64_t batch = rows.rows.size(0), length = rows.rows.size(1), count = options_.num_mem_tokens;
  const at::Tensor& memory = state.as<RecurrentTokensState>().tokens;
  core::require_state("recurrent_tokens", memory, {batch, count, rows.rows.size(2)});
  const auto integers = at::TensorOptions().dtype(at::kLong).device(rows.rows.device());
  const auto token = [&](int64_t id) {
    return embed_(at::full({1}, id, integers)).unsqueeze(0).expand({batch, -1, -1});  // [B,1,D]
  };
  const bool front = is_front();
  const bool ends = !front || options_.eos_token.has_value();
  const at::Tensor end = ends ? token(front ? *options_.eos_token : *options_.sep_token) : at::Tensor();
  std::vector<at::Tensor> block = {memory};
  if (!front) block = {token(*options_.cls_token), memory, end};
  const int64_t before = front ? count : count + 2;

  if (!rows.valid.defined() || !ends) {
    block.push_back(rows.rows);
    if (ends) block.push_back(end);
    if (rows.valid.defined()) rows.valid = at::cat({rows.valid.any(1, true).expand({batch, before}), rows.valid}, 1);
  } else {
    // The token that ends the text comes right after the last real token of each sequence.
    const at::Tensor pad = token(*options_.pad_token);
    const at::Tensor lengths = rows.valid.sum(1, true), place = at::arange(length + 1, integers).unsqueeze(0);
    const at::Tensor own = at::cat({rows.rows, pad}, 1);
    const at::Tensor behind = at::where((place == lengths).unsqueeze(-1), end, pad);
    block.push_back(at::where((place < lengths).unsqueeze(-1), own, behind));
    const at::Tensor any = lengths > 0;
    rows.valid = at::cat({any.expand({batch, before}), any.logical_and(place <= lengths)}, 1);
  }
  rows.rows = at::cat(block, 1);
  // Special tokens have tags so that the segment's own tokens can be found again; the end token and padding belong to
  // the tokens' span.
  for (core::AttendTable& own : rows.tables) {
    core::AttendTable table({SpanKind::tokens, ends ? length + 1 : length}, Rule::all());
    for (const core::Span& context : own.contexts()) table.append_context(context, Rule::all());
    if (!front) table.prepend_rows({SpanKind::tokens, 1, core::kSeparatorRow});
    table.prepend_rows({SpanKind::read, count});
    if (!front) table.prepend_rows({SpanKind::tokens, 1, core::kClassRow});
    for (const SpanKind query : {SpanKind::read, SpanKind::tokens}) {
      for (const SpanKind key : {SpanKind::cache, SpanKind::read, SpanKind::tokens})
        table.set_rule(query, key, Rule::all());
    }
    own = std::move(table);
  }
}

core::State RecurrentBlock::leave(const at::Tensor& hidden, const core::AttendTable& table, const core::State& state,
                                  core::Part) const {
  const at::Tensor& old = state.as<RecurrentTokensState>().tokens;
  const bool same = options_.memory_position == RecurrentTokensOptions::MemoryPosition::same;
  const at::Tensor next = hidden.narrow(1, same ? 1 : 0, options_.num_mem_tokens);
  if (!table.valid().defined()) return RecurrentTokensState{next};
  return RecurrentTokensState{at::where(has_rows(table), next, old)};
}

}  // namespace mnemo::memory
