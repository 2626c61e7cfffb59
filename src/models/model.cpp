#include "models/model.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <algorithm>
#include <map>

#include "backbones/registry.h"
#include "base/error.h"
#include "core/append_rows.h"
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
  backbone_ = backbones::stack_backbones()
                  .find(options.backbone.type)
                  .make(options.backbone, root / "backbone", attention);
  make_memories();
  with_location(options.backbone.attention, [&] { require_support(options); });
  if (whole) make_head(root / "head");
}

void Model::make_memories() {
  core::MemoryBuild build{
      parameters_.root() / "memory", backbone_->num_layers(), {}, backbone_->dim(), parameters_.all().front().tensor};
  build.backbone = backbone_.get();
  build.vocab_size = options_.embedding.vocab_size;
  if (embedding_) build.embed = [embedding = *embedding_](const at::Tensor& tokens) { return embedding(tokens); };
  if (adaptive_embedding_)
    build.embed = [embedding = *adaptive_embedding_](const at::Tensor& tokens) { return embedding(tokens); };

  context_of_.assign(static_cast<size_t>(backbone_->num_layers()), -1);
  std::map<std::string, int64_t> seen;
  for (const base::Node& memory : options_.memory) {
    const std::string type = type_of(memory);
    const memory::Entry& entry = Mechanisms::all().memories.find(type);
    if (entry.wrap_attention) continue;
    const int64_t count = ++seen[type];
    const std::string name = count == 1 ? type : fmt::format("{}_{}", type, count);
    build.layers = layers_of(memory, build.num_layers);
    if (entry.layer_context) {
      for (const int64_t layer : build.layers)
        context_of_[static_cast<size_t>(layer)] = static_cast<int64_t>(contexts_.size());
      contexts_.push_back({name, with_location(memory, [&] { return entry.layer_context(memory, build); })});
    } else {
      sequences_.push_back({name, with_location(memory, [&] { return entry.sequence(memory, build); })});
    }
  }
  for (const int64_t context : context_of_) {
    const auto known = std::find(views_.begin(), views_.end(), context);
    view_of_.push_back(static_cast<size_t>(known - views_.begin()));
    if (known == views_.end()) views_.push_back(context);
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
  heads::HeadBuild build{scope, backbone_->dim(), options_.embedding.vocab_size, options_.backbone.init_std};
  build.table = embedding_ ? embedding_->weight : adaptive_embedding_->table(0);
  build.adaptive = adaptive_embedding_ ? &*adaptive_embedding_ : nullptr;
  head_ = Mechanisms::all().heads.find(type_of(options_.head)).make(options_.head, build);
  if (head_->predicts_next_token()) return;
  base::require(head_->num_classes() > 0, "{}", "model: expected head.num_classes of at least 2, found 0");
  if (head_->input() == core::HeadInput::first_row && sequences_.empty()) {
    cls_ = scope.add("cls", {backbone_->dim()}, layers::constant(0.0), layers::ParameterKind::memory);
  }
}

at::Tensor Model::embed(const at::Tensor& tokens) const {
  base::ensure(embedding_ || adaptive_embedding_, "a layer_stack takes rows, not tokens");
  RECORD_USER_SCOPE("embedding");
  return embedding_ ? (*embedding_)(tokens) : (*adaptive_embedding_)(tokens);
}

void Model::require_support(const ModelOptions& options) const {
  const std::string attention = type_of(options.backbone.attention);
  for (int64_t layer = 0; layer < backbone_->num_layers(); ++layer) {
    const core::AttentionSupport support = backbone_->attention(layer).support();
    const int64_t context = context_of(layer);
    base::require(support.contexts || context < 0,
                  "model: attention '{}' keeps the past in a state of its own and sees no rows of '{}'; drop that "
                  "memory or use another attention",
                  attention, context < 0 ? "" : contexts_[static_cast<size_t>(context)].name);
    // The rows of an encoder are all open, whatever stands among them.
    if (support.tables || !options.backbone.causal()) continue;
    for (const auto& [name, memory] : sequences_) {
      base::require(!memory->needs_tables(),
                    "model: attention '{}' cannot honour the table of '{}'; use recurrent_tokens with block_mask = "
                    "\"causal\", or another attention",
                    attention, name);
    }
  }
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

std::vector<core::Scalar> Model::scalars() const { return attention_scalars(*backbone_); }

core::State Model::initial_state(int64_t batch) const {
  core::State::Children children;
  for (const auto& [name, memory] : contexts_) children.emplace_back(name, memory->initial_state(batch));
  for (const auto& [name, memory] : sequences_) children.emplace_back(name, memory->initial_state(batch));
  children.emplace_back("layers", backbone_->initial_state(batch));
  children.emplace_back("open", closed_segment());
  return committed_.apply(core::State::list(std::move(children)));
}

int64_t Model::bptt_depth(const std::string& path) const {
  const auto within = [&](const std::string& name) {
    return path.size() > name.size() && path.starts_with(name) && path[name.size()] == '.';
  };
  const auto rest = [&](const std::string& name) { return std::string_view(path).substr(name.size() + 1); };
  for (const auto& [name, memory] : contexts_) {
    if (within(name)) return memory->bptt_depth(rest(name));
  }
  for (const auto& [name, memory] : sequences_) {
    if (within(name)) return memory->bptt_depth(rest(name));
  }
  for (int64_t layer = 0; layer < backbone_->num_layers(); ++layer) {
    const std::string name = "layers." + backbone_->layer_name(layer);
    if (within(name)) return backbone_->attention(layer).bptt_depth(rest(name));
  }
  return 0;
}

std::vector<core::AuxiliaryLoss> Model::auxiliary_losses(const core::StepResult& step) const {
  std::vector<core::AuxiliaryLoss> losses;
  if (step.write_hidden.defined()) {
    for (const auto& [name, memory] : sequences_) {
      for (core::AuxiliaryLoss& loss :
           memory->losses(step.write_hidden,
                          [&](const at::Tensor&hidden, const at::Tensor&targets) { return nll(hidden, targets); })) {
        losses.push_back(std::move(loss));
      }
    }
  }
  for (size_t i = 0; i < step.context_losses.size(); ++i) {
    if (step.context_losses[i].defined())
      losses.push_back({"context_loss", step.context_losses[i], contexts_[i].memory->loss_weight()});
  }
  return losses;
}

OpenSegment Model::closed_segment() const {
  OpenSegment closed;
  closed.valid.resize(views_.size());
  return closed;
}

const Model::Named<core::LayerContext>* Model::context_in(size_t view) const {
  return views_[view] < 0 ? nullptr : &contexts_[static_cast<size_t>(views_[view])];
}

core::SegmentRows Model::start_rows(const core::Segment& segment, const core::State& state,
                                    const OpenSegment& open) const {
  at::Tensor rows = segment.rows;
  if (!rows.defined()) rows = embed(segment.tokens);
  core::AttendTable tokens({SpanKind::tokens, rows.size(1)}, options_.backbone.causal() ? Rule::causal() : Rule::all());
  core::SegmentRows result{rows, segment.valid, {}};
  if (cls_.defined()) {
    result.rows = at::cat({cls_.expand({rows.size(0), 1, -1}), rows}, 1);
    if (segment.valid.defined()) result.valid = at::cat({segment.valid.any(1, true), segment.valid}, 1);
    tokens.prepend_rows({SpanKind::tokens, 1, 1}).set_rule(SpanKind::tokens, SpanKind::tokens, Rule::all());
  }
  base::require(segment.part.starts || open.length.defined(),
                "[model] expected the state of an open segment (part.starts is false), found none");
  if (!segment.part.starts) {
    base::require(open.valid.size() == views_.size(),
                  "[model] expected an open segment seen in {} ways, found {}; is it "
                  "of another model?",
                  views_.size(), open.valid.size());
    require_batch(open.length, rows);
  }
  for (size_t view = 0; view < views_.size(); ++view) {
    core::AttendTable table = tokens;
    const Named<core::LayerContext>* context = context_in(view);
    if (context != nullptr) context->memory->add_spans(table, state.child(context->name), segment.mode);
    if (!segment.part.starts) {
      const Rule tokens_rule = table.rule(0, table.contexts().size());
      int64_t before = open.valid[view].size(1);
      if (segment.part.ends) {
        // The write rows have rules of their own for cache, read rows and tokens, so the borders between them matter.
        const int64_t length = uniform(open.length, "rows so far"), read = uniform(open.read_rows, "memory rows");
        before -= length;
        // Without a context the rows before the segment are padding, and go with the read rows.
        table.append_context({SpanKind::read, context != nullptr ? read : before + read}, tokens_rule);
        table.append_context({SpanKind::tokens, length - read}, tokens_rule);
      } else if (context == nullptr) {
        table.append_context({SpanKind::cache, 0}, tokens_rule);
      }
      table.resize_context(SpanKind::cache, before);
    }
    result.tables.push_back(std::move(table));
  }
  return result;
}

void Model::set_valid(core::SegmentRows& rows, const core::State& state, const OpenSegment& open, bool starts) const {
  for (size_t view = 0; view < views_.size(); ++view) {
    std::vector<at::Tensor> parts;
    bool all_real = !rows.valid.defined();
    if (!starts) {
      parts.push_back(open.valid[view]);
      all_real = all_real && open.valid[view].all().item<bool>();
    } else if (const auto* context = context_in(view)) {
      const at::Tensor valid = context->memory->valid(state.child(context->name));
      require_batch(valid, rows.rows);
      all_real = all_real && (valid.numel() == 0 || valid.all().item<bool>());
      parts.push_back(valid);
    }
    if (all_real) continue;
    parts.push_back(rows.valid.defined() ? rows.valid
                                         : at::ones({rows.rows.size(0), rows.rows.size(1)},
                                                    rows.rows.options().dtype(at::kBool).requires_grad(false)));
    rows.tables[view].set_valid(at::cat(parts, 1));
  }
}

OpenSegment Model::still_open(const core::SegmentRows& rows, const OpenSegment& open, const core::State& state,
                              bool starts) const {
  const auto options = rows.rows.options().requires_grad(false);
  const int64_t batch = rows.rows.size(0), count = rows.rows.size(1);
  const at::Tensor real = rows.valid.defined() ? rows.valid : at::ones({batch, count}, options.dtype(at::kBool));
  OpenSegment now;
  now.valid.clear();
  for (size_t view = 0; view < views_.size(); ++view) {
    const auto* context = context_in(view);
    if (!starts) {
      now.valid.push_back(core::append_rows(open.valid[view], real, 1));
    } else {
      now.valid.push_back(context == nullptr ? real
                                             : at::cat({context->memory->valid(state.child(context->name)), real}, 1));
    }
  }
  now.length = starts ? at::full({batch}, count, options.dtype(at::kLong)) : open.length + count;
  now.read_rows = starts ? at::full({batch}, rows.tables[0].row_length(SpanKind::read), options.dtype(at::kLong))
                         : open.read_rows;
  return now;
}

core::BackboneResult Model::run_layers(const core::Segment& segment, const core::SegmentRows& rows,
                                       const core::State& state, const OpenSegment& open,
                                       const core::AttentionObserver& observe) const {
  core::BackboneInput input;
  input.rows = rows.rows;
  if (!segment.part.starts) input.first_row = open.length;
  input.mode = segment.mode;
  input.ends = segment.part.ends;
  input.observe = observe;
  for (const size_t view : view_of_) input.tables.push_back(&rows.tables[view]);
  if (segment.part.starts && !contexts_.empty()) {
    input.context = [&](int64_t layer, const at::Tensor& entering) {
      if (context_of(layer) < 0) return at::Tensor();
      const auto& [name, memory] = contexts_[static_cast<size_t>(context_of(layer))];
      return memory->before(layer, entering, state.child(name));
    };
  }
  return backbone_->forward(input, state.child("layers"));
}

core::StepResult Model::forward(const core::Segment& segment, const core::State& state,
                                const core::AttentionObserver& observe) const {
  for (const std::string& type : Mechanisms::all().memories.names()) {
    const auto of_type = [&](const auto& named) { return named.name == type; };
    const bool own = std::any_of(contexts_.begin(), contexts_.end(), of_type) ||
                     std::any_of(sequences_.begin(), sequences_.end(), of_type);
    base::require(state.child(type).empty() != own, "[model] the state {} a '{}'; is it of another model?",
                  own ? "lacks" : "has", type);
  }
  base::require(options_.backbone.causal() || (segment.part.starts && segment.part.ends),
                "[model] an encoder looks both ways, so its segments have no parts: expected part.starts and part.ends "
                "to be true");
  const core::State open_state = state.child("open");
  const OpenSegment& open = open_state.as<OpenSegment>();
  base::require(!segment.part.starts || !open.length.defined(),
                "[model] a segment is open in the state; expected part.starts = false");
  core::SegmentRows rows = start_rows(segment, state, open);
  for (const auto& [name, memory] : sequences_) memory->enter(rows, state.child(name), segment.part);
  set_valid(rows, state, open, segment.part.starts);
  const core::BackboneResult result = run_layers(segment, rows, state, open, observe);

  core::State::Children children;
  core::StepResult step;
  for (size_t i = 0; i < contexts_.size(); ++i) {
    const auto& [name, memory] = contexts_[i];
    RECORD_USER_SCOPE(name);
    const auto view = static_cast<size_t>(std::find(views_.begin(), views_.end(), static_cast<int64_t>(i)) -
                                          views_.begin());
    core::ContextEnd after{
        memory->after(result.entering, rows.valid, rows.tables[view], state.child(name), segment.mode)};
    if (segment.part.ends) after = memory->end_segment(after.state, segment.mode);
    children.emplace_back(name, std::move(after.state));
    if (after.loss.defined()) {
      step.context_losses.resize(contexts_.size());
      step.context_losses[i] = std::move(after.loss);
    }
  }
  for (const auto& [name, memory] : sequences_) {
    children.emplace_back(name, memory->leave(result.hidden, rows.tables[0], state.child(name), segment.part));
  }
  children.emplace_back("layers", result.state);
  children.emplace_back("open",
                        segment.part.ends ? closed_segment() : still_open(rows, open, state, segment.part.starts));

  const double dropout = head_ == nullptr ? 0.0 : head_->input_dropout();
  step.hidden = layers::dropout(hidden_of(result.hidden, rows, segment), dropout, segment.mode == core::Mode::train);
  const core::AttendTable& table = rows.tables[0];
  if (const int64_t write = table.row_offset(SpanKind::write); write >= 0) {
    step.write_hidden = result.hidden.narrow(1, write, table.row_length(SpanKind::write));
  }
  step.state = core::State::list(std::move(children));
  return step;
}

at::Tensor Model::hidden_of(const at::Tensor& hidden, const core::SegmentRows& rows,
                            const core::Segment& segment) const {
  const core::HeadInput reads = head_ == nullptr ? core::HeadInput::tokens : head_->input();
  if (reads == core::HeadInput::first_row) return hidden.narrow(1, 0, 1);
  int64_t first = 0;
  for (const core::Span& span : rows.tables[0].rows()) {
    if (span.kind == SpanKind::tokens && span.tag == 0) break;
    first += span.length;
  }
  const int64_t count = segment.tokens.defined() ? segment.tokens.size(1) : segment.rows.size(1);
  const at::Tensor tokens = count == hidden.size(1) ? hidden : hidden.narrow(1, first, count);
  return reads == core::HeadInput::tokens ? tokens : layers::mean_rows(tokens, segment.valid);
}

std::vector<LayerTable> Model::attend_tables(int64_t tokens, const core::State& state, core::Mode mode) const {
  const at::NoGradGuard no_grad;
  core::Segment segment;
  segment.rows = at::zeros({1, tokens, backbone_->dim()}, parameters_.all().front().tensor.options());
  segment.mode = mode;
  core::SegmentRows rows = start_rows(segment, state, OpenSegment{});
  for (const auto& [name, memory] : sequences_) memory->enter(rows, state.child(name), segment.part);
  std::vector<LayerTable> tables;
  for (core::AttendTable& table : rows.tables) tables.push_back({{}, std::move(table)});
  for (size_t layer = 0; layer < view_of_.size(); ++layer)
    tables[view_of_[layer]].layers.push_back(static_cast<int64_t>(layer));
  return tables;
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
  base::require(options.kind == "model" && built->head().predicts_next_token(),
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
