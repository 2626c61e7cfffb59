#include "memory/compression.h"

#include <torch/types.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "core/backbone.h"
#include "core/grouped_queries.h"
#include "ops/attention/attention.h"
#include "ops/linear/linear.h"

namespace mnemo::memory {
namespace {

/// Which blocks contain a real row: [B,E] -> [B,E/rate,1].
at::Tensor real_blocks(const at::Tensor& valid, int64_t rate) {
  return valid.view({valid.size(0), -1, rate}).any(-1).unsqueeze(-1);
}

/// Softmax attention over all keys except padding.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid) {
  ops::KeyRanges ranges = ops::KeyRanges::all(q.size(2), k.size(2));
  ranges.valid = valid;
  return ops::attention(q, k, v, {}, ranges, 1.0 / std::sqrt(static_cast<double>(q.size(3))));
}

const char* name_of(CompressionFunction function) {
  return function == CompressionFunction::conv           ? "conv"
         : function == CompressionFunction::dilated_conv ? "dilated_conv"
                                                         : "most_used";
}

}  // namespace

Compression::Compression(CompressionFunction function, int64_t rate, const core::MemoryBuild& build)
    : function_(function), rate_(rate), backbone_(build.backbone) {
  const bool convolves = function == CompressionFunction::conv || function == CompressionFunction::dilated_conv;
  if (!convolves && function != CompressionFunction::most_used) return;
  base::require(backbone_ != nullptr, "compressive: compression \"{}\" needs a whole model, not one attention",
                name_of(function));
  if (convolves) {
    weights_.resize(static_cast<size_t>(build.num_layers));
    biases_.resize(weights_.size());
  }
  for (const int64_t layer : build.layers) {
    base::require(
        backbone_->attention(layer).projections() != nullptr,
        "compressive: compression \"{}\" needs attention by content, which the attention of layer {} does not "
        "provide; use \"mean_pooling\" or \"max_pooling\", or the attention softmax or relative",
        name_of(function), layer);
    if (!convolves) continue;
    const layers::Scope own = build.scope / "compression" / "layers" / layer;
    const double std = 1.0 / std::sqrt(static_cast<double>(rate * build.dim));
    weights_[static_cast<size_t>(layer)] = own.add("weight", {build.dim, rate * build.dim}, layers::normal(std));
    biases_[static_cast<size_t>(layer)] = own.add("bias", {build.dim}, layers::constant(0.0),
                                                  layers::ParameterKind::bias);
  }
}

at::Tensor Compression::compress(int64_t layer, const Forgotten& rows) const {
  if (function_ == CompressionFunction::most_used) return most_used(layer, rows);
  const at::Tensor real = real_blocks(rows.valid, rate_);
  const auto nothing = at::zeros({}, rows.old.options().requires_grad(false));
  if (trains()) return at::where(real, convolve(layer, rows), nothing);
  const at::Tensor blocks = rows.old.unflatten(1, {-1, rate_});
  return at::where(real, function_ == CompressionFunction::max_pooling ? blocks.amax(2) : blocks.mean(2), nothing);
}

at::Tensor Compression::convolve(int64_t layer, const Forgotten& rows) const {
  const int64_t dilation = function_ == CompressionFunction::conv ? 1 : 2, count = rows.old.size(1);
  const auto options = rows.valid.options().dtype(at::kLong);
  const at::Tensor taps = at::arange(0, rate_ * dilation, dilation, options) - (rate_ - 1) * (dilation - 1) / 2;
  const at::Tensor wanted = (at::arange(0, count, rate_, options).unsqueeze(1) + taps).flatten();  // [E]
  const at::Tensor inside = at::logical_and(wanted >= 0, wanted < count), index = wanted.clamp(0, count - 1);
  const at::Tensor real = at::logical_and(rows.valid.index_select(1, index), inside).unsqueeze(-1);
  const at::Tensor taken = at::where(real, rows.old.index_select(1, index),
                                     at::zeros({}, rows.old.options().requires_grad(false)));
  return ops::linear(taken.reshape({rows.old.size(0), count / rate_, -1}), weights_[static_cast<size_t>(layer)],
                     biases_[static_cast<size_t>(layer)]);
}

Compression::Heads Compression::heads(int64_t layer, const at::Tensor& queries, const at::Tensor& rows) const {
  const layers::AttentionProjections& maps = *backbone_->attention(layer).projections();
  const auto constant = [&](const layers::Linear& map, const at::Tensor& x) {
    return maps.split(
        at::linear(x, map.weight.detach(), map.bias.defined() ? std::optional(map.bias.detach()) : std::nullopt));
  };
  const at::Tensor read = backbone_->attention_rows(layer, rows);
  return {constant(maps.q, backbone_->attention_rows(layer, queries)),
          core::for_queries(constant(maps.k, read), maps.num_heads),
          core::for_queries(constant(maps.v, read), maps.num_heads)};
}

at::Tensor Compression::most_used(int64_t layer, const Forgotten& rows) const {
  const at::NoGradGuard no_grad;
  const auto [q, k, v] = heads(layer, rows.queries, rows.old);
  const double lowest = -std::numeric_limits<double>::infinity();
  const at::Tensor scores = at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor weights = at::softmax(
      scores.masked_fill(rows.valid.logical_not().view({q.size(0), 1, 1, -1}), lowest), -1);   // [B,H,Q,E]
  const at::Tensor asked = at::where(rows.asking.unsqueeze(-1), weights.mean(1), 0.0).sum(1);  // [B,E]
  const at::Tensor usage = asked.masked_fill(rows.valid.logical_not(), lowest);
  // The first rank / rate rows of each sequence, in order and right-aligned: ranks by usage, then a stable sort by
  // whether a row is kept.
  const at::Tensor rank = std::get<1>(std::get<1>(usage.sort(/*stable=*/true, 1, /*descending=*/true)).sort(1));
  const at::Tensor kept = at::logical_and(rank < rows.valid.sum(1, true).floor_divide(rate_), rows.valid);
  const at::Tensor order = std::get<1>(kept.to(at::kInt).sort(/*stable=*/true, 1, false))
                               .narrow(1, rows.old.size(1) - rows.old.size(1) / rate_, rows.old.size(1) / rate_);
  const at::Tensor picked = rows.old.gather(1, order.unsqueeze(-1).expand({-1, -1, rows.old.size(2)}));
  return at::where(kept.gather(1, order).unsqueeze(-1), picked, 0.0);
}

at::Tensor Compression::reconstruction_loss(int64_t layer, const Forgotten& rows, const at::Tensor& compressed) const {
  const auto [q, k, v] = heads(layer, rows.queries, at::cat({rows.old, compressed}, 1));
  const int64_t old = rows.old.size(1), made = compressed.size(1);
  const at::Tensor real = real_blocks(rows.valid, rate_).squeeze(-1);
  const at::Tensor wanted = attend(q, k.narrow(2, 0, old), v.narrow(2, 0, old), rows.valid).detach();
  const at::Tensor found = attend(q, k.narrow(2, old, made), v.narrow(2, old, made), real);
  const at::Tensor counted = rows.asking.view({q.size(0), 1, -1, 1}).to(q.scalar_type());
  const at::Tensor numbers = counted.sum({1, 2, 3}).clamp_min(1.0) * static_cast<double>(q.size(1) * q.size(3));
  return ((wanted - found).square() * counted).sum({1, 2, 3}) / numbers;
}

}  // namespace mnemo::memory
