#include "models/pair_model.h"

#include <torch/types.h>

#include "backbones/decoder.h"
#include "base/error.h"
#include "models/make_attention.h"
#include "models/pair_limits.h"

namespace mnemo::models {
namespace {

/// The state of a translation model, from that of its decoder and its source side.
core::State with_source(const core::State& decoder, core::State source) {
  return core::State::list(
      {{"layers", decoder.child("layers")}, {"open", decoder.child("open")}, {"source", std::move(source)}});
}

}  // namespace

PairModel::PairModel(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget,
                     at::Device device)
    : Model(options, pair_input_of(options), seed, dtype, budget, device),
      embedding_(make_embedding()),
      source_(make_source()),
      target_(options_, parameters_, make_target()) {}

TokenEmbeddings PairModel::make_embedding() {
  base::require(is_whole(),
                "model: backbone.type = \"{}\" reads tokens: expected kind = "
                "\"model\"",
                options_.backbone.type);
  const bool shared = options_.embedding.shared == EmbeddingOptions::Shared::all;
  return TokenEmbeddings::make(options_.embedding, parameters_.root() / (shared ? "embed" : "decoder_embed"),
                               options_.backbone.pairs().dim, options_.backbone.weight_std());
}

SourceSide PairModel::make_source() {
  const bool shared = options_.embedding.shared == EmbeddingOptions::Shared::all;
  return {options_, parameters_.root(), shared ? embedding_.plain : std::nullopt};
}

TokenSide::Parts PairModel::make_target() {
  const PairDecoderOptions& decoder = options_.backbone.pairs().decoder;
  const auto maker = [](const base::TypedOptions& attention) {
    return [&attention](const core::AttentionBuild& build) { return make_attention(attention, {}, build); };
  };
  TokenSide::Parts parts{.embedding = embedding_, .attention = decoder.attention};
  parts.backbone = std::make_unique<backbones::Decoder>(options_.backbone.pairs().decoder_stack(),
                                                        parameters_.root() / "backbone" / "decoder",
                                                        maker(decoder.attention), maker(decoder.cross_attention));
  with_location(decoder.cross_attention, [&] {
    base::require(parts.backbone->cross_attention(0)->support().cross,
                  "'{}' reads only its own rows and cannot attend to an encoder's output",
                  decoder.cross_attention.type());
  });
  return parts;
}

core::State PairModel::initial_state(int64_t batch) const {
  return committed_.apply(begin_target(batch, source_.initial_state(batch)));
}

core::State PairModel::begin_target(int64_t batch, core::State source) const {
  return with_source(target_.initial_state(batch), std::move(source));
}

int64_t PairModel::bptt_depth(const std::string& path) const {
  constexpr std::string_view kSource = "source.";
  if (path.starts_with(kSource)) return source_.bptt_depth(std::string_view(path).substr(kSource.size())).value_or(0);
  return target_.bptt_depth(path);
}

core::StepResult PairModel::run(const core::Segment& segment, const core::State& state,
                                const core::AttentionObserver& observe, const core::HiddenObserver& hidden) const {
  require_given(segment.tokens.defined() || segment.rows.defined(), "tokens [B,T]", segment);
  require_alone(!segment.pixels.defined(), "a source and tokens", "pixels");
  const int64_t batch = segment.tokens.size(0);
  core::State begun = state;
  std::vector<at::Tensor> losses;
  if (segment.source.defined()) {
    base::require(segment.source.dim() == 2 && segment.source.size(0) == batch,
                  "[model] expected a source [B,S] with B = {}, found {}", batch, c10::str(segment.source.sizes()));
    core::Segment source;
    source.tokens = segment.source, source.valid = segment.source_valid, source.mode = segment.mode;
    source.recompute_layers = segment.recompute_layers;
    SourceSide::Encoded encoded = source_.encode(std::move(source), state.child("source"), hidden);
    begun = begin_target(batch, std::move(encoded.state));
    losses = std::move(encoded.losses);
  }
  core::State source = begun.child("source");
  base::require(SourceSide::output(source).rows.defined(), "{}",
                "[model] expected a source, or a state with an encoder's output, found neither");
  core::StepResult step = target_.forward(segment, begun, SourceSide::output(source), observe, hidden);
  step.state = with_source(step.state, std::move(source));
  step.context_losses = std::move(losses);
  return step;
}

core::State PairModel::read_source(const at::Tensor& source, const at::Tensor& valid, core::Mode mode,
                                   const core::State& before, const core::HiddenObserver& hidden) const {
  core::Segment segment;
  segment.tokens = source, segment.valid = valid, segment.mode = mode;
  return begin_target(source.size(0), source_.encode(std::move(segment), before.child("source"), hidden).state);
}

core::State PairModel::carried(const core::State& state) const {
  return state.map([](const core::Field& field, const at::Tensor& tensor) {
    return field.path.starts_with("source.encoded.") ? at::Tensor() : tensor;
  });
}

}  // namespace mnemo::models
