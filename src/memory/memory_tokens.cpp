#include "memory/memory_tokens.h"

#include <torch/types.h>

#include "core/require_state.h"
#include "memory/rows.h"

namespace mnemo::memory {

using core::Rule;
using core::SpanKind;

void MemoryTokensOptions::check(const core::ModelOutline& model, const base::Where& where) const {
  where.require(model.causal || !read_mem_from_cache, "memory", "{}",
                "memory_tokens: in an encoder memory rows always see the cache: expected read_mem_from_cache = false");
  require_room(model, num_mem_tokens, rows_beside(), where);
}

MemoryTokens::MemoryTokens(const Options& options, const core::MemoryBuild& build)
    : options_(options), tokens_(build, options.num_mem_tokens, options.init, options.init_std) {}

core::State MemoryTokens::initial_state(int64_t batch) const {
  if (options_.variant == MemoryTokensOptions::Variant::paper) return MemoryTokensState{};
  return MemoryTokensState{tokens_.for_batch(batch)};
}

void MemoryTokens::enter(core::SegmentRows& rows, const core::State& state, core::Part part) const {
  const at::Tensor& carried = state.as<MemoryTokensState>().tokens;
  if (options_.variant == MemoryTokensOptions::Variant::authors) {
    core::require_state("memory_tokens", carried, {rows.rows.size(0), options_.num_mem_tokens, rows.rows.size(2)});
  } else {
    base::require(
        !carried.defined(),
        "[memory_tokens] variant \"paper\" carries nothing, but the state holds tokens; is it of another model?");
  }
  if (!part.starts || options_.num_mem_tokens == 0) return;
  const at::Tensor tokens = carried.defined() ? carried : tokens_.for_batch(rows.rows.size(0));
  const bool open = both_ways(rows.tables[0]);
  const at::Tensor any = open && rows.valid.defined() ? rows.valid.any(1, true) : at::Tensor();
  add_rows(rows, tokens, true);
  if (any.defined()) rows.valid = rows.valid.logical_and(any);
  for (core::AttendTable& table : rows.tables) {
    table.prepend_rows({SpanKind::read, options_.num_mem_tokens})
        .set_rule(SpanKind::read, SpanKind::read, Rule::all())
        .set_rule(SpanKind::read, SpanKind::cache, open || options_.read_mem_from_cache ? Rule::all() : Rule::none())
        .set_rule(SpanKind::read, SpanKind::tokens, open ? Rule::all() : Rule::none())
        .set_rule(SpanKind::tokens, SpanKind::read, Rule::all());
  }
}

core::State MemoryTokens::leave(const at::Tensor& hidden, const core::AttendTable& table, const core::State& state,
                                core::Part part) const {
  if (options_.variant == MemoryTokensOptions::Variant::paper || !part.starts || options_.num_mem_tokens == 0)
    return state;
  const at::Tensor next = hidden.narrow(1, table.row_offset(SpanKind::read), options_.num_mem_tokens);
  if (!both_ways(table) || !table.valid().defined()) return MemoryTokensState{next};
  return MemoryTokensState{at::where(has_rows(table), next, state.as<MemoryTokensState>().tokens)};
}

}  // namespace mnemo::memory
