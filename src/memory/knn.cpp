#include "memory/knn.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core/append_rows.h"
#include "core/grouped_queries.h"
#include "core/require_state.h"
#include "ops/attention/knn.h"

namespace mnemo::memory {
namespace {

at::Tensor of_length_one(const at::Tensor& rows) { return rows / (rows.square().sum(-1, true) + 1e-12).sqrt(); }

/// The last `count` rows of [old; fresh] [B,H,M,d]. `order` [B,M], if given, first moves the real rows to the right.
/// Rows that do not exist are zero.
at::Tensor last_rows(const at::Tensor& old, const at::Tensor& fresh, const at::Tensor& order, const at::Tensor& valid,
                     int64_t count) {
  if (!order.defined()) {
    const int64_t of_old = std::max<int64_t>(0, count - fresh.size(2));
    return at::cat(
        {old.narrow(2, old.size(2) - of_old, of_old), fresh.narrow(2, fresh.size(2) - count + of_old, count - of_old)},
        2);
  }
  const at::Tensor index = order.narrow(1, order.size(1) - count, count).view({order.size(0), 1, count, 1});
  return at::cat({old, fresh}, 2).gather(2, index.expand({-1, old.size(1), -1, old.size(3)})) *
         valid.view({valid.size(0), 1, count, 1});
}

}  // namespace

Knn::Knn(const Options& options, const core::AttentionBuild& build, std::unique_ptr<core::CoreAttention> inner)
    : WrappedAttention(std::move(inner), "knn"),
      options_(options),
      maps_(projections()),
      num_heads_(build.num_heads),
      num_kv_heads_(maps_ == nullptr ? build.num_heads : maps_->num_kv_heads),
      head_dim_(build.head_dim) {
  base::require(
      maps_ != nullptr,
      "knn: the memory holds keys and values of single rows, and this attention does not say how it makes "
      "them; use softmax, relative, relative_buckets, sliding_window or linear, or disentangled in an encoder");
  const layers::Scope scope = build.attn / "knn";
  gate_ = scope.add("gate", {num_heads_}, layers::constant(0.0), layers::ParameterKind::bias);
  if (options.normalize) {
    const double start = std::sqrt(static_cast<double>(head_dim_));
    scale_ = scope.add("scale", {num_heads_}, layers::constant(start), layers::ParameterKind::bias);
  }
}

core::State Knn::initial_state(int64_t batch) const {
  const auto options = gate_.options().requires_grad(false);
  KnnState state;
  state.keys = at::empty({batch, num_kv_heads_, 0, head_dim_}, options);
  state.values = state.keys;
  state.valid = at::empty({batch, 0}, options.dtype(at::kBool));
  return joined(state, inner().initial_state(batch));
}

core::AttentionSupport Knn::support() const {
  core::AttentionSupport support = WrappedAttention::support();
  support.keeps_state = support.moves_at_ends = true;
  return support;
}

int64_t Knn::own_max_rows(std::string_view field, core::Mode) const {
  return field.starts_with("open.") ? 0 : options_.memory_len;
}

at::Tensor Knn::queries(const at::Tensor& q) const {
  return core::by_key_heads(options_.normalize ? of_length_one(q) * scale_.view({num_heads_, 1, 1})
                                               : q / std::sqrt(static_cast<double>(head_dim_)),
                            num_kv_heads_);
}

void require_knn_state(const KnnState& state, int64_t batch, int64_t heads, int64_t head_dim) {
  base::require(state.keys.defined() && state.keys.dim() == 4 && state.valid.defined(),
                "[knn] expected a state with keys, values and valid, found none; is it of another model?");
  const int64_t rows = state.keys.size(2);
  core::require_state("knn", state.keys, {batch, heads, rows, head_dim});
  core::require_state("knn", state.values, {batch, heads, rows, head_dim});
  core::require_state("knn", state.valid, {batch, rows});
}

const KnnState& Knn::checked(const core::State& knn, int64_t batch) const {
  const KnnState& state = knn.as<KnnState>();
  require_knn_state(state, batch, num_kv_heads_, head_dim_);
  return state;
}

KnnState Knn::after(const KnnState& old, const at::Tensor& k, const at::Tensor& v,
                    const core::AttentionInput& input) const {
  const at::NoGradGuard no_grad;
  const int64_t batch = input.x.size(0), count = input.x.size(1);
  const at::Tensor& table_valid = input.table.valid();
  const at::Tensor real = table_valid.defined() ? table_valid.narrow(1, input.table.num_context(), count)
                                                : at::ones({batch, count}, old.valid.options());
  const at::Tensor keys = core::append_rows(old.open_keys, options_.normalize ? of_length_one(k) : k.detach(), 2),
                   values = core::append_rows(old.open_values, v.detach(), 2),
                   valid = core::append_rows(old.open_valid, real, 1);
  if (!input.ends) return {old.keys, old.values, old.valid, keys, values, valid};

  const at::Tensor all_valid = at::cat({old.valid, valid}, 1);
  const int64_t kept = std::min(options_.memory_len, all_valid.size(1));
  at::Tensor order;
  if (!valid.all().item<bool>()) order = std::get<1>(all_valid.to(at::kInt).sort(/*stable=*/true, 1, false));
  KnnState next;
  next.valid = (order.defined() ? all_valid.gather(1, order) : all_valid).narrow(1, all_valid.size(1) - kept, kept);
  next.keys = last_rows(old.keys, keys, order, next.valid, kept);
  next.values = last_rows(old.values, values, order, next.valid, kept);
  return next;
}

core::CoreAttention::Heads Knn::heads(const core::AttentionInput& input, const core::State& state) const {
  const core::State own = own_state(state);
  const KnnState& old = checked(own, input.x.size(0));
  Heads made = inner().heads(input, inner_state(state));
  RECORD_USER_SCOPE("knn");
  if (!made.rows.q.defined()) made.rows = maps_->heads(input.x, input.x);
  made.state = joined(after(old, made.rows.k, made.rows.v, input), std::move(made.state));
  if (old.keys.size(2) == 0) return made;

  const at::Tensor found = ops::knn_attention(queries(made.rows.q), old.keys.detach(), old.values.detach(), old.valid,
                                              options_.top_k),
                   far = core::by_query_heads(found, num_heads_);
  const at::Tensor near = made.heads.unflatten(-1, {num_heads_, head_dim_});  // [B,Q,H,d]
  at::Tensor mixed = at::lerp(near, far.transpose(1, 2), at::sigmoid(gate_).view({num_heads_, 1}));
  const at::Tensor any = old.valid.any(1);
  if (!any.all().item<bool>()) mixed = at::where(any.view({-1, 1, 1, 1}), mixed, near);
  made.heads = mixed.flatten(2);
  return made;
}

core::AttentionView Knn::inspect(const core::AttentionInput& input, const core::State& state,
                                 const core::State& history) const {
  core::AttentionView view = WrappedAttention::inspect(input, state, history);
  const core::State own = own_state(state);
  const KnnState& old = checked(own, input.x.size(0));
  if (old.keys.size(2) == 0) return view;
  view.maps.push_back({"knn", core::MapAxis::queries, core::MapAxis::cache,
                       core::by_query_heads(ops::knn_weights(queries(maps_->heads(input.x, input.x).q), old.keys,
                                                             old.valid, options_.top_k),
                                            num_heads_)});
  return view;
}

std::vector<core::Scalar> Knn::scalars() const {
  std::vector<core::Scalar> all = WrappedAttention::scalars();
  const at::Tensor share = at::sigmoid(gate_.detach()).to(at::kCPU, at::kDouble);
  all.push_back({"knn_gate", {share.const_data_ptr<double>(), share.const_data_ptr<double>() + share.numel()}});
  return all;
}

}  // namespace mnemo::memory
