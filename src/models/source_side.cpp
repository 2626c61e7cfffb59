#include "models/source_side.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <algorithm>

#include "base/error.h"
#include "models/make_attention.h"
#include "models/registry.h"

namespace mnemo::models {

SourceSide::SourceSide(const ModelOptions& options, const layers::Scope& root,
                       const std::optional<layers::TokenEmbedding>& embedding) {
  const EncoderDecoderOptions& backbone = options.backbone.pairs;
  const EmbeddingOptions& table = options.embedding;
  const int64_t words = table.source_vocab_size.value_or(table.vocab_size);
  if (embedding) {
    embedding_ = *embedding;
  } else {
    embedding_ = layers::TokenEmbedding(root / "encoder_embed", words, backbone.dim, table.scale,
                                        table.init_std.value_or(backbone.init_std));
    embedding_.padding = table.padding_token.value_or(-1);
  }
  const std::vector<base::Node>& memories = backbone.encoder.memory;
  const auto attention = [&](const core::AttentionBuild& build) {
    return make_attention(backbone.encoder.attention, memories, build);
  };
  const layers::Scope scope = root / "backbone" / "encoder";
  encoder_ = std::make_unique<backbones::LayerStack>(backbone.encoder_stack(), scope, false, attention);
  core::MemoryBuild build{scope / "memory", encoder_->num_layers(), {}, encoder_->dim(), embedding_.weight};
  build.backbone = encoder_.get();
  build.vocab_size = words;
  build.embed = [own = embedding_](const at::Tensor& tokens) { return own(tokens); };
  memories_.emplace(memories, build, false);
  with_location(backbone.encoder.attention,
                [&] { memories_->require_support(*encoder_, type_of(backbone.encoder.attention)); });
}

core::State SourceSide::initial_state(int64_t batch) const {
  return core::State::list(
      {{"encoded", EncodedState{}}, {"encoder", memories_->initial_state(batch, encoder_->initial_state(batch))}});
}

core::State SourceSide::encode(const at::Tensor& source, const at::Tensor& valid, core::Mode mode,
                               const core::State& state, const core::HiddenObserver& hidden) const {
  RECORD_USER_SCOPE("encoder");
  core::Segment segment;
  segment.tokens = source;
  segment.valid = valid;
  segment.mode = mode;
  const core::State own = state.child("encoder");
  const at::Tensor tokens = embedding_(source);
  const core::SegmentRows rows = memories_->enter(tokens, {}, segment, own);
  core::BackboneInput input;
  input.mode = mode;
  if (hidden)
    input.hidden = [&](std::string_view name, const at::Tensor& h) { hidden(fmt::format("encoder.{}", name), h); };
  memories_->show(input, rows, segment, own);
  const core::BackboneResult result = encoder_->forward(input, own.child("layers"));
  std::vector<at::Tensor> losses;
  core::State after = memories_->leave(result, rows, segment, own, losses);
  bool all = false;
  for (const auto& [name, memory] : memories_->sequences()) all = all || memory->shows_rows();
  const int64_t first = rows.tables[0].token_offset();
  const at::Tensor encoded = all ? result.hidden : result.hidden.narrow(1, first, tokens.size(1));
  const at::Tensor known = all ? rows.valid : valid;
  const at::Tensor real = known.defined()
                              ? known
                              : at::ones({encoded.size(0), encoded.size(1)}, source.options().dtype(at::kBool));
  return core::State::list({{"encoded", EncodedState{encoded, real}}, {"encoder", std::move(after)}});
}

core::EncoderOutput SourceSide::output(const core::State& state) {
  const core::State encoded = state.child("encoded");
  const auto& own = encoded.as<EncodedState>();
  return {own.rows, own.valid};
}

bool SourceSide::carries_memory() const {
  const auto fields = initial_state(1).child("encoder").fields();
  return std::any_of(fields.begin(), fields.end(), [](const auto& field) { return field.first.per_sequence(); });
}

std::optional<int64_t> SourceSide::bptt_depth(std::string_view path) const {
  if (path.starts_with("encoded.")) return -1;  // a target may be read in parts
  constexpr std::string_view kEncoder = "encoder.";
  if (!path.starts_with(kEncoder)) return std::nullopt;
  path.remove_prefix(kEncoder.size());
  if (const auto depth = memories_->bptt_depth(path)) return depth;
  for (int64_t layer = 0; layer < encoder_->num_layers(); ++layer) {
    const std::string name = "layers." + encoder_->layer_name(layer) + ".";
    if (path.starts_with(name)) return encoder_->attention(layer).bptt_depth(path.substr(name.size()));
  }
  return 0;
}

}  // namespace mnemo::models
