#include "models/source_side.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <algorithm>

#include "backbones/layer_stack.h"
#include "base/error.h"
#include "core/backbone.h"
#include "core/model.h"
#include "models/left_padding.h"
#include "models/make_attention.h"
#include "models/registry.h"

namespace mnemo::models {

SourceSide::SourceSide(const ModelOptions& options, const layers::Scope& root,
                       const std::optional<layers::TokenEmbedding>& embedding) {
  const EncoderDecoderOptions& backbone = options.backbone.pairs();
  const EmbeddingOptions& table = options.embedding;
  const int64_t words = table.source_vocab_size.value_or(table.vocab_size);
  if (embedding) {
    embedding_ = *embedding;
  } else {
    embedding_ = layers::TokenEmbedding(root / "encoder_embed", words, backbone.dim, table.scale,
                                        table.init_std.value_or(backbone.init_std));
    embedding_.padding = table.padding_token.value_or(-1);
  }
  const std::vector<base::TypedOptions>& memories = backbone.encoder.memory;
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
  parameters_ = scope.parameters();
  segment_size_ = backbone.encoder.segment_size;
  with_location(backbone.encoder.attention,
                [&] { memories_->require_support(*encoder_, backbone.encoder.attention.type()); });
}

SourceSide::~SourceSide() = default;

core::State SourceSide::initial_state(int64_t batch) const {
  return core::State::list(
      {{"encoded", EncodedState{}}, {"encoder", memories_->initial_state(batch, encoder_->initial_state(batch))}});
}

bool SourceSide::shows_rows() const {
  return std::any_of(memories_->sequences().begin(), memories_->sequences().end(),
                     [](const auto& named) { return named.memory->shows_rows(); });
}

EncodedState SourceSide::encode_segment(const core::Segment& segment, int64_t first, core::State& state,
                                        std::vector<at::Tensor>& losses, const core::HiddenObserver& hidden) const {
  const at::Tensor tokens = embedding_(segment.tokens);
  const core::SegmentRows rows = memories_->enter(tokens, {}, segment, state);
  core::BackboneInput input;
  input.mode = segment.mode;
  input.recompute_layers = segment.recompute_layers;
  if (hidden)
    input.hidden = [&](std::string_view name, const at::Tensor& h) { hidden(fmt::format("encoder.{}", name), h); };
  memories_->show(input, rows, segment, state);
  if (first > 0) input.first_row = at::full({tokens.size(0)}, first, segment.tokens.options());
  const core::BackboneResult result = encoder_->forward(input, state.child("layers"));
  std::vector<at::Tensor> own_losses;
  state = memories_->leave(result, rows, segment, state, own_losses);
  losses.resize(std::max(losses.size(), own_losses.size()));
  for (size_t i = 0; i < own_losses.size(); ++i) {
    if (own_losses[i].defined()) losses[i] = losses[i].defined() ? losses[i] + own_losses[i] : own_losses[i];
  }
  const bool all = shows_rows();
  const at::Tensor seen = all ? result.hidden : result.hidden.narrow(1, rows.tables[0].token_offset(), tokens.size(1));
  const at::Tensor known = all ? rows.valid : segment.valid;
  return {seen,
          known.defined() ? known : at::ones({seen.size(0), seen.size(1)}, segment.tokens.options().dtype(at::kBool))};
}

SourceSide::Encoded SourceSide::encode(core::Segment segment, const core::State& state,
                                       const core::HiddenObserver& hidden) const {
  RECORD_USER_SCOPE("encoder");
  if (segment_size_ || !memories_->contexts().empty() || !memories_->sequences().empty()) {
    if (const LeftPadding padding(segment.valid); padding.moves()) segment = padding.right_padded(segment);
  }
  const at::Tensor tokens = segment.tokens, real = segment.valid;
  const int64_t length = tokens.size(1), size = segment_size_.value_or(length);
  core::State own = state.child("encoder");
  Encoded encoded;
  std::vector<at::Tensor> rows, real_rows;
  for (int64_t first = 0; first == 0 || first < length; first += size) {
    const int64_t count = std::min(size, length - first);
    segment.tokens = tokens.narrow(1, first, count);
    if (real.defined()) segment.valid = real.narrow(1, first, count);
    EncodedState made = encode_segment(segment, first, own, encoded.losses, hidden);
    rows.push_back(std::move(made.rows));
    real_rows.push_back(std::move(made.valid));
  }
  for (at::Tensor& loss : encoded.losses) {
    if (loss.defined()) loss = loss / static_cast<double>(rows.size());
  }
  const bool one = rows.size() == 1;
  encoded.state = core::State::list(
      {{"encoded", EncodedState{one ? rows[0] : at::cat(rows, 1), one ? real_rows[0] : at::cat(real_rows, 1)}},
       {"encoder", std::move(own)}});
  return encoded;
}

std::vector<int64_t> SourceSide::token_rows(int64_t length) const {
  std::vector<int64_t> found;
  const int64_t size = segment_size_.value_or(length);
  const core::State start = initial_state(1).child("encoder");
  int64_t row = 0;
  for (int64_t first = 0; first < length; first += size) {
    const int64_t count = std::min(size, length - first);
    int64_t before = 0, all = count;
    if (shows_rows()) {
      const at::Tensor none = at::zeros({1, count, encoder_->dim()}, embedding_.weight.options());
      const core::AttendTable table = memories_->attend_tables(none, {}, start, core::Mode::evaluate).front().table;
      before = table.token_offset();
      all = table.num_rows();
    }
    for (int64_t i = 0; i < count; ++i) found.push_back(row + before + i);
    row += all;
  }
  return found;
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
