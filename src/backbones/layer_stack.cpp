#include "backbones/layer_stack.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "core/decode.h"
#include "layers/recompute.h"
#include "ops/attention/position.h"
#include "ops/batch_rows.h"
#include "ops/dropout.h"
#include "ops/fixed_shapes.h"

namespace mnemo::backbones {
namespace {

/// y [B,T,D], or, given which rows are real, y [N,D] of these, which alone go through the output projection.
core::AttentionResult attend_real_rows(const core::Attention& attention, const core::AttentionInput& input,
                                       const core::State& state, const ops::RealRows* real) {
  if (real == nullptr) return attention.forward(input, state);
  if (const core::CoreAttention* split = attention.as_core()) {
    core::CoreAttention::Heads inner = split->heads(input, state);
    return {split->project(real->pack(inner.heads)), std::move(inner.state), std::move(inner.to_above)};
  }
  core::AttentionResult result = attention.forward(input, state);
  result.y = real->pack(result.y);
  return result;
}

}  // namespace

void LayerStackOptions::validate(const base::Where& where) const {
  where.require(head_dim.has_value() || dim % num_heads == 0, "num_heads",
                "expected a divisor of dim = {} (or head_dim set), found {}", dim, num_heads);
  where.require(!parallel_residual || norm == Norm::pre, "parallel_residual", "{}",
                "expected norm = \"pre\", found \"post\"");
  where.require(position.type != PositionOptions::Type::sinusoidal || dim % 2 == 0, "dim",
                "sinusoidal positions need an even dim, found {}", dim);
  where.require(position.type != PositionOptions::Type::learned || position.places() > 0, "position",
                "expected first below max_len = {}, found {}", position.max_len, position.first);
}

LayerStack::LayerStack(const LayerStackOptions& options, const layers::Scope& scope, bool causal,
                       const core::AttentionMaker& make_attention, const core::AttentionMaker& make_cross)
    : options_(options) {
  if (options.position.type == PositionOptions::Type::learned) {
    positions_ = (scope / "positions")
                     .add("weight", {options.position.max_len, options.dim}, layers::normal(options.init_std));
  }
  for (int64_t n = 0; n < options.num_layers; ++n) {
    const layers::Scope layer = scope / "layers" / n;
    core::AttentionBuild build{
        layer / "attn",   layer, scope, options.dim, options.num_heads, options.head_width(), causal,
        options.init_std, n};
    const auto norm = [&](const char* name) {
      return layers::Norm(options.norm_type, layer / name, options.dim, options.norm_eps);
    };
    Layer& made = layers_.emplace_back();
    made.name = build.attn.prefix();
    made.attention = make_attention(build);
    made.norm1 = norm("norm1");
    if (make_cross) {
      build.attn = layer / "cross";
      build.causal = false;
      made.cross = make_cross(build);
      made.cross_norm = norm("norm2");
    }
    made.norm2 = norm(make_cross ? "norm3" : "norm2");
    made.ffn = layers::FeedForward(layer / "ffn", options.dim, options.ffn_dim, options.activation, options.init_std,
                                   options.ffn_gated, options.ffn_bias);
  }
  const std::string prefix = (scope / "layers").prefix() + ".";
  for (const layers::Parameter& parameter : scope.parameters()) {
    for (size_t n = 0; n < layers_.size(); ++n)
      if (!parameter.name.starts_with(prefix) || parameter.name.starts_with(prefix + std::to_string(n) + "."))
        layers_[n].parameters.push_back(parameter.tensor);
  }
  if (options.final_norm)
    final_norm_ = layers::Norm(options.norm_type, scope / "final_norm", options.dim, options.norm_eps);
}

at::Tensor LayerStack::positions_of(const core::BackboneInput& input) const {
  const PositionOptions& position = options_.position;
  const auto index_options = at::TensorOptions().dtype(at::kLong).device(input.rows.device());
  const bool skips = position.skips_padding && input.valid.defined();
  at::Tensor numbers = skips ? (input.valid.cumsum(1) - 1).clamp_min(0)
                             : at::arange(input.rows.size(1), index_options).unsqueeze(0);  // [B,Q] or [1,Q]
  if (input.first_row.defined()) numbers = numbers + input.first_row.unsqueeze(1);
  if (position.type == PositionOptions::Type::sinusoidal) {
    using Frequencies = PositionOptions::Frequencies;
    const auto sinusoids = position.frequencies == Frequencies::fairseq ? ops::fairseq_sinusoids : ops::sinusoids;
    // Marian models hold their table, so it has the precision of weights.
    const bool rounded = position.frequencies == Frequencies::marian && input.rows.scalar_type() == at::kDouble;
    const at::Tensor rows = sinusoids(numbers + position.first, options_.dim, input.rows.options());
    return rounded ? rows.to(at::kFloat).to(at::kDouble) : rows;
  }
  const int64_t last = input.rows.size(1) == 0              ? -1
                       : ops::FixedShapes::now() == nullptr ? numbers.max().item<int64_t>()
                                                            : input.table(0).num_keys() - 1;  // that number or more
  base::require(last < position.places(),
                "[backbone] segment and memory rows together are {} rows, more than position.max_len = {}{}", last + 1,
                position.max_len, position.first == 0 ? "" : fmt::format(" - first = {}", position.first));
  return at::embedding(positions_, position.first == 0 ? numbers : numbers + position.first);
}

at::Tensor LayerStack::embed(const core::BackboneInput& input) const {
  base::require(!input.token_types.defined(),
                "[backbone] token types need a table of them, which an encoder with backbone.token_types of at least 1 "
                "has; leave them out");
  return positioned(input);
}

at::Tensor LayerStack::positioned(const core::BackboneInput& input) const {
  if (options_.position.type == PositionOptions::Type::none) return input.rows;
  const at::Tensor positions = positions_of(input);
  if (!options_.position.skips_padding || !input.valid.defined()) return input.rows + positions;
  return input.rows + positions * input.valid.unsqueeze(-1);
}

at::Tensor LayerStack::attention_rows(int64_t layer, const at::Tensor& rows) const {
  if (options_.norm != LayerStackOptions::Norm::pre) return rows;
  return layers_[static_cast<size_t>(layer)].norm1.constant(rows);
}

std::unique_ptr<core::DecodeStack> LayerStack::decode_stack() const {
  auto stack = std::make_unique<core::DecodeStack>();
  for (const Layer& layer : layers_)
    stack->layers.push_back(
        {layer.name, layer.attention.get(), layer.norm1, layer.norm2, layer.ffn, layer.cross.get(), layer.cross_norm});
  stack->pre_norm = options_.norm == LayerStackOptions::Norm::pre;
  stack->parallel_residual = options_.parallel_residual;
  stack->final_norm = final_norm_;
  if (positions_.defined())
    stack->positions = positions_.narrow(0, options_.position.first, options_.position.places());
  const PositionOptions& position = options_.position;
  if (position.type != PositionOptions::Type::sinusoidal) return stack;
  const bool fairseq = position.frequencies == PositionOptions::Frequencies::fairseq;
  const int64_t half = options_.dim / 2;
  const double last = fairseq ? std::max<double>(static_cast<double>(half - 1), 1.0) : static_cast<double>(half);
  for (int64_t k = 0; k < half; ++k) stack->frequencies.push_back(std::pow(10000.0, -static_cast<double>(k) / last));
  stack->first_position = position.first;
  return stack;
}

std::vector<bool> LayerStack::dropped(const core::BackboneInput& input) const {
  std::vector<bool> dropped(layers_.size(), false);
  if (input.mode != core::Mode::train || options_.layer_drop == 0.0) return dropped;
  base::require(input.ends && !input.first_row.defined(),
                "[backbone] layer_drop requires whole segments in training, found a partial segment");
  const at::Tensor chances = at::rand({static_cast<int64_t>(layers_.size())}, ops::generator_now(at::kCPU),
                                      at::kDouble);
  for (size_t n = 0; n < layers_.size(); ++n)
    dropped[n] = chances[static_cast<int64_t>(n)].item<double>() < options_.layer_drop;
  return dropped;
}

std::optional<ops::RealRows> LayerStack::real_rows(const core::BackboneInput& input) const {
  // In models of translation alone, whose positions skip padding: elsewhere the rows of padding are results too.
  if (input.mode != core::Mode::train || !options_.position.skips_padding || input.observe || input.hidden ||
      options_.activation_dropout > 0.0)
    return std::nullopt;
  return ops::RealRows::if_it_pays(input.valid);
}

at::Tensor LayerStack::drop(const at::Tensor& rows, bool training, const ops::RealRows* real) const {
  if (!training || options_.dropout == 0.0 || real == nullptr) return layers::dropout(rows, options_.dropout, training);
  return ops::dropout(rows, options_.dropout, *real);
}

core::AttentionResult LayerStack::Layer::attend(const core::AttentionInput& input, const core::State& state,
                                                const ops::RealRows* real) const {
  RECORD_USER_SCOPE("attention");
  return attend_real_rows(*attention, input, state, real);
}

at::Tensor LayerStack::Layer::feed_forward(const at::Tensor& rows, double dropout, bool training) const {
  RECORD_USER_SCOPE("feed_forward");
  return ffn(rows, dropout, training);
}

at::Tensor LayerStack::Layer::attend_encoder(const core::AttentionInput& input, const ops::RealRows* real) const {
  RECORD_USER_SCOPE("cross_attention");
  return attend_real_rows(*cross, input, {}, real).y;
}

template <class F>
void LayerStack::Passed::each(F&& f) {
  for (at::Tensor* tensor : {&h, &from_below, &context, &encoder})
    if (tensor->defined()) f(*tensor);
  state = state.map([&](const core::Field&, const at::Tensor& tensor) {
    at::Tensor changed = tensor;
    f(changed);
    return changed;
  });
}

LayerStack::Passed LayerStack::run_layer(size_t n, const Passed& entering, const Pass& pass) const {
  const Layer& layer = layers_[n];
  const core::BackboneInput& input = pass.input;
  const ops::RealRows* real = pass.real;
  const bool pre = options_.norm == LayerStackOptions::Norm::pre, training = input.mode == core::Mode::train;
  const auto all = [&](const at::Tensor& rows) { return real == nullptr ? rows : real->unpack(rows); };
  at::Tensor h = entering.h, context = entering.context;
  if (pre && context.defined()) context = layer.norm1(context);
  const core::AttentionInput rows{
      all(pre ? layer.norm1(h) : h), context, pass.table, input.mode, input.ends, entering.from_below};
  if (input.observe) input.observe(static_cast<int64_t>(n), *layer.attention, rows, entering.state);
  core::AttentionResult attended = layer.attend(rows, entering.state, real);
  const at::Tensor y = drop(attended.y, training, real), entered = h;
  h = pre ? h + y : layer.norm1(h + y);
  if (layer.cross) {
    base::ensure(pass.cross_table != nullptr, "layers with cross-attention need an encoder's output");
    const core::AttentionInput asks{all(pre ? layer.cross_norm(h) : h), entering.encoder, *pass.cross_table,
                                    input.mode};
    if (input.observe) input.observe(static_cast<int64_t>(n), *layer.cross, asks, {});
    const at::Tensor read = drop(layer.attend_encoder(asks, real), training, real);
    h = pre ? h + read : layer.cross_norm(h + read);
  }
  const at::Tensor ffn = drop(layer.feed_forward(pre ? layer.norm2(options_.parallel_residual ? entered : h) : h,
                                                 options_.activation_dropout, training),
                              training, real);
  h = pre ? h + ffn : layer.norm2(h + ffn);
  return {h, std::move(attended.to_above), std::move(attended.state)};
}

/// Runs layers whose graphs the backward pass builds again; keeps everything that this needs alive until then.
class LayerStack::Recomputing {
 public:
  Recomputing(const LayerStack& stack, const core::BackboneInput& input,
              const std::optional<core::AttendTable>& cross_table, const std::optional<ops::RealRows>& real)
      : held_(std::make_shared<Held>(Held{stack, {}, cross_table, real, {}})) {
    held_->input.mode = input.mode, held_->input.ends = input.ends;
  }

  Passed operator()(size_t n, Passed entering, const core::AttendTable& table) {
    const core::AttendTable& own = held_->tables.try_emplace(&table, table).first->second;
    std::vector<at::Tensor> inputs;
    entering.each([&](at::Tensor& tensor) { inputs.push_back(std::exchange(tensor, at::empty({0}))); });
    const auto leaving = std::make_shared<Passed>();  // without the tensors
    const auto run = [held = held_, n, &own, entering, leaving](const std::vector<at::Tensor>& tensors) {
      Passed given = entering;
      size_t next = 0;
      given.each([&](at::Tensor& tensor) { tensor = tensors[next++]; });
      *leaving = held->stack.run_layer(
          n, given,
          {held->input, own, held->cross_table ? &*held->cross_table : nullptr, held->real ? &*held->real : nullptr});
      std::vector<at::Tensor> made;
      leaving->each([&](at::Tensor& tensor) { made.push_back(std::exchange(tensor, at::empty({0}))); });
      return made;
    };
    const std::vector<at::Tensor> made = layers::recomputed(run, inputs, held_->stack.layers_[n].parameters);
    Passed result = *leaving;
    size_t next = 0;
    result.each([&](at::Tensor& tensor) { tensor = made[next++]; });
    return result;
  }

 private:
  struct Held {
    const LayerStack& stack;
    core::BackboneInput input;
    std::optional<core::AttendTable> cross_table;
    std::optional<ops::RealRows> real;
    std::map<const core::AttendTable*, core::AttendTable> tables;
  };
  std::shared_ptr<Held> held_;
};

core::BackboneResult LayerStack::forward(const core::BackboneInput& input, const core::State& state) const {
  core::BackboneResult result;
  core::State::Children states;
  at::Tensor h = embed(input);
  if (input.hidden) input.hidden("embed", h);
  h = layers::dropout(h, options_.dropout, input.mode == core::Mode::train);
  const std::optional<ops::RealRows> packed = real_rows(input);
  const ops::RealRows* real = packed ? &*packed : nullptr;
  const auto all = [&](const at::Tensor& rows) { return real == nullptr ? rows : real->unpack(rows); };
  if (real != nullptr) h = real->pack(h);
  std::optional<core::AttendTable> cross_table;
  if (input.encoder.rows.defined()) {
    cross_table = core::AttendTable::cross({core::SpanKind::tokens, input.rows.size(1)},
                                           {core::SpanKind::tokens, input.encoder.rows.size(1)});
    if (input.encoder.valid.defined()) cross_table->set_valid(input.encoder.valid);
  }
  std::optional<Recomputing> again;
  if (input.recompute_layers && !input.observe && c10::GradMode::is_enabled())
    again.emplace(*this, input, cross_table, packed);
  at::Tensor from_below;
  const std::vector<bool> passed_by = dropped(input);
  for (size_t n = 0; n < layers_.size(); ++n) {
    const Layer& layer = layers_[n];
    const at::Tensor enters = all(h);
    result.entering.push_back(enters);
    if (passed_by[n]) {
      states.emplace_back(layer.name, state.child(layer.name));
      continue;
    }
    at::Tensor context = input.context ? input.context(static_cast<int64_t>(n), enters) : at::Tensor();
    if (context.defined() && context.size(1) == 0) context = at::Tensor();
    // A view for each layer: its gradients are summed first, also in the order of a layer that runs again.
    const at::Tensor encoder = layer.cross ? input.encoder.rows.view_as(input.encoder.rows) : at::Tensor();
    Passed entering{h, from_below, state.child(layer.name), context, encoder};
    const core::AttendTable& table = input.table(static_cast<int64_t>(n));
    Passed leaving = again ? (*again)(n, std::move(entering), table)
                           : run_layer(n, entering, {input, table, cross_table ? &*cross_table : nullptr, real});
    h = leaving.h;
    from_below = std::move(leaving.from_below);
    states.emplace_back(layer.name, std::move(leaving.state));
    if (input.hidden) input.hidden(fmt::format("layers.{}", n), h);
  }
  if (options_.final_norm) {
    h = final_norm_(h);
    if (input.hidden) input.hidden("final_norm", h);
  }
  result.hidden = layers::dropout(all(h), options_.output_dropout, input.mode == core::Mode::train);
  result.state = core::State::list(std::move(states));
  return result;
}

}  // namespace mnemo::backbones
