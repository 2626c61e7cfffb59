#include "memory/grc.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "core/append_rows.h"
#include "core/require_state.h"
#include "memory/resample_cells.h"

namespace mnemo::memory {

void GrcOptions::validate(const base::Where& where) const {
  where.require(cache_ratio > 0.0, "cache_ratio", "expected more than 0, found {}", cache_ratio);
  where.require(grid.empty() || grid.size() == 2, "grid", "expected [height, width], found {} numbers", grid.size());
  where.require(cache_grid.empty() || cache_grid.size() == 2, "cache_grid",
                "expected [height, width], found {} numbers", cache_grid.size());
  where.require(lifetime == GrcOptions::Lifetime::model || variant == GrcOptions::Variant::paper, "lifetime",
                "the authors' variant has one cache for the model; expected \"model\"");
  where.require(lifetime == GrcOptions::Lifetime::model ||
                    (attend != GrcOptions::Attend::batch_mean && eval_read != GrcOptions::EvalRead::stored),
                "lifetime", "attend and eval_read require one cache for the model; expected \"model\"");
  const base::Depth depth = bptt_depth.value_or(base::Depth{});
  where.require(depth.full || depth.value >= 0, "bptt_depth", "expected 0 or more, or \"full\", found {}", depth.value);
  where.require(lifetime == GrcOptions::Lifetime::sequence || !(depth.full || depth.value > 1), "bptt_depth",
                "one cache for the model is the mean of a batch, whose sequences change from step to step; expected 0 "
                "or 1, or lifetime = \"sequence\", found {}",
                depth.full ? "\"full\"" : std::to_string(depth.value));
  const GrcOptions plain;
  where.require(position != GrcOptions::Position::cpe_alone ||
                    (variant == plain.variant && !cache_len && lifetime == plain.lifetime && !bptt_depth &&
                     mem_attention == plain.mem_attention && attend != GrcOptions::Attend::batch_mean &&
                     eval_read != GrcOptions::EvalRead::stored && !sees_segment && resample == plain.resample &&
                     cache_grid.empty() && grid.empty() && cls_tokens == plain.cls_tokens && !qkv_bias &&
                     gate_bias.value_or(true) && widen == plain.widen),
                "position",
                "\"cpe_alone\" has no cache; of the other options expected only cache_ratio, which sets the groups of "
                "the convolution");
}

GrcOptions GrcOptions::completed(bool reads_update) const {
  const bool printed = variant == Variant::paper && lifetime == Lifetime::model && reads_update;
  GrcOptions all = *this;
  all.attend = attend.value_or(printed ? Attend::batch_mean : Attend::sample);
  all.eval_read = eval_read.value_or(printed ? EvalRead::stored : EvalRead::updated);
  all.gate_bias = gate_bias.value_or(variant == Variant::authors);
  return all;
}

int64_t Grc::cache_bptt_depth() const {
  if (!options_.bptt_depth) return reads_before_ ? 1 : 0;
  return options_.bptt_depth->full ? -1 : options_.bptt_depth->value;
}

void GrcOptions::check(const core::ModelOutline& model, const base::Where& where) const {
  const bool images = model.input == core::InputKind::images;
  where.require(!images || lifetime != GrcOptions::Lifetime::sequence, "memory",
                "images are not a sequence; 'grc' expected lifetime = \"model\"");
  where.require(images || position != GrcOptions::Position::cpe_alone, "memory",
                "position = \"cpe_alone\" is a control for models of images; found a model of texts");
  where.require(!model.causal || position != GrcOptions::Position::cpe, "memory",
                "grc with position = \"cpe\" in a causal model leaks the future: the convolution reads the rows to the "
                "right and below; expected position = \"none\"");
  where.require(!model.causal || variant != GrcOptions::Variant::authors, "memory",
                "grc with variant = \"authors\" in a causal model leaks the future: every query reads an update made "
                "from the whole segment; use variant = \"paper\", whose causal form reads the cache as it was before "
                "the segment");
}

void Grc::require_sense(const core::AttentionBuild& build, const core::ImageLayout& image) const {
  const Options& options = options_;
  base::require(!(authors_ && causal_),
                "grc: variant \"authors\" lets every query read an update made from the whole segment, later tokens "
                "included, so it is not causal; use variant = \"paper\", whose causal form reads the "
                "cache as it was before the segment");
  base::require(!causal_ || options.position == GrcOptions::Position::none,
                "grc: position \"cpe\" reads the rows to the right and below, so it is not causal; expected \"none\"");
  base::require(
      causal_ || !options.sees_segment,
      "grc: sees_segment is for causal models; in a bidirectional one every query reads its segment's update");
  base::require(reads_before_ || cache_bptt_depth() == 0,
                "grc: in a bidirectional model, and with sees_segment, every query reads its own segment's update, "
                "made from a cache "
                "without gradient: expected bptt_depth = 0, found {}",
                cache_bptt_depth() < 0 ? "\"full\"" : std::to_string(cache_bptt_depth()));
  base::require(
      !reads_before_ ||
          (options.attend == GrcOptions::Attend::sample && options.eval_read == GrcOptions::EvalRead::updated),
      "grc: in a causal model every query reads the cache as it was before the segment, so attend and "
      "eval_read have no effect; expected neither (or sees_segment = true, for analysis), found attend = \"{}\", "
      "eval_read = \"{}\"",
      options.attend == GrcOptions::Attend::sample ? "sample" : "batch_mean",
      options.eval_read == GrcOptions::EvalRead::updated ? "updated" : "stored");
  base::require(!image.given() || options.lifetime == GrcOptions::Lifetime::model,
                "grc: images are not a sequence, so a cache per sequence has nothing to carry; expected "
                "lifetime = \"model\", found \"sequence\"");
  base::require(options.position == GrcOptions::Position::none || image.given() || options.grid.size() == 2,
                "grc: position \"cpe\" needs grid = [height, width]");
  base::require(!image.given() || options.grid.empty() ||
                    (options.grid[0] == image.grid.height && options.grid[1] == image.grid.width),
                "grc: the backbone determines the grid: expected grid = [{}, {}] or none, found [{}, {}]",
                image.grid.height, image.grid.width, options.grid.empty() ? 0 : options.grid[0],
                options.grid.empty() ? 0 : options.grid[1]);
  base::require(!image.given() || options.cls_tokens == 0 || options.cls_tokens == image.class_tokens,
                "grc: the backbone determines the class tokens: expected cls_tokens = {} or none, found {}",
                image.class_tokens, options.cls_tokens);
  base::require(options.resample == GrcOptions::Resample::rows || (image.given() && !image.windows), "{}",
                "grc: resample = \"grid\" needs the rows of a whole image; expected \"rows\"");
  base::require(channels_ >= build.num_heads && channels_ % build.num_heads == 0,
                "grc: expected int(dim * cache_ratio) to be a multiple of num_heads = {}, found {}", build.num_heads,
                channels_);
  base::require(
      build.num_heads * build.head_dim == build.dim || !authors_,
      "grc: variant \"authors\" mixes channels of the output: expected num_heads * head_dim = dim = {}, found {}",
      build.dim, build.num_heads * build.head_dim);
  base::require(channels_ / build.num_heads <= build.head_dim,
                "grc: expected cached channels a head ({}) to be at most head_dim = {}", channels_ / build.num_heads,
                build.head_dim);
}

Grc::Grc(const Options& options, const core::AttentionBuild& build, std::unique_ptr<core::CoreAttention> inner,
         const core::ImageLayout& image)
    : WrappedAttention(std::move(inner), "grc"),
      options_(options.completed(!build.causal || options.sees_segment)),
      authors_(options.variant == GrcOptions::Variant::authors),
      causal_(build.causal),
      reads_before_(build.causal && !options.sees_segment),
      dim_(build.dim),
      head_dim_(build.head_dim),
      channels_(options.channels(build.dim)),
      cache_len_(options.length(image)),
      num_heads_(build.num_heads) {
  require_sense(build, image);
  if (options.resample == GrcOptions::Resample::grid) {
    cache_grid_ = image.grid;
    if (!options.cache_grid.empty()) cache_grid_ = {options.cache_grid[0], options.cache_grid[1]};
    base::require(cache_grid_.size() + image.class_tokens == cache_len_,
                  "grc: resample = \"grid\": expected cache_len = {}, a row for each class token and each cell of the "
                  "cache's grid of {}x{}, found {}",
                  cache_grid_.size() + image.class_tokens, cache_grid_.height, cache_grid_.width, cache_len_);
  }
  const core::ReadsHeads* same = nullptr;
  if (options.mem_attention == GrcOptions::Reader::same) {
    same = reads_heads();
    base::require(
        same != nullptr,
        "grc: mem_attention = \"same\" needs an attention that can read rows without positions and projections "
        "of its own (softmax, linear, linformer); use mem_attention = \"softmax\"");
    same->require_readable(channels_ / build.num_heads, cache_len_);
  }
  const layers::Scope scope = build.attn / "grc";
  scope.reserve_state("cache", {cache_len_, channels_});
  const double std = build.init_std;
  reader_ = GrcReader(options, build, image, channels_, scope, same);
  const layers::Linear reset(scope / "reset_gate", 2 * channels_, channels_, *options_.gate_bias, std);
  const layers::Linear update(scope / "update_gate", 2 * channels_, channels_, *options_.gate_bias, std);
  const layers::Linear candidate(scope / "candidate", 2 * channels_, channels_, *options_.gate_bias, std);
  gates_ = {reset.weight, reset.bias, update.weight, update.bias, candidate.weight, candidate.bias, {}, {}};
  if (authors_) {
    const layers::LayerNorm norm(scope / "candidate_norm", channels_, 1e-5);
    gates_.norm_weight = norm.weight;
    gates_.norm_bias = norm.bias;
  }
  lambda_ = scope.add("lambda", {num_heads_}, layers::constant(authors_ ? -1.0 : 0.0), layers::ParameterKind::bias);
  if (options.position == GrcOptions::Position::cpe) position_ = GrcPosition(scope / "cpe", build.dim, channels_, std);
}

core::State Grc::initial_state(int64_t batch) const {
  const bool per_sequence = options_.lifetime == GrcOptions::Lifetime::sequence;
  GrcState state;
  state.cache = at::zeros({per_sequence ? batch : 1, cache_len_, channels_}, lambda_.options().requires_grad(false));
  state.per_sequence = per_sequence;
  return joined(state, inner().initial_state(batch));
}

core::AttentionSupport Grc::support() const {
  core::AttentionSupport support = WrappedAttention::support();
  support.keeps_state = true;
  support.moves_at_ends = support.moves_at_ends || options_.lifetime == GrcOptions::Lifetime::sequence;
  support.sees_ahead = support.sees_ahead || (causal_ && reads_update(core::Mode::evaluate));
  return support;
}

core::Grid Grc::grid_of(const core::AttentionInput& input) const {
  if (input.image != nullptr || options_.grid.empty()) return input.grid();
  return {options_.grid[0], options_.grid[1]};
}

bool Grc::reads_update(core::Mode mode) const {
  return !reads_before_ && (mode == core::Mode::train || options_.eval_read == GrcOptions::EvalRead::updated);
}

bool Grc::updates(const GrcState& old, core::Mode mode) const {
  return old.per_sequence || mode == core::Mode::train || reads_update(mode);
}

Grc::Source Grc::source(const at::Tensor& rows, const core::AttentionInput& input) const {
  Source source{rows.size(-1) == channels_ ? rows : rows.narrow(-1, 0, channels_), {}, input.grid()};
  const at::Tensor& valid = input.table.valid();
  if (valid.defined()) source.valid = valid.narrow(1, input.table.num_context(), rows.size(1));
  return source;
}

at::Tensor Grc::resampled(const Source& source) const {
  if (cache_grid_.size() == 0) return ops::resample_nearest(source.rows, cache_len_, source.valid);
  const int64_t cells = source.grid.size(), front = source.rows.size(1) - cells;
  base::require(cells > 0 && front + cache_grid_.size() == cache_len_,
                "[grc] expected {} class tokens and the rows of an image, found {} rows and a grid of {}x{}",
                cache_len_ - cache_grid_.size(), source.rows.size(1), source.grid.height, source.grid.width);
  const at::Tensor valid = source.valid.defined() ? source.valid.narrow(1, front, cells) : source.valid;
  const at::Tensor image = resample_cells(source.rows.narrow(1, front, cells),
                                          core::RealCells::from_mask(valid, source.grid), cache_grid_);
  return front == 0 ? image : at::cat({source.rows.narrow(1, 0, front), image}, 1);
}

at::Tensor Grc::read(const at::Tensor& x, const at::Tensor& cache, core::Grid grid) const {
  RECORD_USER_SCOPE("grc");
  return reader_.project(reader_.heads(x, cache, grid));
}

at::Tensor Grc::update(const at::Tensor& cache, const Source& source) const {
  RECORD_USER_SCOPE("grc");
  const at::Tensor updated = ops::grc_step(cache, resampled(source), gates_, authors_);
  if (!source.valid.defined()) return updated;
  return at::where(source.valid.any(1).unsqueeze(-1).unsqueeze(-1), updated, cache);
}

at::Tensor Grc::mean(const at::Tensor& updated, const Source& source, const at::Tensor& old) const {
  if (!source.valid.defined()) return updated.mean(0, true);
  const at::Tensor counts = source.valid.any(1).to(updated.scalar_type()).view({-1, 1, 1});
  const at::Tensor total = counts.sum();
  return at::where(total > 0, (updated * counts).sum(0, true) / total.clamp_min(1.0), old);
}

at::Tensor Grc::attended(const at::Tensor& updated, const Source& source, const at::Tensor& old) const {
  return options_.attend == GrcOptions::Attend::batch_mean ? mean(updated, source, old) : updated;
}

core::CoreAttention::Heads Grc::self(const core::AttentionInput& input, const core::State& state) const {
  if (!authors_) return inner().heads(input, state);
  core::AttentionResult whole = inner().forward(input, state);
  return {whole.y, std::move(whole.state), std::move(whole.to_above)};
}

core::AttentionResult Grc::forward(const core::AttentionInput& input, const core::State& state) const {
  const core::State grc = own_state(state);
  const GrcState& old = grc.as<GrcState>();
  const bool per_sequence = options_.lifetime == GrcOptions::Lifetime::sequence;
  core::require_state("grc", old.cache, {per_sequence ? input.x.size(0) : 1, cache_len_, channels_});
  base::require(old.per_sequence == per_sequence, "[grc] expected a state of lifetime \"{}\", found the other one",
                per_sequence ? "sequence" : "model");
  const at::Tensor frozen = old.cache.detach();
  const core::CoreAttention::Heads self = this->self(input, inner_state(state));
  // The cached channels, the input of the queries and, in the paper's variant, of the update: sliced once if both are
  // needed.
  const at::Tensor cached = input.x.narrow(-1, 0, channels_),
                   x = updates(old, input.mode) ? cached.contiguous() : cached;

  // The input of the update: this call's rows, after those of the segment's earlier parts.
  Source source = this->source(authors_ ? self.heads : x, input);
  const bool needs_rows = updates(old, input.mode), moves = old.per_sequence || input.mode == core::Mode::train;
  if (needs_rows && (old.rows.defined() || !input.ends)) {
    const at::Tensor real = source.valid.defined()
                                ? source.valid
                                : at::ones({input.x.size(0), input.x.size(1)}, input.x.options().dtype(at::kBool));
    source.rows = old.rows.defined() ? core::append_rows(old.rows, source.rows, 1) : source.rows;
    source.valid = old.valid.defined() ? core::append_rows(old.valid, real, 1) : real;
  }
  base::ensure(causal_ || input.ends, "grc: a bidirectional model requires whole segments");
  base::require(
      !reads_update(input.mode) || input.ends,
      "grc: sees_segment is for analysis: its queries read a cache that knows the whole segment, so a segment "
      "cannot be read in parts, and the model cannot write text");

  at::Tensor read = cache_keeps_graph() ? old.cache : frozen;
  GrcState next;
  next.per_sequence = per_sequence;
  next.cache = old.cache;
  if (input.ends && needs_rows) {
    const at::Tensor updated = update(gates_keep_graph() ? old.cache : frozen, source);
    if (reads_update(input.mode)) read = attended(updated, source, frozen);
    if (moves)
      next.cache = per_sequence                                        ? updated
                   : options_.attend == GrcOptions::Attend::batch_mean ? read
                                                                       : mean(updated, source, old.cache);
    if (moves && !cache_keeps_graph()) next.cache = next.cache.detach();
  } else if (!input.ends) {
    next = old;
    if (needs_rows) {
      next.rows = source.rows;
      next.valid = source.valid;
    }
  }

  at::Tensor y = ops::grc_mix(this->read(x, read, input.grid()), self.heads, lambda_);
  if (!authors_) y = inner().project(y);
  if (position_.defined())
    y = y + position_(real_rows(input), grid_of(input), input.grid().size() > 0 ? -1 : options_.cls_tokens);
  return {y, joined(next, self.state), self.to_above};
}

core::AttentionView Grc::inspect(const core::AttentionInput& input, const core::State& state,
                                 const core::State& history) const {
  core::AttentionView view = WrappedAttention::inspect(input, state, history);
  const core::State grc = own_state(state);
  const GrcState& old = grc.as<GrcState>();
  const Source made_of = source(authors_ ? inner().forward(input, inner_state(state)).y : input.x, input);
  const at::Tensor rows = resampled(made_of);
  const ops::GrcGateValues gates = ops::grc_gate_values(old.cache.expand({rows.size(0), -1, -1}), rows, gates_,
                                                        authors_);
  view.gates.push_back({"reset", gates.reset});
  view.gates.push_back({"update", gates.update});
  const at::Tensor kept = reads_update(input.mode) ? attended(update(old.cache, made_of), made_of, old.cache)
                                                   : old.cache;
  view.maps.push_back({"grc_cache", core::MapAxis::queries, core::MapAxis::cache,
                       ops::weights_from_outputs([&](const ops::ReplaceValues& replace) {
                         return reader_.heads(input.x.narrow(-1, 0, channels_), kept, input.grid(), replace);
                       })});
  return view;
}

std::vector<core::BranchRows> Grc::branches(const core::AttentionInput& input, const core::State& state) const {
  const core::State grc = own_state(state);
  const GrcState& old = grc.as<GrcState>();
  const at::Tensor self = this->self(input, inner_state(state)).heads;
  at::Tensor read = old.cache;
  if (reads_update(input.mode)) {
    const Source made_of = source(authors_ ? self : input.x, input);
    read = attended(update(old.cache, made_of), made_of, old.cache);
  }
  std::vector<core::BranchRows> all = WrappedAttention::branches(input, state);
  const at::Tensor share = at::sigmoid(lambda_.detach()).flatten();
  all.push_back({"o_self", self, 1 - share});
  all.push_back({"o_mem", this->read(input.x.narrow(-1, 0, channels_), read, input.grid()), share});
  return all;
}

std::vector<core::Scalar> Grc::scalars() const {
  const at::Tensor share = at::sigmoid(lambda_.detach()).to(at::kCPU, at::kDouble).contiguous();
  std::vector<core::Scalar> all = WrappedAttention::scalars();
  all.push_back({"sigma_lambda", {share.const_data_ptr<double>(), share.const_data_ptr<double>() + share.numel()}});
  return all;
}

}  // namespace mnemo::memory
