#include "infer/engine_plan.h"

#include <torch/types.h>

#include <cmath>

#include "attention/relative.h"
#include "attention/softmax.h"
#include "base/error.h"
#include "memory/abc.h"
#include "memory/abc_control/mlp.h"
#include "memory/grc.h"
#include "memory/memory_tokens.h"
#include "memory/recurrent_tokens.h"
#include "memory/segment_cache.h"

namespace mnemo::infer {
namespace {

ops::RowActivation row_activation(const std::string& name) {
  if (name == "relu") return ops::RowActivation::relu;
  return name == "gelu" ? ops::RowActivation::gelu : ops::RowActivation::gelu_tanh;
}

void read_abc(EnginePlan& plan, const memory::AbcOptions& options) {
  const std::string type = base::type_of(options.control);
  base::require(type == "mlp", "it has no form of ABC's control '{}'", type);
  const auto control = base::read_typed_options<memory::AbcMlpOptions>(options.control);
  plan.abc = true;
  plan.slots = options.num_slots;
  plan.abc_tied_control = options.tied_across_layers;
  plan.abc_shared_control = control.shared_across_heads;
  plan.abc_eps = static_cast<float>(control.eps);
  const std::string& activation = control.activation;
  plan.abc_activation = activation == "relu"      ? ops::AbcActivation::relu
                        : activation == "sigmoid" ? ops::AbcActivation::sigmoid
                                                  : ops::AbcActivation::exp;
  if (options.scale == "none") plan.scale = 1.0f;
}

void read_cache(EnginePlan& plan, const memory::SegmentCacheOptions& options) {
  plan.cache = true;
  plan.mem_len = options.eval_mem_len.value_or(options.mem_len);
  if (options.eval_same_length.value_or(options.same_length)) plan.band = plan.mem_len;
  plan.keeps_memory_rows = options.keep_memory_rows;
}

void read_grc(EnginePlan& plan, const memory::GrcOptions& options) {
  base::require(options.position == "none", "it has no form of grc with position = \"{}\"", options.position);
  base::require(options.gate_bias, "it has no form of grc without biases of its gates");
  // mem_attention = "same" is softmax too with every attention that stands here and takes it.
  plan.grc = true;
  plan.grc_moves = options.lifetime == "sequence";
  plan.grc_len = options.length({});
  plan.grc_channels = static_cast<int64_t>(static_cast<double>(plan.dim) * options.cache_ratio);
}

}  // namespace

EnginePlan::EnginePlan(const models::Model& model) {
  using base::type_of;
  const models::ModelOptions& options = model.options();
  const models::BackboneOptions& backbone = options.backbone;
  base::require(options.kind == "model", "a layer_stack has no tokens");
  models::require_next_token_model(model, "decoding engine");
  const base::Node* adaptive = options.head.find("adaptive");
  base::require(options.embedding.type == "token" && (adaptive == nullptr || adaptive->is_null()),
                "it has no form of an adaptive embedding or softmax");
  layers = backbone.num_layers;
  dim = backbone.dim;
  heads = backbone.num_heads;
  head_dim = backbone.head_width();
  width = (head_dim + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep;
  ffn = backbone.ffn_dim;
  vocab = options.embedding.vocab_size;
  segment = options.segment_size;
  pre_norm = backbone.norm == "pre";
  activation = row_activation(backbone.activation);
  norm_eps = static_cast<float>(backbone.norm_eps);
  scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  if (options.embedding.scale) embedding_factor = std::sqrt(static_cast<float>(dim));
  position = backbone.position.type == "learned"      ? Position::learned
             : backbone.position.type == "sinusoidal" ? Position::sinusoidal
                                                      : Position::none;
  position_rows = backbone.position.max_len;

  bool faithful = false;
  const std::string attention = type_of(backbone.attention);
  if (attention == "relative") {
    const auto read = base::read_typed_options<attention::RelativeOptions>(backbone.attention);
    relative = true;
    clamp = read.eval_clamp_len.value_or(read.clamp_len);
    faithful = read.rel_shift == "faithful";
  } else if (attention == "abc") {
    read_abc(*this, base::read_typed_options<memory::AbcOptions>(backbone.attention));
  } else {
    base::require(attention == "softmax", "it has no form of the attention '{}'", attention);
  }
  for (const base::Node& node : options.memory) {
    const std::string type = type_of(node);
    if (type == "segment_cache") {
      read_cache(*this, base::read_typed_options<memory::SegmentCacheOptions>(node));
    } else if (type == "memory_tokens") {
      const auto read = base::read_typed_options<memory::MemoryTokensOptions>(node);
      hands_rows_on = read.variant == "authors";
      sequence = hands_rows_on ? Sequence::carried_tokens : Sequence::memory_tokens;
      memory_rows = read.num_mem_tokens;
      memory_sees_cache = read.read_mem_from_cache;
    } else if (type == "recurrent_tokens") {
      const auto read = base::read_typed_options<memory::RecurrentTokensOptions>(node);
      hands_rows_on = true;
      sequence = Sequence::recurrent;
      memory_rows = read.num_mem_tokens;
      memory_sees_cache = read.read_mem_from_cache;
      memory_causal = read.block_mask == "causal";
    } else if (type == "grc") {
      read_grc(*this, base::read_typed_options<memory::GrcOptions>(node));
    } else {
      base::input_error("it has no form of the memory '{}'", type);
    }
  }
  if (memory_rows == 0) sequence = Sequence::none;
  base::require(!faithful || memory_rows < 2 || memory_causal,
                "it has no form of rel_shift = \"faithful\" with memory rows that look to the right");
}

JoinedMaps joined_maps(const EnginePlan& plan, const layers::ParameterSet& parameters, int64_t layer) {
  const std::string attn = "backbone.layers." + std::to_string(layer) + ".attn";
  std::vector<at::Tensor> weights, biases;
  bool biased = false;
  for (const char* map : {".q", ".k", ".v"}) {
    weights.push_back(parameters.find(attn + map + ".weight").detach());
    const at::Tensor bias = parameters.find(attn + map + ".bias");
    biased = biased || bias.defined();
    biases.push_back(bias.defined() ? bias.detach() : at::zeros({weights.back().size(0)}, weights.back().options()));
  }
  if (plan.abc) {
    weights.push_back(parameters.find(plan.control_weight(layer)).detach());
    biases.push_back(at::zeros({weights.back().size(0)}, weights.back().options()));
  }
  return {at::cat(weights), biased ? at::cat(biases) : at::Tensor()};
}

std::string unsupported_reason(const core::Model& model) {
  const auto* built = dynamic_cast<const models::Model*>(&model);
  if (built == nullptr) return "it is no model made from options";
  try {
    EnginePlan plan(*built);
    for (const layers::Parameter& parameter : built->parameters().all()) {
      base::require(parameter.tensor.scalar_type() == at::kFloat && parameter.tensor.is_cpu(),
                    "expected parameters of float32 on the CPU, found {} on {} ('{}')",
                    c10::toString(parameter.tensor.scalar_type()), parameter.tensor.device().str(), parameter.name);
    }
  } catch (const base::InputError& error) {
    return error.what();
  }
  return {};
}

}  // namespace mnemo::infer
