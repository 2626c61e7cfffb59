#include "attention/linear.h"

#include <torch/types.h>

#include <cmath>

#include "attention/key_rows.h"
#include "core/draws.h"
#include "core/grouped_queries.h"
#include "core/require_state.h"
#include "ops/counter_rng.h"
#include "ops/linear/linear.h"

namespace mnemo::attention {
namespace {

int64_t features_of(const LinearOptions& options, int64_t head_dim) {
  if (options.feature_map == LinearOptions::FeatureMap::elu) return head_dim;
  const int64_t given = options.num_features.value_or(32);
  return options.feature_map == LinearOptions::FeatureMap::rfa ? 2 * given : given;
}

ops::LinearNormaliser normaliser_of(const LinearOptions& options) {
  using Kind = ops::LinearNormaliser::Kind;
  if (options.feature_map != LinearOptions::FeatureMap::rfa) return {Kind::plus_eps, options.eps.value_or(1e-6)};
  return {options.variant == LinearOptions::Variant::authors ? Kind::at_least_one : Kind::plain, 0.0};
}

}  // namespace

void LinearOptions::validate(const base::Where& where) const {
  const bool rfa = feature_map == FeatureMap::rfa;
  const char* found = feature_map == FeatureMap::elu ? "elu" : "t2r";
  where.require(feature_map != FeatureMap::elu || !num_features, "num_features",
                "not supported by feature_map \"elu\", which has as many features as a head is wide");
  where.require(!rfa || !eps, "eps", "not supported by feature_map \"rfa\"");
  where.require(rfa || !tau, "tau", "requires feature_map = \"rfa\", found \"{}\"", found);
  where.require(rfa || !seed, "seed", "requires feature_map = \"rfa\", found \"{}\"", found);
  where.require(rfa || redraw == Redraw::never, "redraw", "requires feature_map = \"rfa\", found \"{}\"", found);
  where.require(rfa || variant == Variant::paper, "variant", "\"authors\" requires feature_map = \"rfa\", found \"{}\"",
                found);
}

Linear::Linear(const Options& options, const core::AttentionBuild& build)
    : LinearInValues(build, options),
      options_(options),
      causal_(build.causal),
      num_features_(features_of(options, build.head_dim)),
      frequencies_(options.rotary ? options.rotary->frequencies(num_features_, "the number of features")
                                  : std::vector<double>()),
      layer_(build.layer_number),
      normaliser_(normaliser_of(options)) {
  base::require(causal_ || !options.gate,
                "linear: a gate requires a causal model; use gate = false in a bidirectional one");
  if (causal_) build.attn.reserve_state("s, z", {build.num_heads, num_features_, build.head_dim + 1});
  const layers::Scope feature = build.attn / "feature";
  if (options.feature_map == Options::FeatureMap::t2r) {
    weight_ = feature.add("weight", {build.num_heads, num_features_, build.head_dim},
                          layers::normal(1.0 / std::sqrt(static_cast<double>(build.head_dim))));
    feature_bias_ = feature.add("bias", {build.num_heads, num_features_}, layers::constant(0.0),
                                layers::ParameterKind::bias);
  } else if (options.feature_map == Options::FeatureMap::rfa) {
    sigma_ = feature.add("sigma", {build.num_heads, 1, build.head_dim}, layers::constant(1.0),
                         layers::ParameterKind::bias);
    random_ = random_of(core::kFixedDraw);
  }
  if (options.gate) {
    gate_weight_ = (build.attn / "gate").add("weight", {build.num_heads, build.dim}, layers::normal(build.init_std));
    gate_bias_ = (build.attn / "gate")
                     .add("bias", {build.num_heads}, layers::constant(0.0), layers::ParameterKind::bias);
  }
}

void Linear::set_draw(const at::Tensor& random) {
  base::require(random_.defined(), "linear: only feature_map = \"rfa\" has random projections");
  base::require(random.sizes() == random_.sizes(), "linear: expected random projections of {}, found {}",
                c10::str(random_.sizes()), c10::str(random.sizes()));
  random_ = random.detach();
}

core::State Linear::initial_state(int64_t batch) const {
  if (!causal_) return LinearState{};
  const auto like = maps_.q.weight.options().requires_grad(false);
  LinearState state{at::zeros({batch, maps_.num_heads, num_features_, maps_.head_dim}, like),
                    at::zeros({batch, maps_.num_heads, num_features_}, like)};
  if (redraws()) state.draw = at::full({batch}, core::kNotDrawn, like.dtype(at::kLong));
  return state;
}

at::Tensor Linear::random_of(int64_t draw) const {
  const std::vector<int64_t> shape = {maps_.num_heads, num_features_ / 2, maps_.head_dim};
  return ops::counter_normal(shape, {core::drawn_seed(options_.seed.value_or(0), draw), static_cast<uint64_t>(layer_)});
}

at::Tensor Linear::projection(const at::Tensor& draws) const {
  if (!sigma_.defined()) return {};
  at::Tensor random = random_;
  if (draws.defined() && draws.ne(core::kFixedDraw).any().item<bool>()) {
    std::vector<at::Tensor> rows;
    const at::Tensor numbers = draws.to(at::kCPU);
    for (int64_t b = 0; b < numbers.size(0); ++b) {
      const int64_t draw = numbers[b].item<int64_t>();
      rows.push_back(draw == core::kFixedDraw ? random_ : random_of(draw).to(random_.device()));
    }
    random = at::stack(rows);
  }
  return random.to(sigma_.options().requires_grad(false)) * sigma_ / options_.tau.value_or(1.0);
}

at::Tensor Linear::features(const at::Tensor& x, const at::Tensor& weight) const {
  if (weight_.defined()) return ops::t2r_features(x, weight_, feature_bias_);
  if (!sigma_.defined()) return ops::elu_features(x);
  const bool authors = options_.variant == Options::Variant::authors;
  return ops::random_features(x, weight, authors ? 0.1 : 1.0 / std::sqrt(static_cast<double>(random_.size(1))),
                              authors ? 1e-3 : 0.0);
}

void Linear::require_readable(int64_t head_dim, int64_t) const {
  using FeatureMap = Options::FeatureMap;
  base::require(options_.feature_map == FeatureMap::elu || head_dim == maps_.head_dim,
                "linear: features of \"{}\" were built for head width {}, found {}",
                options_.feature_map == FeatureMap::rfa ? "rfa" : "t2r", maps_.head_dim, head_dim);
  base::require(!redraws(), "linear: redraw applies to sequences; rows without one need redraw = \"never\"");
}

at::Tensor Linear::read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
  const at::Tensor weight = projection({});
  return ops::linear_attention_full(features(q, weight), features(k, weight), v, normaliser_);
}

core::CoreAttention::Heads Linear::run(const core::AttentionInput& input, const core::State& state,
                                       const ops::ReplaceValues& replace) const {
  const bool cross = input.table.is_cross();
  base::ensure(cross || !input.context.defined(), "linear: unsupported: rows of a layer context");
  base::require(!(cross && causal_), "linear: the causal form does not support cross-attention");
  base::require(causal_ || input.ends, "linear: a bidirectional model requires whole segments");
  const at::Tensor& rows = cross ? input.context : input.x;
  const auto [q, k, v] = maps_.heads(input.x, rows);
  const at::Tensor values = ops::replaced(replace, core::for_queries(v, maps_.num_heads));
  at::Tensor valid = plain_validity(input.table, causal_, "linear attention");
  if (valid.defined() && !cross) valid = valid.narrow(1, input.table.num_context(), rows.size(1));
  const auto& past = state.as<LinearState>();
  at::Tensor draw;
  if (causal_) core::require_draw("linear", past.draw, redraws(), rows.size(0));
  if (redraws()) draw = core::draws(past.draw, rows.size(0), input.mode);
  const at::Tensor weight = projection(draw);
  const at::Tensor reading = features(q, weight);
  at::Tensor written = features(core::for_queries(k, maps_.num_heads), weight);
  if (valid.defined()) written = written.masked_fill(valid.logical_not().unsqueeze(1).unsqueeze(-1), 0.0);
  const core::RowTurns turns(frequencies_, rows.size(1), valid);
  ops::TurnedFeatures turned;
  if (!frequencies_.empty()) turned = {turns.rows(reading), turns.rows(written)};
  if (!causal_) return {maps_.join(ops::linear_attention_full(reading, written, values, normaliser_, turned)), state};

  core::require_state("linear", past.s, {rows.size(0), maps_.num_heads, num_features_, maps_.head_dim});
  at::Tensor log_gate, share;
  if (options_.gate) {
    const at::Tensor logits = ops::linear(rows, gate_weight_, gate_bias_).transpose(1, 2);  // [B,H,T]
    log_gate = at::log_sigmoid(logits);
    share = at::sigmoid(-logits);
    if (valid.defined()) {
      const at::Tensor padding = valid.logical_not().unsqueeze(1);
      log_gate = log_gate.masked_fill(padding, 0.0);
      share = share.masked_fill(padding, 0.0);
    }
  }
  auto [o, sums] = ops::linear_attention_causal(reading, written, values, log_gate, share, {past.s, past.z},
                                                normaliser_, turned);
  if (!frequencies_.empty()) sums.s = turns.past(sums.s.transpose(2, 3)).transpose(2, 3).contiguous();
  return {maps_.join(o), LinearState{sums.s, sums.z, draw}, {}, own_rows(input, {q, k, v})};
}

core::AttentionView Linear::inspect(const core::AttentionInput& input, const core::State& state,
                                    const core::State& history) const {
  const LinearState& past = state.as<LinearState>();
  const core::State nothing = causal_ ? core::State(LinearState{at::zeros_like(past.s), past.z, past.draw}) : state;
  core::AttentionView view = LinearInValues::inspect(input, nothing, {});
  if (history.empty()) return view;
  // With values of one since the start of the sequence, the output is the total weight that reaches a query.
  const at::Tensor all = run(input, history, [](const at::Tensor& v) { return at::ones_like(v); }).heads;
  view.maps[0].past = all.unflatten(-1, {maps_.num_heads, -1}).select(-1, 0).transpose(1, 2) -
                      view.maps[0].weights.sum(3);
  return view;
}

core::State Linear::history(const core::AttentionInput& input, const core::State&, const core::State& history) const {
  if (!causal_) return {};
  return run(input, history.empty() ? initial_state(input.x.size(0)) : history,
             [](const at::Tensor& v) { return at::ones_like(v); })
      .state;
}

}  // namespace mnemo::attention
