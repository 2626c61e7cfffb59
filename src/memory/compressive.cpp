#include "memory/compressive.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/append_rows.h"
#include "core/require_state.h"

namespace mnemo::memory {
namespace {

/// Rows selected from each sequence: index [B,n] into its rows, and whether each of them exists.
struct Picked {
  at::Tensor index, real;

  at::Tensor of(const at::Tensor& rows) const {
    return at::where(real.unsqueeze(-1), rows.gather(1, index.unsqueeze(-1).expand({-1, -1, rows.size(2)})), 0.0);
  }
};

/// Selects the `count` [B] rows of each sequence before column `end` [B], right-aligned in as many columns as the
/// longest sequence needs.
Picked before_column(const at::Tensor& end, const at::Tensor& count) {
  const int64_t most = count.max().item<int64_t>();
  const at::Tensor from_right = at::arange(most - 1, -1, -1, count.options()).unsqueeze(0);
  return {(end.unsqueeze(1) - 1 - from_right).clamp_min(0), from_right < count.unsqueeze(1)};
}

}  // namespace

void CompressiveOptions::validate(const base::Where& where) const {
  where.require(mem_len > 0 || compressed_len > 0, "mem_len",
                "expected mem_len or compressed_len of at least 1, found 0 for both");
}

Compressive::Compressive(const Options& options, const core::MemoryBuild& build)
    : options_(options), build_(build), compression_(options.compression, options.compression_rate, build) {}

core::State Compressive::initial_state(int64_t batch) const {
  const auto options = build_.like.options().requires_grad(false);
  CompressiveState state;
  state.rows.resize(static_cast<size_t>(build_.num_layers));
  for (const int64_t layer : build_.layers) {
    state.rows[static_cast<size_t>(layer)] = at::empty({batch, 0, build_.dim}, options);
  }
  state.valid = at::empty({batch, 0}, options.dtype(at::kBool));
  state.plain = state.valid;
  return state;
}

void Compressive::add_spans(core::AttendTable& table, const core::State& state, core::Mode) const {
  table.append_context({core::SpanKind::cache, state.as<CompressiveState>().valid.size(1)}, core::Rule::causal());
}

at::Tensor Compressive::valid(const core::State& state) const { return state.as<CompressiveState>().valid; }

at::Tensor Compressive::before(int64_t layer, const at::Tensor&, const core::State& state) const {
  const auto& memory = state.as<CompressiveState>();
  core::require_layers("compressive", memory.rows, build_.num_layers, build_.layers);
  const at::Tensor& rows = memory.rows[static_cast<size_t>(layer)];
  core::require_state("compressive", rows, {memory.valid.size(0), memory.valid.size(1), build_.dim});
  return rows.detach();
}

core::State Compressive::after(const std::vector<at::Tensor>& entering, const at::Tensor& valid,
                               const core::AttendTable& table, const core::State& state, core::Mode) const {
  const at::NoGradGuard no_grad;
  const auto& old = state.as<CompressiveState>();
  const int64_t batch = entering[0].size(0);
  const at::Tensor real = valid.defined() ? valid : at::ones({batch, table.num_rows()}, old.valid.options());
  CompressiveState next;
  next.valid = core::append_rows(old.valid, real, 1);
  next.plain = core::append_rows(old.plain, real, 1);
  next.rows.resize(old.rows.size());
  for (const int64_t served : build_.layers) {
    const auto layer = static_cast<size_t>(served);
    next.rows[layer] = core::append_rows(old.rows[layer], entering[layer].detach(), 1);
  }
  const at::Tensor count = real.sum(1);
  next.open_rows = old.open_rows.defined() ? old.open_rows + count : count;
  if (!valid.defined() || valid.all().item<bool>()) return next;
  // Drop padding: real rows move to the right, in order.
  const at::Tensor order = std::get<1>(next.valid.to(at::kInt).sort(/*stable=*/true, 1, false));
  next.valid = next.valid.gather(1, order);
  next.plain = next.plain.gather(1, order);
  for (const int64_t layer : build_.layers) {
    at::Tensor& rows = next.rows[static_cast<size_t>(layer)];
    rows = Picked{order, next.valid}.of(rows);
  }
  return next;
}

int64_t Compressive::compressed_rows(const core::State& state) const {
  const at::Tensor& plain = state.as<CompressiveState>().plain;
  return plain.size(1) - plain[0].sum().item<int64_t>();
}

core::ContextEnd Compressive::end_segment(const core::State& state, core::Mode mode) const {
  const auto& old = state.as<CompressiveState>();
  const int64_t rate = options_.compression_rate, columns = old.valid.size(1);
  base::require(at::logical_and(old.open_rows >= 0, old.open_rows <= columns).all().item<bool>(),
                "[compressive] expected at most {} rows of the segment, as many as there are rows, found {}", columns,
                old.open_rows.max().item<int64_t>());
  const at::Tensor plain = old.plain.sum(1), end = at::full_like(plain, columns), middle = end - plain;
  // How many rows each sequence compresses, in whole blocks, and how many rows of each kind it then keeps.
  const at::Tensor blocks = (plain - options_.mem_len).clamp_min(0).floor_divide(rate);
  const at::Tensor made = blocks.clamp_max(options_.compressed_len);
  const at::Tensor kept = (old.valid.sum(1) - plain).minimum(options_.compressed_len - made),
                   rest = plain - blocks * rate;
  const Picked forgotten = before_column(middle + blocks * rate, blocks * rate);
  const bool compresses = forgotten.index.size(1) > 0 && options_.compressed_len > 0;
  const Picked asked = before_column(end, old.open_rows);

  // The new context, [kept; made; rest] of each sequence, right-aligned, as columns of [rows; compressed].
  const at::Tensor length = kept + made + rest;
  const Picked all = before_column(length, length);  // the position of each column within its sequence's context
  const at::Tensor place = all.index, of_rest = place >= (kept + made).unsqueeze(1),
                   of_kept = place < kept.unsqueeze(1);
  const int64_t new_columns = forgotten.index.size(1) / rate;
  const at::Tensor from_rest = place + (end - length).unsqueeze(1), from_kept = place + (middle - kept).unsqueeze(1);
  const at::Tensor from_made = place + (columns + new_columns - made - kept).unsqueeze(1);
  // A sequence without rows has columns that are no context: they stand for any row.
  const at::Tensor from = at::where(of_rest, from_rest, at::where(of_kept, from_kept, from_made));
  const Picked context{from.masked_fill(all.real.logical_not(), 0), all.real};

  CompressiveState next;
  next.valid = all.real;
  next.plain = at::logical_and(of_rest, all.real);
  at::Tensor loss;
  const bool learns = compresses && compression_.trains() && mode == core::Mode::train && options_.loss_weight > 0;
  next.rows.resize(old.rows.size());
  for (const int64_t layer : build_.layers) {
    const at::Tensor rows = old.rows[static_cast<size_t>(layer)].detach();
    at::Tensor source = rows;
    if (compresses) {
      const Forgotten lost{forgotten.of(rows), forgotten.real, asked.of(rows), asked.real};
      const at::AutoGradMode grad(learns && at::GradMode::is_enabled());
      const at::Tensor compressed = compression_.compress(layer, lost);
      source = at::cat({rows, compressed.detach()}, 1);
      if (learns) {
        const at::Tensor term = compression_.reconstruction_loss(layer, lost, compressed);
        loss = loss.defined() ? loss + term : term;
      }
    }
    next.rows[static_cast<size_t>(layer)] = context.of(source);
  }
  return {next, loss};
}

}  // namespace mnemo::memory
