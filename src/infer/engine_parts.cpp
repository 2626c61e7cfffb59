#include "infer/engine_parts.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/backbone.h"
#include "core/head.h"
#include "models/model.h"

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

}  // namespace

Engine::Parts::Norm Engine::Parts::norm_of(const layers::Norm& norm) const {
  return {core::plain_numbers(norm.weight), core::plain_numbers(norm.bias), static_cast<float>(norm.eps), norm.type};
}

Engine::Parts::Parts(const models::Model& model, const core::DecodeBuild& of) {
  const c10::InferenceMode inference;
  core::DecodeBuild build = of;
  const bool pairs = model.input_kind() == core::InputKind::pairs;
  if (!pairs) models::require_next_token_model(model, "decoding engine");
  base::require(model.head_or_null() != nullptr, "{}", "unsupported: a layer_stack, which has no tokens");
  for (const layers::Parameter& parameter : model.parameters().all()) {
    base::require(parameter.tensor.scalar_type() == at::kFloat && parameter.tensor.is_cpu(),
                  "expected parameters of float32 on the CPU, found {} on {} ('{}')",
                  c10::toString(parameter.tensor.scalar_type()), parameter.tensor.device().str(), parameter.name);
  }
  const auto stack = decoder_of("this backbone", [&] { return model.backbone().decode_stack(); });
  dim = model.backbone().dim();
  vocab = pairs ? core::pair_input(model.input()).target_vocab_size : model.vocab_size();
  segment = pairs ? kEndless : model.segment_size();

  for (const auto& [name, memory] : model.memories().sequences()) {
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
  for (const auto& [name, context] : model.memories().contexts()) {
    const std::string what = fmt::format("memory '{}'", name);
    contexts.push_back({name, decoder_of(what, [&, of = context.get()] { return of->decoder(build); })});
  }

  const bool packs_source = pairs && build.runs &&
                            (build.precision == ops::Precision::int8 || build.precision == ops::Precision::w8a8);
  const auto add_source_map = [&](const at::Tensor& weight) {
    if (packs_source) source_maps.add(weight, build.precision);
  };
  if (pairs) {
    for (const layers::Parameter& parameter : model.source()->parameters()) {
      if (parameter.kind == layers::ParameterKind::weight) add_source_map(parameter.tensor);
    }
  }

  const models::BackboneOptions& backbone = model.options().backbone;
  const std::string attention = fmt::format(
      "attention '{}'", base::type_of(pairs ? backbone.pairs.decoder.attention : backbone.attention));
  const std::string cross = pairs ? fmt::format("cross-attention '{}'",
                                                base::type_of(backbone.pairs.decoder.cross_attention))
                                  : "";
  for (const core::DecodeStack::Layer& of_stack : stack->layers) {
    Layer layer;
    layer.name = of_stack.name;
    layer.attention = decoder_of(attention, [&] { return of_stack.attention->decoder(build); });
    layer.context = static_cast<int>(model.memories().context_of(static_cast<int64_t>(layers.size())));
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
  if (stack->positions.defined()) positions = stack->positions.detach().contiguous();
  frequencies = stack->frequencies;
  first_position = stack->first_position;
  embedding = model.token_embedding() != nullptr ? EmbeddingRows(*model.token_embedding())
                                                 : EmbeddingRows(build, *model.adaptive_embedding(), dim);
  head = decoder_of(fmt::format("head '{}'", base::type_of(model.options().head)),
                    [&] { return model.head_or_null()->decoder(build); });
}

std::string unsupported_reason(const core::Model& model) {
  const auto* built = dynamic_cast<const models::Model*>(&model);
  if (built == nullptr) return "the model was not built from options";
  try {
    Engine::require_supported(*built);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return {};
}

void Engine::require_supported(const models::Model& model) {
  core::DecodeBuild build;
  build.runs = false;
  const Parts parts(model, build);
}

}  // namespace mnemo::infer
