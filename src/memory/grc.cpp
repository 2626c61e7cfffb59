#include "memory/grc.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <cmath>

#include "base/error.h"
#include "core/append_rows.h"
#include "memory/require_state.h"
#include "ops/attention.h"

namespace mnemo::memory {

void GrcOptions::validate(const base::Where& where) const {
  where.require(cache_ratio > 0.0, "cache_ratio", "expected more than 0, found {}", cache_ratio);
  where.require(position == "none" || grid.size() == 2, "grid", "position \"cpe\" needs grid = [height, width]");
  where.require(lifetime == "model" || variant == "paper", "lifetime",
                "the authors' variant has one cache for the model; expected \"model\"");
}

Grc::Grc(const Options& options, const core::AttentionBuild& build, std::unique_ptr<core::CoreAttention> inner)
    : options_(options),
      authors_(options.variant == "authors"),
      causal_(build.causal),
      channels_(static_cast<int64_t>(static_cast<double>(build.dim) * options.cache_ratio)),
      num_heads_(build.num_heads),
      inner_(std::move(inner)) {
  base::require(!(authors_ && causal_),
                "grc: variant \"authors\" lets every query read an update made from the whole segment, later tokens "
                "included, so it cannot stand in a causal model; use variant = \"paper\", whose causal form reads the "
                "cache as it was before the segment");
  base::require(causal_ || options.bptt_depth.value_or(0) == 0,
                "grc: in a model that is not causal every query reads its own segment's update, made of a cache without gradient: "
                "expected bptt_depth = 0, found {}", options.bptt_depth.value_or(0));
  base::require(channels_ >= build.num_heads && channels_ % build.num_heads == 0,
                "grc: expected int(dim * cache_ratio) to be a multiple of num_heads = {}, found {}", build.num_heads,
                channels_);
  base::require(build.num_heads * build.head_dim == build.dim || !authors_,
                "grc: variant \"authors\" mixes channels of the output: expected num_heads * head_dim = dim = {}, found {}",
                build.dim, build.num_heads * build.head_dim);
  base::require(channels_ / build.num_heads <= build.head_dim,
                "grc: expected cached channels a head ({}) to be at most head_dim = {}", channels_ / build.num_heads,
                build.head_dim);
  if (options.mem_attention == "same") {
    reader_ = dynamic_cast<const core::ReadsHeads*>(inner_.get());
    base::require(reader_ != nullptr,
                  "grc: mem_attention = \"same\" needs an attention that can read rows without places and projections of its own (softmax, linear, "
                  "linformer); use mem_attention = \"softmax\"");
    reader_->require_readable(channels_ / build.num_heads, options.cache_len);
  }
  const layers::Scope scope = build.attn / "grc";
  scope.reserve_state("cache", {options.cache_len, channels_});
  const double std = build.init_std;
  q_ = layers::Linear(scope / "q", channels_, channels_, options.qkv_bias, std);
  k_ = layers::Linear(scope / "k", channels_, channels_, options.qkv_bias, std);
  v_ = layers::Linear(scope / "v", channels_, channels_, options.qkv_bias, std);
  if (authors_) o_ = layers::Linear(scope / "o", channels_, channels_, true, std);
  const layers::Linear reset(scope / "reset_gate", 2 * channels_, channels_, true, std);
  const layers::Linear update(scope / "update_gate", 2 * channels_, channels_, true, std);
  const layers::Linear candidate(scope / "candidate", 2 * channels_, channels_, true, std);
  gates_ = {reset.weight, reset.bias, update.weight, update.bias, candidate.weight, candidate.bias, {}, {}};
  if (authors_) {
    const layers::LayerNorm norm(scope / "candidate_norm", channels_, 1e-5);
    gates_.norm_weight = norm.weight;
    gates_.norm_bias = norm.bias;
  }
  lambda_ = scope.add("lambda", {num_heads_}, layers::constant(authors_ ? -1.0 : 0.0), layers::ParameterKind::bias);
  if (options.position == "cpe") {
    base::require(build.dim % channels_ == 0, "grc: position \"cpe\" needs dim = {} to be a multiple of the {} cached channels",
                  build.dim, channels_);
    cpe_weight_ = (scope / "cpe").add("weight", {build.dim, build.dim / channels_, 3, 3}, layers::normal(std));
    cpe_bias_ = (scope / "cpe").add("bias", {build.dim}, layers::constant(0.0), layers::ParameterKind::bias);
  }
}

core::State Grc::initial_state(int64_t batch) const {
  const bool per_sequence = options_.lifetime == "sequence";
  GrcState state;
  state.cache = at::zeros({per_sequence ? batch : 1, options_.cache_len, channels_}, lambda_.options().requires_grad(false));
  state.per_sequence = per_sequence;
  return core::State::list({{"grc", state}, {"core", inner_->initial_state(batch)}});
}

core::AttentionSupport Grc::support() const {
  core::AttentionSupport support = inner_->support();
  support.keeps_state = true;
  return support;
}

int64_t Grc::bptt_depth() const {
  const int64_t inner = core_bptt_depth();
  return inner < 0 ? inner : std::max(cache_bptt_depth(), inner);
}

at::Tensor Grc::split(const at::Tensor& rows) const { return rows.unflatten(-1, {num_heads_, -1}).transpose(1, 2); }

Grc::Source Grc::source(const at::Tensor& rows, const core::AttendTable& table) const {
  Source source{rows.narrow(-1, 0, channels_), {}};
  const at::Tensor& valid = table.valid();
  if (valid.defined()) source.valid = valid.narrow(1, table.num_context(), rows.size(1));
  return source;
}

at::Tensor Grc::read(const at::Tensor& x, const at::Tensor& cache, const ops::ReplaceValues& replace) const {
  RECORD_USER_SCOPE("grc");
  const at::Tensor query = split(q_(x.narrow(-1, 0, channels_)));
  // One cache for all sequences: its keys and values are projected once.
  const at::Tensor k = split(k_(cache)).expand({x.size(0), -1, -1, -1});
  const at::Tensor v = ops::replaced(replace, split(v_(cache)).expand({x.size(0), -1, -1, -1}));
  if (reader_ != nullptr) return layers::AttentionProjections::join(reader_->read(query, k, v));
  const double scale = 1.0 / std::sqrt(static_cast<double>(channels_ / num_heads_));
  return layers::AttentionProjections::join(
      ops::attention(query, k, v, {}, ops::KeyRanges::all(x.size(1), options_.cache_len), scale));
}

at::Tensor Grc::update(const at::Tensor& cache, const Source& source) const {
  RECORD_USER_SCOPE("grc");
  const at::Tensor input = ops::resample_nearest(source.rows, options_.cache_len, source.valid);
  const at::Tensor old = cache.expand({input.size(0), -1, -1});
  const at::Tensor updated = ops::grc_step(old, input, gates_, authors_);
  if (!source.valid.defined()) return updated;
  return at::where(source.valid.any(1).unsqueeze(-1).unsqueeze(-1), updated, old);
}

at::Tensor Grc::convolve(const at::Tensor& x) const {
  const int64_t height = options_.grid[0], width = options_.grid[1], batch = x.size(0), dim = x.size(2);
  if (x.size(1) != options_.cls_tokens + height * width) {
    throw base::ShapeError(fmt::format("[grc] expected {} + {}x{} rows for the position convolution, found {}",
                                       options_.cls_tokens, height, width, x.size(1)));
  }
  const at::Tensor image = x.narrow(1, options_.cls_tokens, height * width).transpose(1, 2).reshape({batch, dim, height, width});
  const at::Tensor out = at::conv2d(image, cpe_weight_, cpe_bias_, {1, 1}, {1, 1}, {1, 1}, channels_);
  return at::constant_pad_nd(out.flatten(2).transpose(1, 2), {0, 0, options_.cls_tokens, 0});
}

GrcState Grc::next_state(const GrcState& old, const at::Tensor& updated, const Source& source, core::Mode mode) const {
  GrcState next;
  next.per_sequence = old.per_sequence;
  if (old.per_sequence) {
    next.cache = updated;
  } else if (mode != core::Mode::train) {
    next.cache = old.cache;
    return next;
  } else if (source.valid.defined()) {
    const at::Tensor counts = source.valid.any(1).to(updated.scalar_type()).view({-1, 1, 1});
    const at::Tensor total = counts.sum();
    const at::Tensor mean = (updated * counts).sum(0, true) / total.clamp_min(1.0);
    next.cache = at::where(total > 0, mean, old.cache);
  } else {
    next.cache = updated.mean(0, true);
  }
  if (!cache_keeps_graph()) next.cache = next.cache.detach();
  return next;
}

core::AttentionResult Grc::forward(const core::AttentionInput& input, const core::State& state) const {
  const core::State grc = state.child("grc");
  const GrcState& old = grc.as<GrcState>();
  const bool per_sequence = options_.lifetime == "sequence";
  require_state("grc", old.cache, {per_sequence ? input.x.size(0) : 1, options_.cache_len, channels_});
  base::require(old.per_sequence == per_sequence, "[grc] expected a state of lifetime \"{}\", found one of the other", options_.lifetime);
  const at::Tensor frozen = old.cache.detach();

  core::State inner_state;
  at::Tensor self, slots;
  if (authors_) {
    auto inner = inner_->forward(input, state.child("core"));
    self = inner.y;
    slots = inner.slots;
    inner_state = std::move(inner.state);
  } else {
    auto inner = inner_->heads(input, state.child("core"));
    self = inner.heads;
    slots = inner.slots;
    inner_state = std::move(inner.state);
  }

  // What the update is made of: this call's rows, behind those of the segment's earlier parts.
  Source source = this->source(authors_ ? self : input.x, input.table);
  const bool moves = old.per_sequence || input.mode == core::Mode::train;
  const bool needs_rows = moves || !causal_;
  if (needs_rows && (old.rows.defined() || !input.ends)) {
    const at::Tensor real = source.valid.defined()
                                ? source.valid
                                : at::ones({input.x.size(0), input.x.size(1)}, input.x.options().dtype(at::kBool));
    source.rows = old.rows.defined() ? core::append_rows(old.rows, source.rows, 1) : source.rows;
    source.valid = old.valid.defined() ? core::append_rows(old.valid, real, 1) : real;
  }
  base::ensure(causal_ || input.ends, "a GRC that is not causal needs its whole segment at once");

  at::Tensor updated;
  GrcState next;
  if (input.ends) {
    if (needs_rows) updated = update(frozen, source);
    next = next_state(old, updated, source, input.mode);
  } else {
    next = old;
    if (needs_rows) {
      next.rows = source.rows;
      next.valid = source.valid;
    }
  }

  at::Tensor memory = read(input.x, !causal_ ? updated : cache_keeps_graph() ? old.cache : frozen);
  if (authors_) memory = o_(memory);
  at::Tensor y = ops::grc_mix(memory, self, lambda_);
  if (!authors_) y = inner_->project(y);
  if (cpe_weight_.defined()) y = y + convolve(input.x);
  return {y, core::State::list({{"grc", next}, {"core", inner_state}}), slots};
}

core::AttentionView Grc::look(const core::AttentionInput& input, const core::State& state, const core::State& history) const {
  const auto* inner = dynamic_cast<const core::Inspectable*>(inner_.get());
  core::AttentionView view = inner == nullptr ? core::AttentionView{} : inner->look(input, state.child("core"), history);
  const core::State grc = state.child("grc");
  const at::Tensor& cache = grc.as<GrcState>().cache;
  const Source made_of = source(authors_ ? inner_->forward(input, state.child("core")).y : input.x, input.table);
  const at::Tensor rows = ops::resample_nearest(made_of.rows, options_.cache_len, made_of.valid);
  const ops::GrcGateValues gates = ops::grc_gate_values(cache.expand({rows.size(0), -1, -1}), rows, gates_, authors_);
  view.gates.push_back({"reset", gates.reset});
  view.gates.push_back({"update", gates.update});
  const at::Tensor kept = causal_ ? cache : update(cache, made_of);
  view.maps.push_back({"grc_cache", core::MapAxis::queries, core::MapAxis::cache, ops::weights_by_unit_values([&](const ops::ReplaceValues& replace) {
                         return split(read(input.x, kept, replace));
                       })});
  return view;
}

core::State Grc::remember(const core::AttentionInput& input, const core::State& state, const core::State& history) const {
  const auto* inner = dynamic_cast<const core::Inspectable*>(inner_.get());
  return inner == nullptr ? core::State() : inner->remember(input, state.child("core"), history);
}

std::vector<core::Gauge> Grc::gauges() const {
  const at::Tensor share = at::sigmoid(lambda_.detach()).to(at::kCPU, at::kDouble).contiguous();
  return {{"sigma_lambda", {share.const_data_ptr<double>(), share.const_data_ptr<double>() + share.numel()}}};
}

}  // namespace mnemo::memory
