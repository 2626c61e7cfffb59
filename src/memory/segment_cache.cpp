#include "memory/segment_cache.h"

#include <torch/types.h>

#include <algorithm>

#include "core/append_rows.h"
#include "core/require_state.h"
#include "memory/rows.h"

namespace mnemo::memory {

void SegmentCacheOptions::validate(const base::Where& where) const {
  where.require(!same_length || mem_len > 0, "same_length",
                "expected mem_len of at least 1; with 0 every key would be masked");
  where.require(!eval_same_length.value_or(same_length) || eval_mem_len.value_or(mem_len) > 0, "eval_same_length",
                "expected at least 1; with 0 in evaluation every key would be masked");
}

void SegmentCacheOptions::check(const core::ModelOutline& model, const base::Where& where) const {
  const std::string beside = model.on(core::Seam::sequence);
  where.require(beside.empty() || !(same_length || eval_same_length.value_or(false)), "memory",
                "segment_cache with same_length does not support memory rows ('{}'); use same_length = false", beside);
  where.require(model.causal || !(same_length || eval_same_length.value_or(false)), "memory", "{}",
                "segment_cache: same_length counts keys to the left of a query, but in an encoder a query also sees "
                "those to its right: expected same_length = false");
}

int64_t SegmentCache::mem_len(core::Mode mode) const {
  return mode == core::Mode::evaluate ? options_.eval_mem_len.value_or(options_.mem_len) : options_.mem_len;
}

bool SegmentCache::same_length(core::Mode mode) const {
  return mode == core::Mode::evaluate ? options_.eval_same_length.value_or(options_.same_length) : options_.same_length;
}

core::State SegmentCache::initial_state(int64_t batch) const {
  const auto options = build_.like.options().requires_grad(false);
  SegmentCacheState state;
  state.rows.resize(static_cast<size_t>(build_.num_layers));
  for (const int64_t layer : build_.layers) {
    state.rows[static_cast<size_t>(layer)] = at::empty({batch, 0, build_.dim}, options);
  }
  state.valid = at::empty({batch, 0}, options.dtype(at::kBool));
  return state;
}

void SegmentCache::add_spans(core::AttendTable& table, const core::State& state, core::Mode mode) const {
  const int64_t rows = state.as<SegmentCacheState>().valid.size(1);
  if (!same_length(mode)) {
    table.append_context({core::SpanKind::cache, rows}, core::Rule::causal());
    return;
  }
  const core::Rule band = core::Rule::band(mem_len(mode));
  table.append_context({core::SpanKind::cache, rows}, band);
  table.set_rule(core::SpanKind::tokens, core::SpanKind::tokens, band);
}

at::Tensor SegmentCache::valid(const core::State& state) const { return state.as<SegmentCacheState>().valid; }

at::Tensor SegmentCache::before(int64_t layer, const at::Tensor&, const core::State& state) const {
  const auto& cache = state.as<SegmentCacheState>();
  core::require_layers(name_, cache.rows, build_.num_layers, build_.layers);
  const at::Tensor& rows = cache.rows[static_cast<size_t>(layer)];
  core::require_state(name_.c_str(), rows, {cache.valid.size(0), cache.valid.size(1), build_.dim});
  return rows.detach();
}

core::State SegmentCache::after(const std::vector<at::Tensor>& entering, const at::Tensor& valid,
                                const core::AttendTable& table, const core::State& state, core::Mode mode) const {
  const auto& cache = state.as<SegmentCacheState>();
  const int64_t limit = mem_len(mode);
  // The rows of the segment to keep, as [first, first + count).
  const bool tokens_only = !options_.keep_memory_rows;
  const int64_t first = tokens_only ? table.token_offset() : 0;
  const int64_t count = tokens_only ? table.rows()[token_span(table)].length : table.num_rows();
  const int64_t from_rows = std::min(count, limit);
  const int64_t from_cache = std::min(cache.valid.size(1), limit - from_rows);
  // With padding, the rows of [cache; segment] to keep, [B,n]: real ones move to the right, in order.
  at::Tensor order, kept_valid;
  if (valid.defined() && !valid.all().item<bool>()) {
    const at::Tensor all = at::cat({cache.valid, valid.narrow(1, first, count)}, 1);
    const int64_t kept = std::min(all.size(1), limit);
    order = std::get<1>(all.to(at::kInt).sort(/*stable=*/true, 1, false)).narrow(1, all.size(1) - kept, kept);
    kept_valid = all.gather(1, order);
  }
  auto last_rows = [&](const at::Tensor& old, const at::Tensor& fresh) {
    if (order.defined()) {
      const at::Tensor index = order.unsqueeze(-1).expand({-1, -1, fresh.size(2)});
      const at::Tensor rows = at::cat({old, fresh.narrow(1, first, count)}, 1).gather(1, index);
      return at::where(kept_valid.unsqueeze(-1), rows, 0.0);
    }
    const at::Tensor kept = fresh.narrow(1, first + count - from_rows, from_rows);
    const at::Tensor older = old.narrow(1, old.size(1) - from_cache, from_cache);
    return from_cache == 0 ? kept.clone() : core::append_rows(older, kept, 1);
  };
  const at::NoGradGuard no_grad;
  SegmentCacheState next;
  next.rows.resize(cache.rows.size());
  for (const int64_t served : build_.layers) {
    const auto layer = static_cast<size_t>(served);
    next.rows[layer] = last_rows(cache.rows[layer], entering[layer].detach());
  }
  next.valid = order.defined()
                   ? kept_valid
                   : last_rows(cache.valid, at::ones({entering[0].size(0), table.num_rows()}, cache.valid.options()));
  return next;
}

}  // namespace mnemo::memory
