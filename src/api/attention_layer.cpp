#include "api/attention_layer.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include "backbones/registry.h"
#include "base/error.h"
#include "core/model.h"
#include "models/left_padding.h"
#include "models/make_attention.h"
#include "models/options.h"
#include "models/presets.h"
#include "models/registry.h"

namespace mnemo {
namespace {

/// The options with defaults filled in and validated, as a stack that has layer number `layer`.
models::ModelOptions stack_options(const AttentionLayerOptions& options, int64_t layer) {
  base::Node memory = base::Node::array();
  for (const base::Node& one : options.memory) memory.push_back(one);
  base::Node backbone = base::Node::table({{"type", backbones::stack_type(options.causal)},
                                           {"num_layers", layer + 1},
                                           {"dim", options.dim},
                                           {"num_heads", options.num_heads},
                                           {"attention", options.attention}});
  return models::read_model_options(
      base::Node::table({{"kind", "layer_stack"}, {"backbone", std::move(backbone)}, {"memory", std::move(memory)}}));
}

}  // namespace

std::unique_ptr<core::Attention> make_attention(const AttentionLayerOptions& options,
                                                const core::AttentionBuild& build) {
  const models::ModelOptions stack = stack_options(options, build.layer_number);
  for (const base::TypedOptions& memory : stack.memory) {
    base::require(models::Mechanisms::all().memories.find(memory.type()).wrap_attention != nullptr,
                  "attention layer: memory '{}' is not on the attention seam; use a model of kind "
                  "\"layer_stack\", which supports every memory",
                  memory.type());
  }
  return models::make_attention(stack.backbone.stack().attention, stack.memory, build);
}

AttentionLayer::AttentionLayer(const AttentionLayerOptions& options)
    : causal_(options.causal), dim_(options.dim), parameters_(options.seed) {
  base::require(options.num_heads >= 1 && options.dim >= 1 && options.dim % options.num_heads == 0,
                "attention layer: expected num_heads to divide dim, found {} and {}", options.num_heads, options.dim);
  const layers::Scope layer = parameters_.root();
  attention_ = make_attention(options, {.attn = layer / "attn",
                                        .layer = layer,
                                        .shared = layer,
                                        .dim = options.dim,
                                        .num_heads = options.num_heads,
                                        .head_dim = options.dim / options.num_heads,
                                        .causal = options.causal});
}

core::AttentionResult AttentionLayer::forward(const at::Tensor& x, const core::State& state, core::Mode mode,
                                              const at::Tensor& valid) const {
  if (x.dim() != 3 || x.size(2) != dim_ || x.size(0) == 0 || x.size(1) == 0) {
    throw base::ShapeError(fmt::format("attention layer: expected x [B,T,{}] with at least one row, found [{}]", dim_,
                                       fmt::join(x.sizes().begin(), x.sizes().end(), ",")));
  }
  core::AttendTable table({core::SpanKind::tokens, x.size(1)}, causal_ ? core::Rule::causal() : core::Rule::all());
  if (!valid.defined()) return attention_->forward({.x = x, .context = {}, .table = table, .mode = mode}, state);
  table.set_valid(valid);
  core::Segment segment;
  segment.rows = x;
  segment.valid = valid;
  const models::LeftPadding padding(valid);
  if (padding.moves()) {
    segment = padding.right_padded(segment);
    table.set_valid(segment.valid);
  }
  // Padding may hold NaN, and 0 * NaN is NaN.
  const at::Tensor rows = segment.rows.masked_fill(segment.valid.logical_not().unsqueeze(-1), 0.0);
  core::AttentionResult step = attention_->forward({.x = rows, .context = {}, .table = table, .mode = mode}, state);
  if (padding.moves()) step.y = padding.back(step.y);
  return step;
}

}  // namespace mnemo
