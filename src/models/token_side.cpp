#include "models/token_side.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include "base/error.h"
#include "models/hidden_rows.h"
#include "models/left_padding.h"
#include "models/make_attention.h"
#include "models/registry.h"

namespace mnemo::models {

using core::SpanKind;

TokenEmbeddings TokenEmbeddings::make(const EmbeddingOptions& options, const layers::Scope& scope, int64_t dim,
                                      double weight_std) {
  const double std = options.init_std.value_or(weight_std);
  base::require(options.vocab_size > 0, "model: expected embedding.vocab_size of at least 1, found 0");
  TokenEmbeddings made;
  if (options.type == EmbeddingOptions::Type::token) {
    made.plain.emplace(scope, options.vocab_size, dim, options.scale, std);
    made.plain->padding = options.padding_token.value_or(-1);
    return made;
  }
  try {
    made.adaptive.emplace(scope, layers::WordClusters(options.vocab_size, options.cutoffs), options.dim.value_or(dim),
                          options.div_val, dim, options.scale, std);
  } catch (const base::InputError& error) {
    base::input_error("model.embedding: {}", error.what());
  }
  return made;
}

TokenSide::TokenSide(const ModelOptions& options, layers::ParameterSet& parameters, Parts parts)
    : embedding_(std::move(parts.embedding)),
      backbone_(std::move(parts.backbone)),
      like_(parameters.all().front().tensor) {
  const layers::Scope root = parameters.root();
  core::MemoryBuild build{root / "memory", backbone_->num_layers(), {}, backbone_->dim(), like_};
  build.backbone = backbone_.get();
  build.vocab_size = options.embedding.vocab_size;
  if (embedding_.exists())
    build.embed = [embedding = embedding_](const at::Tensor& tokens) { return embedding(tokens); };
  memories_.emplace(parts.memories, build, options.backbone.causal());
  with_location(parts.attention, [&] { memories_->require_support(*backbone_, parts.attention.type()); });
  if (embedding_.exists()) make_head(options, root / "head");
}

void TokenSide::make_head(const ModelOptions& options, const layers::Scope& scope) {
  heads::HeadBuild build{scope, backbone_->dim(), options.embedding.vocab_size, options.backbone.weight_std()};
  build.table = embedding_.plain ? embedding_.plain->weight : embedding_.adaptive->whole_table();
  build.adaptive = embedding_.adaptive ? &*embedding_.adaptive : nullptr;
  head_ = Mechanisms::all().heads.find(options.head.type()).make(options.head, build);
  if (head_->input() == core::HeadInput::first_row && memories_->sequences().empty())
    cls_ = scope.add("cls", {backbone_->dim()}, layers::constant(0.0), layers::ParameterKind::memory);
}

int64_t TokenSide::bptt_depth(const std::string& path) const {
  if (const auto depth = memories_->bptt_depth(path)) return *depth;
  for (int64_t layer = 0; layer < backbone_->num_layers(); ++layer) {
    const std::string name = "layers." + backbone_->layer_name(layer) + ".";
    if (path.starts_with(name))
      return backbone_->attention(layer).bptt_depth(std::string_view(path).substr(name.size()));
  }
  return 0;
}

bool TokenSide::sees_ahead() const {
  for (int64_t layer = 0; layer < backbone_->num_layers(); ++layer) {
    if (backbone_->attention(layer).support().sees_ahead) return true;
  }
  return false;
}

core::StepResult TokenSide::forward(const core::Segment& segment, const core::State& state,
                                    const core::EncoderOutput& encoder, const core::AttentionObserver& observe,
                                    const core::HiddenObserver& hidden) const {
  if (const LeftPadding padding(segment.valid); padding.moves()) {
    const int64_t count = segment.valid.size(1);
    const core::HiddenObserver in_place = [&](std::string_view name, const at::Tensor& rows) {
      hidden(name, rows.dim() == 3 && rows.size(1) == count ? padding.back(rows) : rows);
    };
    core::StepResult step = forward(padding.right_padded(segment), state, encoder, observe,
                                    hidden ? in_place : core::HiddenObserver());
    if (step.hidden.size(1) == count) step.hidden = padding.back(step.hidden);
    return step;
  }
  at::Tensor tokens = segment.rows;
  if (!tokens.defined()) {
    RECORD_USER_SCOPE("embedding");
    tokens = embedding_(segment.tokens);
  } else if (segment.valid.defined() && segment.valid.sizes() == tokens.sizes().slice(0, 2)) {
    // Padding may hold NaN, and 0 * NaN is NaN.
    tokens = tokens.masked_fill(segment.valid.logical_not().unsqueeze(-1), 0.0);
  }
  const core::SegmentRows rows = memories_->enter(tokens, cls_, segment, state);
  core::BackboneInput input;
  input.encoder = encoder;
  input.mode = segment.mode;
  input.ends = segment.part.ends;
  input.recompute_layers = segment.recompute_layers;
  input.observe = observe;
  input.hidden = hidden;
  memories_->show(input, rows, segment, state);
  const core::AttendTable& table = rows.tables[0];
  const int64_t first = table.token_offset();
  if (segment.token_types.defined()) {  // rows of memories have type 0
    const at::IntArrayRef sizes = tokens.sizes().slice(0, 2);
    base::require(segment.token_types.sizes() == sizes,
                  "[model] expected token types of the size of the tokens, {}, found {}", c10::str(sizes),
                  c10::str(segment.token_types.sizes()));
    input.token_types = at::constant_pad_nd(segment.token_types, {first, rows.rows.size(1) - first - tokens.size(1)});
  }
  const core::BackboneResult result = backbone_->forward(input, state.child("layers"));

  core::StepResult step;
  step.state = memories_->leave(result, rows, segment, state, step.context_losses);
  const double dropout = head_ == nullptr ? 0.0 : head_->input_dropout();
  step.hidden = layers::dropout(hidden_rows(head_.get(), result.hidden, first, tokens.size(1), segment.valid), dropout,
                                segment.mode == core::Mode::train);
  if (const int64_t write = table.row_offset(SpanKind::write); write >= 0)
    step.write_hidden = result.hidden.narrow(1, write, table.row_length(SpanKind::write));
  return step;
}

std::vector<core::AuxiliaryLoss> TokenSide::auxiliary_losses(const core::StepResult& step,
                                                             const SegmentMemories& contexts) const {
  std::vector<core::AuxiliaryLoss> losses;
  if (step.write_hidden.defined()) {
    const auto nll_of = [&](const at::Tensor& hidden, const at::Tensor& targets) {
      base::ensure(head_ != nullptr, "a layer_stack has no head");
      RECORD_USER_SCOPE("head");
      return head_->nll(hidden, targets);
    };
    for (const auto& [name, memory] : memories_->sequences()) {
      for (core::AuxiliaryLoss& loss : memory->losses(step.write_hidden, nll_of)) losses.push_back(std::move(loss));
    }
  }
  for (size_t i = 0; i < step.context_losses.size(); ++i) {
    if (!step.context_losses[i].defined()) continue;
    losses.push_back({"context_loss", step.context_losses[i], contexts.contexts()[i].memory->loss_weight()});
  }
  return losses;
}

std::vector<LayerTable> TokenSide::attend_tables(int64_t tokens, const core::State& state, core::Mode mode) const {
  const at::NoGradGuard no_grad;
  return memories_->attend_tables(at::zeros({1, tokens, backbone_->dim()}, like_.options()), cls_, state, mode);
}

}  // namespace mnemo::models
