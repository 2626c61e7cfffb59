#include "infer/engine_parts.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/backbone.h"
#include "core/head.h"
#include "core/mapped_tensor.h"
#include "models/pair_model.h"
#include "models/text_model.h"

namespace mnemo::infer {
namespace {

/// Creates a decoder; errors are prefixed with "unsupported: ".
template <class Make>
auto decoder_of(const std::string& what, Make make) {
  try {
    auto decoder = make();
    base::require(decoder != nullptr, "unsupported: {}", what);
    return decoder;
  } catch (const base::InputError& error) {
    const std::string reason = error.what();
    base::input_error("{}", reason.starts_with("unsupported: ") ? reason : "unsupported: " + reason);
  }
}

/// What of a model writes tokens; of a translation model the decoder, which reads the source side.
struct Writer {
  const models::TokenSide& tokens;
  const models::SourceSide* source;
  int64_t vocab, segment;
  std::string attention, cross;  ///< types
};

Writer writer_of(const models::Model& model, int64_t endless) {
  if (const auto* pairs = dynamic_cast<const models::PairModel*>(&model)) {
    const models::PairDecoderOptions& decoder = model.options().backbone.pairs().decoder;
    return {pairs->target(), &pairs->source(),         pairs->vocabularies().target_vocab_size,
            endless,         decoder.attention.type(), decoder.cross_attention.type()};
  }
  models::require_next_token_model(model, "decoding engine");
  const auto& text = models::as<models::TextModel>(model, "decoding engine");
  return {text.tokens(),
          nullptr,
          text.vocab_size(),
          text.segment_size(),
          model.options().backbone.stack().attention.type(),
          ""};
}

/// Whether a sequence that begins in this state keeps nothing of its own between segments.
bool keeps_nothing(const core::DecodeAttention& attention, const core::State& start) {
  const auto kept = attention.export_state(*attention.import(start, {}), false).fields();
  return std::ranges::none_of(kept, [](const auto& field) { return field.second.defined(); });
}

/// Throws InputError if keys are to be int8 and those of a layer are not.
void require_keys(const core::DecodeBuild& build, const core::DecodeAttention& attention, bool crosses,
                  const std::string& what) {
  base::require(
      !build.int8_keys || (attention.int8_keys() && !crosses),
      "unsupported: keys and values in int8 of {}; only attentions over individual keys keep them so, without "
      "distance terms, cross-attention or a memory around them",
      what);
}

}  // namespace

Engine::Parts::Norm Engine::Parts::norm_of(const layers::Norm& norm) const {
  return {core::plain_numbers(norm.weight), core::plain_numbers(norm.bias), static_cast<float>(norm.eps), norm.type};
}

Engine::Parts::Parts(const models::Model& model, const core::DecodeBuild& of) {
  const c10::InferenceMode inference;
  core::DecodeBuild build = of;
  const Writer writer = writer_of(model, kEndless);
  const models::SegmentMemories& beside = writer.tokens.memories();
  for (const layers::Parameter& parameter : model.parameters().all()) {
    base::require(parameter.tensor.scalar_type() == at::kFloat && parameter.tensor.is_cpu(),
                  "expected parameters of float32 on the CPU, found {} on {} ('{}')",
                  c10::toString(parameter.tensor.scalar_type()), parameter.tensor.device().str(), parameter.name);
  }
  const auto stack = decoder_of("this backbone", [&] { return model.backbone().decode_stack(); });
  dim = model.backbone().dim();
  vocab = writer.vocab;
  segment = writer.segment;

  for (const auto& [name, memory] : beside.sequences()) {
    const std::string what = fmt::format("memory '{}'", name);
    memories.push_back({name, decoder_of(what, [&, of = memory.get()] { return of->decoder(); })});
    const core::DecodeSequence::Rows rows = memories.back().decoder->rows();
    if (rows.read + rows.write == 0) continue;
    base::require(block_of == nullptr, "unsupported: {} with another memory that adds rows", what);
    block = rows;
    block_of = memories.back().decoder.get();
    block_number = memories.size() - 1;
    if (!rows.causal) build.looks_right = std::max(rows.read, rows.write);
  }
  for (const auto& [name, context] : beside.contexts()) {
    const std::string what = fmt::format("memory '{}'", name);
    contexts.push_back({name, decoder_of(what, [&, of = context.get()] { return of->decoder(build); })});
  }

  const bool packs_source = writer.source != nullptr && build.runs && build.precision != ops::Precision::float32 &&
                            build.precision != ops::Precision::bf16;
  const auto add_source_map = [&](const at::Tensor& weight) {
    if (packs_source) source_maps.add(weight, build.precision);
  };
  if (writer.source != nullptr) {
    for (const layers::Parameter& parameter : writer.source->parameters()) {
      if (parameter.kind == layers::ParameterKind::weight) add_source_map(parameter.tensor);
    }
  }

  const std::string attention = fmt::format("attention '{}'", writer.attention),
                    cross = fmt::format("cross-attention '{}'", writer.cross);
  const core::State start = build.runs ? model.initial_state(1).child("layers") : core::State();
  for (const core::DecodeStack::Layer& of_stack : stack->layers) {
    Layer layer;
    layer.name = of_stack.name;
    layer.attention = decoder_of(attention, [&] { return of_stack.attention->decoder(build); });
    require_keys(build, *layer.attention, of_stack.cross != nullptr, attention);
    layer.only_keys = build.runs && keeps_nothing(*layer.attention, start.child(layer.name));
    layer.context = static_cast<int>(beside.context_of(static_cast<int64_t>(layers.size())));
    if (std::find(views.begin(), views.end(), layer.context) == views.end()) views.push_back(layer.context);
    if (of_stack.cross != nullptr) {
      layer.cross = decoder_of(cross, [&] { return of_stack.cross->cross_decoder(build); });
      for (const at::Tensor& weight : layer.cross->source_weights()) add_source_map(weight);
      layer.cross_norm = norm_of(of_stack.cross_norm);
    }
    layer.norm1 = norm_of(of_stack.norm1);
    layer.norm2 = norm_of(of_stack.norm2);
    layer.gated = of_stack.ffn.gated();
    layer.in = layer.gated ? build.pack({of_stack.ffn.gate, of_stack.ffn.in})
                           : build.pack(of_stack.ffn.in.weight, of_stack.ffn.in.bias);
    layer.out = build.pack(of_stack.ffn.out.weight, of_stack.ffn.out.bias);
    layer.activation = of_stack.ffn.activation;
    layers.push_back(std::move(layer));
  }
  pre_norm = stack->pre_norm;
  parallel_residual = stack->parallel_residual;
  final_norm = norm_of(stack->final_norm);
  if (stack->positions.defined()) positions = build.runs ? core::owned(stack->positions) : stack->positions;
  frequencies = stack->frequencies;
  first_position = stack->first_position;
  head = decoder_of(fmt::format("head '{}'", model.options().head.type()), [&] { return model.head().decoder(build); });
  // After a head that shares it, which needs more of it at a time.
  const models::TokenEmbeddings& table = writer.tokens.embedding();
  if (build.runs) embedding = table.plain ? EmbeddingRows(*table.plain) : EmbeddingRows(build, *table.adaptive, dim);
}

std::string unsupported_reason(const core::Model& model, const EngineOptions& options) {
  const auto* built = dynamic_cast<const models::Model*>(&model);
  if (built == nullptr) return "the model was not built from options";
  try {
    Engine::require_supported(*built, options);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return {};
}

void Engine::require_supported(const models::Model& model, const EngineOptions& options) {
  core::DecodeBuild build;
  build.int8_keys = options.int8_keys;
  build.runs = false;
  const Parts parts(model, build);
}

}  // namespace mnemo::infer
