#include "infer/engine.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/backbone.h"
#include "infer/engine_parts.h"
#include "models/model.h"
#include "models/source_side.h"

namespace mnemo::infer {
namespace {

core::DecodeBuild build_of(const EngineOptions& options) {
  core::DecodeBuild build;
  build.precision = options.precision;
  build.int8_keys = options.int8_keys;
  return build;
}

}  // namespace

Engine::Engine(std::shared_ptr<const models::Model> model, const EngineOptions& options)
    : model_(std::move(model)), options_(options), fingerprint_(model_) {
  base::ensure(model_ != nullptr, "an engine needs a model");
  try {
    parts_ = std::make_unique<const Parts>(*model_, build_of(options));
  } catch (const base::InputError& error) {
    base::input_error("the decoding engine cannot run this model: {}", error.what());
  }
  begin_ = import(model_->initial_state(1));
}

Engine::~Engine() = default;

core::State Engine::read_source(const at::Tensor& source, const at::Tensor& valid, const core::State& before) const {
  const c10::InferenceMode inference;
  const ops::PackedMapsGuard packed_maps(parts_->source_maps);
  return core::source_reader(*model_).read_source(source, valid, core::Mode::evaluate, before);
}

std::vector<EngineSequence> Engine::begin(const core::State& read) const {
  const c10::InferenceMode inference;
  const ops::PackedMapsGuard packed_maps(parts_->source_maps);
  const core::EncoderOutput encoded = models::SourceSide::output(read.child("source"));
  std::vector<EngineSequence> sequences(static_cast<size_t>(encoded.rows.size(0)), begin_);
  for (const Parts::Layer& layer : parts_->layers) {
    const auto sources = layer.cross->encode(encoded.rows, encoded.valid);
    for (size_t b = 0; b < sequences.size(); ++b) sequences[b].encoded_.push_back(sources[b]);
  }
  return sequences;
}

EngineSequence Engine::import(const core::State& state) const {
  const c10::InferenceMode inference;
  for (const auto& [field, tensor] : state.fields()) {
    base::require(!field.per_sequence() || tensor.size(field.dim("B")) == 1,
                  "engine: expected the state of one sequence, found '{}' for {}", field.path,
                  field.per_sequence() ? tensor.size(field.dim("B")) : 0);
  }
  EngineSequence sequence;
  core::OpenKeys keys;  // for layers without a context
  const core::State open_state = state.child("open");
  const auto& open = open_state.as<models::OpenSegment>();
  if (open.length.defined()) {
    sequence.open_ = keys.open = true;
    sequence.length_ = keys.segment = open.length.item<int64_t>();
    sequence.read_ = open.read_rows.item<int64_t>();
  }
  // Rows of the context that a layer sees; in an open segment, those it saw at the segment's start.
  const auto context_keys = [&](int context) -> int64_t {
    if (!keys.open) return 0;
    const auto view = std::find(parts_->views.begin(), parts_->views.end(), context) - parts_->views.begin();
    const at::Tensor& valid = open.valid.at(static_cast<size_t>(view));
    const int64_t rows = valid.size(1) - core::left_padding(valid), before = rows - keys.segment;
    base::require(context < 0 ? before == 0 : before >= 0,
                  "engine: the state's rows contradict one another: expected {} {} real rows in its open segment, "
                  "found {}",
                  context < 0 ? "exactly" : "at least", keys.segment, rows);
    return before;
  };
  for (const Parts::Memory& memory : parts_->memories)
    sequence.memories_.emplace_back(memory.decoder->import(state.child(memory.name)));
  for (size_t c = 0; c < parts_->contexts.size(); ++c) {
    const Parts::Context& context = parts_->contexts[c];
    keys.context = context_keys(static_cast<int>(c));
    sequence.contexts_.emplace_back(context.decoder->import(state.child(context.name), {keys, sequence.read_, 0}));
    sequence.context_.push_back(keys.open ? keys.context : context.decoder->count(*sequence.contexts_.back()));
  }
  const core::State layers = state.child("layers");
  for (size_t n = 0; n < parts_->layers.size(); ++n) {
    const Parts::Layer& layer = parts_->layers[n];
    keys.context = context_keys(layer.context);
    sequence.layers_.emplace_back(layer.attention->import(layers.child(layer.name), keys));
    // Between segments the state has only the rows of the context, so keys are recomputed.
    if (!keys.open) make_keys(sequence, n);
  }
  return sequence;
}

core::State Engine::export_state(const EngineSequence& sequence) const {
  const c10::InferenceMode inference;
  core::State::Children children, layers;
  for (size_t i = 0; i < parts_->contexts.size(); ++i) {
    const Parts::Context& context = parts_->contexts[i];
    children.emplace_back(context.name, context.decoder->export_state(*sequence.contexts_[i], sequence.open_));
  }
  for (size_t i = 0; i < parts_->memories.size(); ++i) {
    const Parts::Memory& memory = parts_->memories[i];
    children.emplace_back(memory.name, memory.decoder->export_state(*sequence.memories_[i]));
  }
  for (size_t n = 0; n < parts_->layers.size(); ++n) {
    const Parts::Layer& layer = parts_->layers[n];
    layers.emplace_back(layer.name, layer.attention->export_state(*sequence.layers_[n], sequence.open_));
  }
  children.emplace_back("layers", core::State::list(std::move(layers)));
  models::OpenSegment open;
  open.valid.resize(parts_->views.size());
  if (sequence.open_) {
    open.length = at::full({1}, sequence.length_, at::kLong);
    open.read_rows = at::full({1}, sequence.read_, at::kLong);
    for (size_t view = 0; view < open.valid.size(); ++view) {
      const int c = parts_->views[view];
      const int64_t context = c < 0 ? 0 : sequence.context_[static_cast<size_t>(c)];
      open.valid[view] = at::ones({1, context + sequence.length_}, at::kBool);
    }
  }
  children.emplace_back("open", open);
  return core::State::list(std::move(children));
}

void Engine::drop_keys(EngineSequence& sequence) const {
  base::ensure(!sequence.open_, "keys are dropped between segments");
  const c10::InferenceMode inference;
  for (EngineSequence::Kept& context : sequence.contexts_) context = EngineSequence::Kept(context);  // without room
  for (size_t n = 0; n < parts_->layers.size(); ++n) {
    if (!parts_->layers[n].only_keys) continue;
    const core::DecodeAttention& attention = *parts_->layers[n].attention;
    sequence.layers_[n] = attention.import(attention.export_state(*sequence.layers_[n], false), {});
  }
}

void Engine::make_keys(EngineSequence& sequence) const {
  const c10::InferenceMode inference;
  for (size_t n = 0; n < parts_->layers.size(); ++n) {
    if (parts_->layers[n].only_keys) make_keys(sequence, n);
  }
}

void Engine::make_keys(EngineSequence& sequence, size_t number) const {
  const Parts::Layer& layer = parts_->layers[number];
  if (layer.context < 0) return;
  const auto context = static_cast<size_t>(layer.context);
  const core::DecodeContext& decoder = *parts_->contexts[context].decoder;
  const int64_t count = decoder.count(*sequence.contexts_[context]), dim = parts_->dim;
  if (count == 0) return;
  const float* rows = decoder.rows(*sequence.contexts_[context], static_cast<int64_t>(number));
  std::vector<float> normed;
  if (parts_->pre_norm) {
    normed.resize(static_cast<size_t>(count * dim));
    for (int64_t row = 0; row < count; ++row) layer.norm1(rows + row * dim, dim, normed.data() + row * dim);
    rows = normed.data();
  }
  const core::KeptKeys all{0, count, rows};
  base::ensure(layer.attention->end_segment(*sequence.layers_[number], {&all, 1}), "the attention rejected its keys");
}

int64_t Engine::bytes_per_token(int64_t keys) const {
  int64_t bytes = parts_->head->num_bytes();
  for (const Parts::Layer& layer : parts_->layers)
    bytes += layer.in.num_bytes() + layer.out.num_bytes() + layer.attention->bytes_per_token(keys);
  return bytes;
}

}  // namespace mnemo::infer
