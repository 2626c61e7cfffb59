#include "models/text_model.h"

#include <torch/types.h>

#include "backbones/registry.h"
#include "base/error.h"
#include "models/make_attention.h"

namespace mnemo::models {

TextModel::TextModel(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget,
                     at::Device device)
    : Model(options, core::TokenInput{options.embedding.vocab_size, options.segment_size}, seed, dtype, budget, device),
      side_(options_, parameters_, make_parts()) {}

TokenSide::Parts TextModel::make_parts() {
  const layers::Scope root = parameters_.root();
  const BackboneOptions& backbone = options_.backbone;
  TokenSide::Parts parts{.memories = options_.memory, .attention = backbone.stack().attention};
  if (is_whole())
    parts.embedding = TokenEmbeddings::make(options_.embedding, root / "embed", backbone.stack().dim,
                                            backbone.weight_std());
  parts.backbone = backbones::stack_backbones()
                       .find(backbone.type)
                       .make(backbone.stack(), root / "backbone", [&](const core::AttentionBuild& build) {
                         return make_attention(backbone.stack().attention, options_.memory, build);
                       });
  require_layers(options_.memory, parts.backbone->num_layers());
  return parts;
}

core::StepResult TextModel::run(const core::Segment& segment, const core::State& state,
                                const core::AttentionObserver& observe, const core::HiddenObserver& hidden) const {
  require_given(segment.rows.defined() || (is_whole() && segment.tokens.defined()),
                is_whole() ? "tokens [B,T]" : "rows [B,T,D]", segment);
  require_alone(!segment.pixels.defined() && !segment.source.defined(), "tokens or rows alone",
                segment.pixels.defined() ? "pixels" : "a source");
  base::require(options_.backbone.causal() || (segment.part.starts && segment.part.ends),
                "[model] an encoder is bidirectional, so it takes only whole segments: expected part.starts and "
                "part.ends to be true");
  return side_.forward(segment, state, {}, observe, hidden);
}

}  // namespace mnemo::models
