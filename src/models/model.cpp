#include "models/model.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include "backbones/decoder.h"
#include "backbones/encoder.h"
#include "base/error.h"
#include "core/append_rows.h"
#include "heads/adaptive_softmax.h"
#include "heads/language_model.h"
#include "memory/grc.h"
#include "memory/recurrent_tokens.h"
#include "models/attention_scalars.h"
#include "models/make_attention.h"
#include "models/registry.h"
#include "models/vision_model.h"

namespace mnemo::models {
namespace {

using core::Rule;
using core::SpanKind;

/// All rows have the same number; the caller's batch is wrong otherwise.
int64_t uniform(const at::Tensor& numbers, const char* what) {
  const auto [least, greatest] = at::aminmax(numbers);
  base::require(
      least.item<int64_t>() == greatest.item<int64_t>(),
      "[model] sequences of one batch may start or end a segment only together: expected the same {} for all, "
      "found {} to {}",
      what, least.item<int64_t>(), greatest.item<int64_t>());
  return least.item<int64_t>();
}

/// The state was made for as many sequences as the segment has.
void require_batch(const at::Tensor& of_state, const at::Tensor& rows) {
  base::require(of_state.size(0) == rows.size(0),
                "[model] expected a segment of {} sequences, as many as the state has, found {}", of_state.size(0),
                rows.size(0));
}

}  // namespace

Model::Model(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget,
             at::Device device)
    : options_(options), parameters_(seed, dtype, budget, device) {
  base::require(!options.backbone.is_vision(),
                "model: backbone.type = \"{}\" is of images; a language model was expected here",
                options.backbone.type);
  const layers::Scope root = parameters_.root();
  const bool whole = options.kind == "model";
  if (whole) make_embedding(root / "embed");
  const auto attention = [&](const core::AttentionBuild& build) {
    return make_attention(options.backbone.attention, options.memory, build);
  };
  if (options.backbone.causal()) {
    backbone_ = std::make_unique<backbones::Decoder>(options.backbone, root / "backbone", attention);
  } else {
    backbone_ = std::make_unique<backbones::Encoder>(options.backbone, root / "backbone", attention);
  }
  core::MemoryBuild memory_build{root / "memory", backbone_->num_layers(), backbone_->dim(),
                                 parameters_.all().front().tensor};
  memory_build.backbone = backbone_.get();
  if (embedding_)
    memory_build.embed = [embedding = *embedding_](const at::Tensor& tokens) { return embedding(tokens); };
  if (adaptive_embedding_)
    memory_build.embed = [embedding = *adaptive_embedding_](const at::Tensor& tokens) { return embedding(tokens); };
  for (const base::Node& memory : options.memory) {
    const std::string type = type_of(memory);
    const auto& entry = Mechanisms::all().memories.find(type);
    if (entry.layer_context) {
      context_ = with_location(memory, [&] { return entry.layer_context(memory, memory_build); });
      context_name_ = type;
    }
    if (entry.sequence) {
      sequence_ = with_location(memory, [&] { return entry.sequence(memory, memory_build); });
      sequence_name_ = type;
    }
    for (const char* key : {"cls_token", "sep_token", "pad_token"}) {
      const base::Node* token = memory.find(key);
      base::require(token == nullptr || !token->is_int() || token->as_int() < options.embedding.vocab_size,
                    "model: {}.{} expected to be below vocab_size = {}, found {}", type, key,
                    options.embedding.vocab_size, token == nullptr || !token->is_int() ? 0 : token->as_int());
    }
  }
  with_location(options.backbone.attention, [&] { require_support(options); });
  if (!whole) return;
  make_head(root / "head");
  if (const auto* recurrent = dynamic_cast<const memory::RecurrentTokens*>(sequence_.get())) {
    if (const auto& aux = recurrent->options().aux_loss) {
      base::require(aux->token < options.embedding.vocab_size,
                    "model: aux_loss.token expected to be below vocab_size = {}, found {}",
                    options.embedding.vocab_size, aux->token);
      auxiliary_weight_ = aux->weight;
      auxiliary_token_ = aux->token;
    }
  }
}

void Model::make_embedding(const layers::Scope& scope) {
  const EmbeddingOptions& embedding = options_.embedding;
  const double std = embedding.init_std.value_or(options_.backbone.init_std);
  const int64_t dim = options_.backbone.dim;
  base::require(embedding.vocab_size > 0, "model: expected embedding.vocab_size of at least 1, found 0");
  if (embedding.type == "token") {
    embedding_.emplace(scope, embedding.vocab_size, dim, embedding.scale, std);
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
  const double std = options_.backbone.init_std;
  const int64_t dim = backbone_->dim();
  if (type_of(options_.head) == "language_model") {
    make_language_model(base::read_typed_options<heads::LanguageModelOptions>(options_.head), scope);
    return;
  }
  auto head = std::make_unique<heads::Classification>(
      base::read_typed_options<heads::ClassificationOptions>(options_.head), scope, dim, std);
  classification_ = head.get();
  base::require(head->has_classes(), "{}", "model: expected head.num_classes of at least 2, found 0");
  head_ = std::move(head);
  if (classification_->reads_first_row() && !sequence_) {
    cls_ = scope.add("cls", {dim}, layers::constant(0.0), layers::ParameterKind::memory);
  }
}

void Model::make_language_model(const heads::LanguageModelOptions& head, const layers::Scope& scope) {
  const int64_t vocab = options_.embedding.vocab_size;
  if (!head.adaptive) {
    at::Tensor table;
    if (head.tied) table = embedding_ ? embedding_->weight : adaptive_embedding_->table(0);
    head_ = std::make_unique<heads::LanguageModel>(head, scope, table, vocab, backbone_->dim(),
                                                   options_.backbone.init_std);
    return;
  }
  head_dropout_ = head.adaptive->dropout;
  try {
    head_ = std::make_unique<heads::AdaptiveSoftmax>(*head.adaptive, head.tied, head.bias, scope,
                                                     adaptive_embedding_ ? &*adaptive_embedding_ : nullptr, vocab,
                                                     backbone_->dim(), options_.backbone.init_std);
  } catch (const base::InputError& error) {
    base::input_error("model.head.adaptive: {}", error.what());
  }
}

at::Tensor Model::embed(const at::Tensor& tokens) const {
  base::ensure(embedding_ || adaptive_embedding_, "a layer_stack takes rows, not tokens");
  RECORD_USER_SCOPE("embedding");
  return embedding_ ? (*embedding_)(tokens) : (*adaptive_embedding_)(tokens);
}

void Model::require_support(const ModelOptions& options) const {
  const core::AttentionSupport support = backbone_->attention(0).support();
  const std::string attention = type_of(options.backbone.attention);
  base::require(
      support.contexts || !context_,
      "model: attention '{}' keeps the past in a state of its own and sees no rows of '{}'; drop that memory or use "
      "another attention",
      attention, context_name_);
  // The rows of an encoder are all open, whatever stands among them.
  if (support.tables || !sequence_ || !options.backbone.causal()) return;
  const auto* recurrent = dynamic_cast<const memory::RecurrentTokens*>(sequence_.get());
  base::require(
      recurrent != nullptr && recurrent->options().block_mask == "causal",
      "model: attention '{}' cannot honour the table of '{}'; use recurrent_tokens with block_mask = \"causal\", or "
      "another attention",
      attention, sequence_name_);
}

const core::Head& Model::head() const {
  base::ensure(head_ != nullptr, "a layer_stack has no head");
  return *head_;
}

at::Tensor Model::logits(const at::Tensor& hidden) const {
  RECORD_USER_SCOPE("head");
  return head().logits(hidden);
}

at::Tensor Model::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  RECORD_USER_SCOPE("head");
  return head().nll(hidden, targets);
}

std::vector<std::pair<std::string, const core::LayerContext*>> Model::layer_contexts() const {
  if (!context_) return {};
  return {{context_name_, context_.get()}};
}

std::vector<std::pair<std::string, const core::SequenceMemory*>> Model::sequence_memories() const {
  if (!sequence_) return {};
  return {{sequence_name_, sequence_.get()}};
}

std::vector<core::Scalar> Model::scalars() const { return attention_scalars(*backbone_); }

core::State Model::initial_state(int64_t batch) const {
  core::State::Children children;
  if (context_) children.emplace_back(context_name_, context_->initial_state(batch));
  if (sequence_) children.emplace_back(sequence_name_, sequence_->initial_state(batch));
  children.emplace_back("layers", backbone_->initial_state(batch));
  children.emplace_back("open", OpenSegment{});
  return committed_.apply(core::State::list(std::move(children)));
}

int64_t Model::bptt_depth(const std::string& path) const {
  if (sequence_ && path.starts_with(sequence_name_ + ".")) return sequence_->bptt_depth();
  if (!path.starts_with("layers.")) return 0;
  const core::Attention& attention = backbone_->attention(0);
  const auto* grc = dynamic_cast<const memory::Grc*>(&attention);
  if (grc == nullptr) return attention.bptt_depth();
  return path.find(".core.") == std::string::npos ? grc->cache_bptt_depth() : grc->core_bptt_depth();
}

std::vector<core::AuxiliaryLoss> Model::auxiliary_losses(const core::StepResult& step) const {
  std::vector<core::AuxiliaryLoss> losses;
  if (auxiliary_weight_ != 0.0 && step.write_hidden.defined()) {
    const at::Tensor targets = at::full({step.write_hidden.size(0), step.write_hidden.size(1)}, auxiliary_token_,
                                        step.write_hidden.options().dtype(at::kLong).requires_grad(false));
    losses.push_back({"aux_nll", nll(step.write_hidden, targets), auxiliary_weight_});
  }
  if (step.context_loss.defined()) losses.push_back({"context_loss", step.context_loss, context_->loss_weight()});
  return losses;
}

core::SegmentRows Model::start_rows(const core::Segment& segment, const core::State& state,
                                    const OpenSegment& open) const {
  at::Tensor rows = segment.rows;
  if (!rows.defined()) rows = embed(segment.tokens);
  core::SegmentRows result{
      rows, segment.valid,
      core::AttendTable({SpanKind::tokens, rows.size(1)}, options_.backbone.causal() ? Rule::causal() : Rule::all())};
  core::AttendTable& table = result.table;
  if (cls_.defined()) {
    result.rows = at::cat({cls_.expand({rows.size(0), 1, -1}), rows}, 1);
    if (segment.valid.defined()) result.valid = at::cat({segment.valid.any(1, true), segment.valid}, 1);
    table.prepend_rows({SpanKind::tokens, 1, 1}).set_rule(SpanKind::tokens, SpanKind::tokens, Rule::all());
  }
  if (context_) context_->add_spans(table, state.child(context_name_), segment.mode);
  if (segment.part.starts) return result;

  base::require(open.valid.defined(),
                "[model] expected the state of an open segment (part.starts is false), found none");
  require_batch(open.valid, rows);
  const Rule tokens_rule = table.rule(0, table.contexts().size());
  int64_t before = open.valid.size(1);
  if (segment.part.ends) {
    // The write rows have rules of their own for cache, read rows and tokens, so the borders between them matter.
    const int64_t length = uniform(open.length, "rows so far"), read = uniform(open.read_rows, "memory rows");
    before -= length;
    // Without a cache the rows before the segment are padding, and go with the read rows.
    table.append_context({SpanKind::read, context_ ? read : before + read}, tokens_rule);
    table.append_context({SpanKind::tokens, length - read}, tokens_rule);
  } else if (!context_) {
    table.append_context({SpanKind::cache, 0}, tokens_rule);
  }
  table.resize_context(SpanKind::cache, before);
  return result;
}

void Model::set_valid(core::SegmentRows& rows, const core::State& state, const OpenSegment& open, bool starts) const {
  std::vector<at::Tensor> parts;
  bool all_real = !rows.valid.defined();
  if (!starts) {
    parts.push_back(open.valid);
    all_real = all_real && open.valid.all().item<bool>();
  } else if (context_) {
    const at::Tensor valid = context_->before(0, state.child(context_name_)).valid;
    require_batch(valid, rows.rows);
    all_real = all_real && (valid.numel() == 0 || valid.all().item<bool>());
    parts.push_back(valid);
  }
  if (all_real) return;
  parts.push_back(rows.valid.defined() ? rows.valid
                                       : at::ones({rows.rows.size(0), rows.rows.size(1)},
                                                  rows.rows.options().dtype(at::kBool).requires_grad(false)));
  rows.table.set_valid(at::cat(parts, 1));
}

OpenSegment Model::still_open(const core::SegmentRows& rows, const OpenSegment& open, const core::State& state,
                              bool starts) const {
  const auto options = rows.rows.options().requires_grad(false);
  const int64_t batch = rows.rows.size(0);
  const at::Tensor real = rows.valid.defined() ? rows.valid
                                               : at::ones({batch, rows.rows.size(1)}, options.dtype(at::kBool));
  if (!starts) {
    return {open.length + rows.rows.size(1), open.read_rows, core::append_rows(open.valid, real, 1)};
  }
  std::vector<at::Tensor> valid;
  if (context_) valid.push_back(context_->before(0, state.child(context_name_)).valid);
  valid.push_back(real);
  return {at::full({batch}, rows.rows.size(1), options.dtype(at::kLong)),
          at::full({batch}, rows.table.row_length(SpanKind::read), options.dtype(at::kLong)), at::cat(valid, 1)};
}

core::StepResult Model::forward(const core::Segment& segment, const core::State& state,
                                const core::AttentionObserver& observe) const {
  for (const std::string& name : Mechanisms::all().memories.names()) {
    const bool own = name == sequence_name_ || name == context_name_;
    base::require(state.child(name).empty() != own, "[model] the state {} a '{}'; is it of another model?",
                  own ? "lacks" : "has", name);
  }
  base::require(options_.backbone.causal() || (segment.part.starts && segment.part.ends),
                "[model] an encoder looks both ways, so its segments have no parts: expected part.starts and part.ends "
                "to be true");
  const core::State open_state = state.child("open");
  const OpenSegment& open = open_state.as<OpenSegment>();
  base::require(!segment.part.starts || !open.length.defined(),
                "[model] a segment is open in the state; expected part.starts = false");
  core::SegmentRows rows = start_rows(segment, state, open);
  if (sequence_) sequence_->enter(rows, state.child(sequence_name_), segment.part);
  set_valid(rows, state, open, segment.part.starts);

  core::BackboneInput input{rows.rows,    rows.table,        {},     segment.part.starts ? at::Tensor() : open.length,
                            segment.mode, segment.part.ends, observe};
  if (segment.part.starts && context_) {
    input.context = [&](int64_t layer) { return context_->before(layer, state.child(context_name_)).rows; };
  }
  const core::BackboneResult result = backbone_->forward(input, state.child("layers"));

  core::State::Children children;
  core::StepResult step;
  if (context_) {
    RECORD_USER_SCOPE(context_name_);
    core::ContextEnd after{
        context_->after(result.entering, rows.valid, rows.table, state.child(context_name_), segment.mode)};
    if (segment.part.ends) after = context_->end_segment(after.state, segment.mode);
    children.emplace_back(context_name_, std::move(after.state));
    step.context_loss = std::move(after.loss);
  }
  if (sequence_) {
    children.emplace_back(sequence_name_,
                          sequence_->leave(result.hidden, rows.table, state.child(sequence_name_), segment.part));
  }
  children.emplace_back("layers", result.state);
  children.emplace_back("open", segment.part.ends ? OpenSegment{} : still_open(rows, open, state, segment.part.starts));

  step.hidden = layers::dropout(hidden_of(result.hidden, rows, segment), head_dropout_,
                                segment.mode == core::Mode::train);
  if (const int64_t write = rows.table.row_offset(SpanKind::write); write >= 0) {
    step.write_hidden = result.hidden.narrow(1, write, rows.table.row_length(SpanKind::write));
  }
  step.state = core::State::list(std::move(children));
  return step;
}

at::Tensor Model::hidden_of(const at::Tensor& hidden, const core::SegmentRows& rows,
                            const core::Segment& segment) const {
  if (classification_ != nullptr && classification_->reads_first_row()) return hidden.narrow(1, 0, 1);
  int64_t first = 0;
  for (const core::Span& span : rows.table.rows()) {
    if (span.kind == SpanKind::tokens && span.tag == 0) break;
    first += span.length;
  }
  const int64_t count = segment.tokens.defined() ? segment.tokens.size(1) : segment.rows.size(1);
  const at::Tensor tokens = count == hidden.size(1) ? hidden : hidden.narrow(1, first, count);
  return classification_ == nullptr ? tokens : heads::Classification::mean(tokens, segment.valid);
}

core::AttendTable Model::attend_table(int64_t tokens, const core::State& state, core::Mode mode) const {
  const at::NoGradGuard no_grad;
  core::Segment segment;
  segment.rows = at::zeros({1, tokens, backbone_->dim()}, parameters_.all().front().tensor.options());
  segment.mode = mode;
  core::SegmentRows rows = start_rows(segment, state, OpenSegment{});
  if (sequence_) sequence_->enter(rows, state.child(sequence_name_), segment.part);
  return rows.table;
}

const Model& require_language_model(const core::Model& model, std::string_view who) {
  const auto* language = dynamic_cast<const Model*>(&model);
  base::require(language != nullptr, "{}: expected a model of texts, found one of images", who);
  return *language;
}

std::shared_ptr<Model> language_model(const std::shared_ptr<core::Model>& model, std::string_view who) {
  require_language_model(*model, who);
  return std::dynamic_pointer_cast<Model>(model);
}

void require_next_token_model(const core::Model& model, std::string_view who) {
  base::require(dynamic_cast<const VisionModel*>(&model) == nullptr,
                "{}: expected a model that predicts the next token, found one of images", who);
  const auto* built = dynamic_cast<const Model*>(&model);
  if (built == nullptr) return;
  const ModelOptions& options = built->options();
  base::require(type_of(options.head) == "language_model",
                "{}: expected a model that predicts the next token, found head.type = \"{}\"", who,
                type_of(options.head));
  base::require(options.backbone.causal(),
                "{}: expected a model that predicts the next token, found backbone.type = \"{}\", which sees it", who,
                options.backbone.type);
}

std::unique_ptr<Model> build(const ModelOptions& options, uint64_t seed, at::ScalarType dtype,
                             const layers::Budget& budget) {
  base::check_options(options);
  return std::make_unique<Model>(options, seed, dtype, budget);
}

}  // namespace mnemo::models
