#include "models/model.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include "backbones/decoder.h"
#include "backbones/registry.h"
#include "backbones/vision_build.h"
#include "base/error.h"
#include "base/ignore_target.h"
#include "core/backbone.h"
#include "core/head.h"
#include "core/task_tokens.h"
#include "memory/learnable_tokens.h"
#include "models/attention_scalars.h"
#include "models/left_padding.h"
#include "models/make_attention.h"
#include "models/pair_limits.h"
#include "models/registry.h"

namespace mnemo::models {
namespace {

using core::InputKind;
using core::SpanKind;

core::ModelInput input_of(const ModelOptions& options) {
  const EmbeddingOptions& embedding = options.embedding;
  if (options.backbone.input() == InputKind::tokens)
    return core::TokenInput{embedding.vocab_size, options.segment_size};
  if (options.backbone.input() == InputKind::pairs) return pair_input_of(options);
  const std::vector<int64_t> size = options.backbone.image_size();
  return core::ImageInput{size.at(0), size.at(1), options.backbone.image_channels()};
}

bool is_whole(const ModelOptions& options) { return options.kind == ModelOptions::Kind::model; }

/// The backbone's input for images, or for the rows of an image in a layer_stack.
core::BackboneInput image_input(const core::Segment& segment, const core::AttentionObserver& observe,
                                const core::HiddenObserver& hidden) {
  core::BackboneInput input;
  input.rows = segment.rows;
  input.pixels = segment.pixels;
  input.mode = segment.mode;
  input.observe = observe;
  input.hidden = hidden;
  return input;
}

/// The state of a translation model, from that of its decoder and its source side.
core::State with_source(const core::State& decoder, core::State source) {
  return core::State::list(
      {{"layers", decoder.child("layers")}, {"open", decoder.child("open")}, {"source", std::move(source)}});
}

const char* found_in(const core::Segment& segment) {
  return segment.tokens.defined()   ? "tokens"
         : segment.rows.defined()   ? "rows"
         : segment.pixels.defined() ? "pixels"
                                    : "nothing";
}

}  // namespace

Model::Model(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget,
             at::Device device)
    : options_(options), input_(input_of(options)), parameters_(seed, dtype, budget, device) {
  const layers::Scope root = parameters_.root();
  const bool whole = is_whole(options), images = input_kind() == InputKind::images;
  base::require(whole || input_kind() != InputKind::pairs,
                "model: backbone.type = \"{}\" reads tokens: expected kind = "
                "\"model\"",
                options.backbone.type);
  if (whole && !images) make_embedding(root);
  make_backbone(root / "backbone");
  if (input_kind() != InputKind::pairs) require_layers(options.memory, backbone_->num_layers());
  if (!images) make_memories();
  if (!whole) return;
  make_head(root / "head");
  for (const base::Node& memory : options.memory) {
    const memory::Entry& entry = Mechanisms::all().memories.find(type_of(memory));
    if (!entry.tasks) continue;
    tasks_ = entry.tasks(memory, root, backbone_->num_layers(), backbone_->dim(), options.backbone.weight_std());
  }
}

Model::~Model() = default;

void Model::make_backbone(const layers::Scope& scope) {
  const BackboneOptions& backbone = options_.backbone;
  if (input_kind() == InputKind::tokens) {
    const auto attention = [&](const core::AttentionBuild& build) {
      return make_attention(backbone.attention, options_.memory, build);
    };
    backbone_ = backbones::stack_backbones().find(backbone.type).make(backbone, scope, attention);
    return;
  }
  if (input_kind() == InputKind::pairs) {
    make_pairs(scope);
    return;
  }
  const auto attention = [&](const base::Node& core, const core::AttentionBuild& build,
                             const core::ImageLayout& image) {
    return make_image_attention(core, options_.memory, build, image);
  };
  const backbones::VisionBuild build{scope, attention, options_.adapters, is_whole(options_)};
  backbone_ = backbones::make_vision_backbone(backbone.vision, build);
  task_backbone_ = dynamic_cast<const core::TaskBackbone*>(backbone_.get());
}

void Model::make_pairs(const layers::Scope& scope) {
  const bool shared = options_.embedding.shared == EmbeddingOptions::Shared::all;
  source_.emplace(options_, parameters_.root(), shared ? embedding_ : std::nullopt);
  const PairDecoderOptions& decoder = options_.backbone.pairs.decoder;
  const auto maker = [](const base::Node& attention) {
    return [&attention](const core::AttentionBuild& build) { return make_attention(attention, {}, build); };
  };
  backbone_ = std::make_unique<backbones::Decoder>(options_.backbone.pairs.decoder_stack(), scope / "decoder",
                                                   maker(decoder.attention), maker(decoder.cross_attention));
  with_location(decoder.cross_attention, [&] {
    base::require(backbone_->cross_attention(0)->support().cross,
                  "'{}' reads only its own rows and cannot attend to an encoder's output",
                  type_of(decoder.cross_attention));
  });
}

void Model::make_memories() {
  core::MemoryBuild build{
      parameters_.root() / "memory", backbone_->num_layers(), {}, backbone_->dim(), parameters_.all().front().tensor};
  build.backbone = backbone_.get();
  build.vocab_size = options_.embedding.vocab_size;
  if (embedding_) build.embed = [embedding = *embedding_](const at::Tensor& tokens) { return embedding(tokens); };
  if (adaptive_embedding_)
    build.embed = [embedding = *adaptive_embedding_](const at::Tensor& tokens) { return embedding(tokens); };
  const bool pairs = input_kind() == InputKind::pairs;
  memories_.emplace(options_.memory, build, pairs || options_.backbone.causal());
  const base::Node& attention = pairs ? options_.backbone.pairs.decoder.attention : options_.backbone.attention;
  with_location(attention, [&] { memories_->require_support(*backbone_, type_of(attention)); });
}

void Model::make_embedding(const layers::Scope& root) {
  const EmbeddingOptions& embedding = options_.embedding;
  const bool pairs = input_kind() == InputKind::pairs;
  const bool apart = pairs && embedding.shared != EmbeddingOptions::Shared::all;
  const layers::Scope scope = root / (apart ? "decoder_embed" : "embed");
  const double std = embedding.init_std.value_or(options_.backbone.weight_std());
  const int64_t dim = pairs ? options_.backbone.pairs.dim : options_.backbone.dim;
  base::require(embedding.vocab_size > 0, "model: expected embedding.vocab_size of at least 1, found 0");
  if (embedding.type == EmbeddingOptions::Type::token) {
    embedding_.emplace(scope, embedding.vocab_size, dim, embedding.scale, std);
    embedding_->padding = embedding.padding_token.value_or(-1);
    return;
  }
  try {
    adaptive_embedding_.emplace(scope, layers::WordClusters(embedding.vocab_size, embedding.cutoffs),
                                embedding.dim.value_or(dim), embedding.div_val, dim, embedding.scale, std);
  } catch (const base::InputError& error) {
    base::input_error("model.embedding: {}", error.what());
  }
}

void Model::make_head(const layers::Scope& scope) {
  heads::HeadBuild build{scope, backbone_->dim(), options_.embedding.vocab_size, options_.backbone.weight_std()};
  if (embedding_) build.table = embedding_->weight;
  if (adaptive_embedding_) build.table = adaptive_embedding_->whole_table();
  build.adaptive = adaptive_embedding_ ? &*adaptive_embedding_ : nullptr;
  head_ = Mechanisms::all().heads.find(type_of(options_.head)).make(options_.head, build);
  const bool first_row = head_->input() == core::HeadInput::first_row;
  if (input_kind() == InputKind::images) {
    base::require((!first_row && head_->input() != core::HeadInput::first_token) ||
                      dynamic_cast<const core::ImageBackbone&>(*backbone_).num_class_tokens() > 0,
                  "model: head.pool = \"cls\" reads a class token, but backbone.type = \"{}\" has none in these "
                  "options; expected \"mean\"",
                  options_.backbone.type);
    return;
  }
  if (head_->input() == core::HeadInput::tokens) return;
  if (first_row && memories_->sequences().empty())
    cls_ = scope.add("cls", {backbone_->dim()}, layers::constant(0.0), layers::ParameterKind::memory);
}

void Model::require_input(const core::Segment& segment) const {
  const bool images = input_kind() == InputKind::images, whole = is_whole(options_);
  const bool given = !whole   ? segment.rows.defined()
                     : images ? segment.pixels.defined()
                              : segment.tokens.defined() || segment.rows.defined();
  base::require(given, "[model] backbone.type = \"{}\" takes {}, found {}", options_.backbone.type,
                !whole   ? "rows [B,T,D]"
                : images ? "pixels [B,C,H,W]"
                         : "tokens [B,T]",
                found_in(segment));
  base::require((images || !segment.pixels.defined()) && (source_ || !segment.source.defined()) &&
                    (!images || !segment.tokens.defined()),
                "[model] backbone.type = \"{}\" takes {}, found {} with them", options_.backbone.type,
                images    ? "pixels or rows alone"
                : source_ ? "a source and tokens"
                          : "tokens or rows alone",
                images                     ? "tokens"
                : segment.pixels.defined() ? "pixels"
                                           : "a source");
  const bool in_one_piece = segment.part.starts && segment.part.ends;
  base::require(!images || in_one_piece,
                "[model] an image is always whole: expected part.starts and part.ends to be true");
  base::require(images || options_.backbone.causal() || in_one_piece,
                "[model] an encoder is bidirectional, so it takes only whole segments: expected part.starts and "
                "part.ends to be true");
}

at::Tensor Model::embed(const core::Segment& segment) const {
  if (segment.rows.defined()) return segment.rows;
  RECORD_USER_SCOPE("embedding");
  return embedding_ ? (*embedding_)(segment.tokens) : (*adaptive_embedding_)(segment.tokens);
}

const core::Head& Model::head() const {
  base::ensure(head_ != nullptr, "a layer_stack has no head");
  return *head_;
}

const SegmentMemories& Model::memories() const {
  base::require(memories_.has_value(), "[model] expected a model of texts, found one of images");
  return *memories_;
}

at::Tensor Model::logits(const at::Tensor& hidden) const {
  RECORD_USER_SCOPE("head");
  return answers_ ? tasks_->head(*answers_)(hidden) : head().logits(hidden);
}

at::Tensor Model::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  RECORD_USER_SCOPE("head");
  if (!answers_) return head().nll(hidden, targets);
  return at::cross_entropy_loss(logits(hidden).flatten(0, -2), targets.reshape({-1}), {}, at::Reduction::None,
                                base::kIgnoreTarget)
      .view(targets.sizes());
}

std::vector<core::Scalar> Model::scalars() const { return attention_scalars(*backbone_); }

core::State Model::initial_state(int64_t batch) const {
  core::State layers = backbone_->initial_state(batch);
  if (source_)
    return committed_.apply(
        with_source(memories_->initial_state(batch, std::move(layers)), source_->initial_state(batch)));
  return committed_.apply(memories_ ? memories_->initial_state(batch, std::move(layers))
                                    : core::State::list({{"layers", std::move(layers)}}));
}

int64_t Model::bptt_depth(const std::string& path) const {
  if (!memories_) return 0;  // images are not a sequence: no gradient flows from one step to the next
  constexpr std::string_view kSource = "source.";
  if (source_ && path.starts_with(kSource))
    return source_->bptt_depth(std::string_view(path).substr(kSource.size())).value_or(0);
  if (const auto depth = memories_->bptt_depth(path)) return *depth;
  for (int64_t layer = 0; layer < backbone_->num_layers(); ++layer) {
    const std::string name = "layers." + backbone_->layer_name(layer) + ".";
    if (path.starts_with(name))
      return backbone_->attention(layer).bptt_depth(std::string_view(path).substr(name.size()));
  }
  return 0;
}

bool Model::sees_ahead() const {
  if (!memories_) return false;  // an image is not a sequence
  for (int64_t layer = 0; layer < backbone_->num_layers(); ++layer) {
    if (backbone_->attention(layer).support().sees_ahead) return true;
  }
  return false;
}

std::vector<core::AuxiliaryLoss> Model::auxiliary_losses(const core::StepResult& step) const {
  std::vector<core::AuxiliaryLoss> losses;
  if (!memories_) return losses;
  if (step.write_hidden.defined()) {
    const auto nll_of = [&](const at::Tensor& hidden, const at::Tensor& targets) { return nll(hidden, targets); };
    for (const auto& [name, memory] : memories_->sequences()) {
      for (core::AuxiliaryLoss& loss : memory->losses(step.write_hidden, nll_of)) losses.push_back(std::move(loss));
    }
  }
  for (size_t i = 0; i < step.context_losses.size(); ++i) {
    if (!step.context_losses[i].defined()) continue;
    const auto& contexts = source_ ? source_->memories().contexts() : memories_->contexts();
    losses.push_back({"context_loss", step.context_losses[i], contexts[i].memory->loss_weight()});
  }
  return losses;
}

core::StepResult Model::forward(const core::Segment& segment, const core::State& state,
                                const core::AttentionObserver& observe, const core::HiddenObserver& hidden) const {
  require_input(segment);
  if (!memories_) return forward_images(segment, state, observe, hidden);
  if (!source_) return forward_tokens(segment, state, {}, observe, hidden);
  const int64_t batch = segment.tokens.size(0);
  core::State begun = state;
  std::vector<at::Tensor> losses;
  if (segment.source.defined()) {
    base::require(segment.source.dim() == 2 && segment.source.size(0) == batch,
                  "[model] expected a source [B,S] with B = {}, found {}", batch, c10::str(segment.source.sizes()));
    core::Segment source;
    source.tokens = segment.source, source.valid = segment.source_valid, source.mode = segment.mode;
    source.recompute_layers = segment.recompute_layers;
    SourceSide::Encoded encoded = source_->encode(std::move(source), state.child("source"), hidden);
    begun = begin_target(batch, std::move(encoded.state));
    losses = std::move(encoded.losses);
  }
  core::State source = begun.child("source");
  base::require(SourceSide::output(source).rows.defined(), "{}",
                "[model] expected a source, or a state with an encoder's output, found neither");
  core::StepResult step = forward_tokens(segment, begun, SourceSide::output(source), observe, hidden);
  step.state = with_source(step.state, std::move(source));
  step.context_losses = std::move(losses);
  return step;
}

core::State Model::read_source(const at::Tensor& source, const at::Tensor& valid, core::Mode mode,
                               const core::State& before, const core::HiddenObserver& hidden) const {
  base::ensure(source_.has_value(), "only translation models have a source");
  core::Segment segment;
  segment.tokens = source, segment.valid = valid, segment.mode = mode;
  return begin_target(source.size(0), source_->encode(std::move(segment), before.child("source"), hidden).state);
}

core::State Model::begin_target(int64_t batch, core::State source) const {
  return with_source(memories_->initial_state(batch, backbone_->initial_state(batch)), std::move(source));
}

core::State Model::carried(const core::State& state) const {
  if (!source_) return state;
  return state.map([](const core::Field& field, const at::Tensor& tensor) {
    return field.path.starts_with("source.encoded.") ? at::Tensor() : tensor;
  });
}

core::StepResult Model::forward_tokens(const core::Segment& segment, const core::State& state,
                                       const core::EncoderOutput& encoder, const core::AttentionObserver& observe,
                                       const core::HiddenObserver& hidden) const {
  if (const LeftPadding padding(segment.valid); padding.moves()) {
    const int64_t count = segment.valid.size(1);
    const core::HiddenObserver in_place = [&](std::string_view name, const at::Tensor& rows) {
      hidden(name, rows.dim() == 3 && rows.size(1) == count ? padding.back(rows) : rows);
    };
    core::StepResult step = forward_tokens(padding.right_padded(segment), state, encoder, observe,
                                           hidden ? in_place : core::HiddenObserver());
    if (step.hidden.size(1) == count) step.hidden = padding.back(step.hidden);
    return step;
  }
  const at::Tensor tokens = embed(segment);
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
    base::require(segment.token_types.sizes() == segment.tokens.sizes(),
                  "[model] expected token types of the size of the tokens, {}, found {}",
                  c10::str(segment.tokens.sizes()), c10::str(segment.token_types.sizes()));
    input.token_types = at::constant_pad_nd(segment.token_types, {first, rows.rows.size(1) - first - tokens.size(1)});
  }
  const core::BackboneResult result = backbone_->forward(input, state.child("layers"));

  core::StepResult step;
  step.state = memories_->leave(result, rows, segment, state, step.context_losses);
  const double dropout = head_ == nullptr ? 0.0 : head_->input_dropout();
  step.hidden = layers::dropout(hidden_of(result.hidden, first, tokens.size(1), segment.valid), dropout,
                                segment.mode == core::Mode::train);
  if (const int64_t write = table.row_offset(SpanKind::write); write >= 0)
    step.write_hidden = result.hidden.narrow(1, write, table.row_length(SpanKind::write));
  return step;
}

core::StepResult Model::forward_images(const core::Segment& segment, const core::State& state,
                                       const core::AttentionObserver& observe,
                                       const core::HiddenObserver& hidden) const {
  const core::BackboneInput input = image_input(segment, observe, hidden);
  const core::State layers = state.child("layers");
  core::StepResult step;
  if (tasks_) {
    step.hidden = head_rows(task_backbone_->forward_tasks(tasks_->tasks(), input))[answers_ ? *answers_ + 1 : 0];
    step.state = core::State::list({{"layers", layers}});
    return step;
  }
  core::BackboneResult result = backbone_->forward(input, layers);
  const int64_t grid = result.grid.size(), rows = result.hidden.size(1);
  step.hidden = head_ == nullptr ? result.hidden : hidden_of(result.hidden, rows - grid, grid, {});
  step.state = core::State::list({{"layers", std::move(result.state)}});
  return step;
}

at::Tensor Model::hidden_of(const at::Tensor& hidden, int64_t first, int64_t count, const at::Tensor& valid) const {
  const core::HeadInput reads = head_ == nullptr ? core::HeadInput::tokens : head_->input();
  if (reads == core::HeadInput::first_row || reads == core::HeadInput::first_token) return hidden.narrow(1, 0, 1);
  const at::Tensor rows = count == hidden.size(1) ? hidden : hidden.narrow(1, first, count);
  return reads == core::HeadInput::tokens ? rows : layers::mean_rows(rows, valid);
}

std::vector<at::Tensor> Model::head_rows(const core::TasksResult& result) const {
  const int64_t grid = result.grid.size(), count = result.hidden.size(1);
  const at::Tensor own = hidden_of(result.hidden, count - grid, grid, {});
  std::vector<at::Tensor> rows = {own};
  for (const at::Tensor& row : result.tasks) rows.push_back(row.defined() ? row : own);
  return rows;
}

std::vector<TaskLogits> Model::task_logits(const core::Segment& segment, const core::AttentionObserver& observe,
                                           const core::HiddenObserver& hidden) const {
  require_input(segment);
  if (!tasks_) {
    const int64_t batch = (segment.pixels.defined() ? segment.pixels : segment.tokens).size(0);
    const core::StepResult step = forward(segment, initial_state(batch), observe, hidden);
    if (head().num_classes() == 0) return {};
    return {{"base", logits(step.hidden).squeeze(1)}};
  }
  return task_logits(task_backbone_->forward_tasks(tasks_->tasks(), image_input(segment, observe, hidden)));
}

std::vector<TaskLogits> Model::task_logits(const core::TasksResult& result) const {
  const std::vector<at::Tensor> rows = head_rows(result);
  RECORD_USER_SCOPE("head");
  std::vector<TaskLogits> all;
  if (tasks_->options().attention == memory::TaskAttention::masked && head().num_classes() > 0)
    all.push_back({"base", head().logits(rows[0]).squeeze(1)});
  for (size_t k = 0; k + 1 < rows.size(); ++k)
    all.push_back({tasks_->options().tasks[k].name, tasks_->head(k)(rows[k + 1]).squeeze(1)});
  return all;
}

void Model::answer_for(const std::string& task) {
  if (task == "base") {
    answers_.reset();
    return;
  }
  base::require(tasks_ != nullptr, "no task {} is attached; the model has no tasks", base::in_quotes(task));
  answers_ = tasks_->find(task);
}

int64_t Model::num_classes() const {
  if (answers_) return tasks_->options().tasks[*answers_].num_classes;
  return head_ == nullptr ? 0 : head_->num_classes();
}

std::vector<LayerTable> Model::attend_tables(int64_t tokens, const core::State& state, core::Mode mode) const {
  const at::NoGradGuard no_grad;
  const at::Tensor rows = at::zeros({1, tokens, backbone_->dim()}, parameters_.all().front().tensor.options());
  return memories().attend_tables(rows, cls_, state, mode);
}

void require_input(const core::Model& model, InputKind input, std::string_view who) {
  base::require(model.input_kind() == input, "{}: expected {}, found {}", who, core::model_of(input),
                core::model_of(model.input_kind()));
}

void require_next_token_model(const core::Model& model, std::string_view who) {
  base::require(model.input_kind() == InputKind::tokens, "{}: expected a model that predicts the next token, found {}",
                who, core::model_of(model.input_kind()));
  const auto* built = dynamic_cast<const Model*>(&model);
  if (built == nullptr) return;
  const ModelOptions& options = built->options();
  base::require(is_whole(options) && built->head().predicts_next_token(),
                "{}: expected a model that predicts the next token, found head.type = \"{}\"", who,
                type_of(options.head));
  base::require(options.backbone.causal(),
                "{}: expected a model that predicts the next token, found backbone.type = \"{}\", which is not causal",
                who, options.backbone.type);
}

std::unique_ptr<Model> build(const ModelOptions& options, uint64_t seed, at::ScalarType dtype,
                             const layers::Budget& budget, at::Device device) {
  base::check_options(options);
  return std::make_unique<Model>(options, seed, dtype, budget, device);
}

int64_t count_parameters(const ModelOptions& options) {
  base::check_options(options);
  return Model(options, 0, at::kFloat, {}, at::kMeta).parameters().count();
}

}  // namespace mnemo::models
