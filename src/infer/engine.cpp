#include "infer/engine.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "infer/engine_workspace.h"
#include "ops/attention/position.h"

namespace mnemo::infer {
namespace {

std::vector<float> numbers(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor plain = tensor.detach().contiguous();
  return {plain.const_data_ptr<float>(), plain.const_data_ptr<float>() + plain.numel()};
}

/// [H,d] as [H,width], times scale.
std::vector<float> padded(const at::Tensor& heads, int64_t width, float scale) {
  const at::Tensor scaled = heads.detach() * scale;
  return numbers(at::constant_pad_nd(scaled, {0, width - heads.size(1)}));
}

const models::Model& plannable(const std::shared_ptr<const models::Model>& model) {
  base::ensure(model != nullptr, "an engine needs a model");
  const std::string objection = unsupported_reason(*model);
  base::require(objection.empty(), "the decoding engine cannot run this model: {}", objection);
  return *model;
}

}  // namespace

Engine::Norm Engine::norm(const std::string& name) const {
  const layers::ParameterSet& parameters = model_->parameters();
  return {numbers(parameters.find(name + ".weight")), numbers(parameters.find(name + ".bias"))};
}

Engine::Engine(std::shared_ptr<const models::Model> model, const EngineOptions& options)
    : model_(std::move(model)), options_(options), plan_(plannable(model_)) {
  const c10::InferenceMode inference;
  const layers::ParameterSet& parameters = model_->parameters();
  initial_ = model_->initial_state(1);
  embedding_ = parameters.find("embed.weight").detach().contiguous();
  positions_ = parameters.find("backbone.positions.weight");
  if (positions_.defined()) positions_ = positions_.detach().contiguous();
  learned_ = numbers(parameters.find("memory.tokens"));
  for (int64_t i = 0; i < plan_.dim / 2; ++i) {
    frequencies_.push_back(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(plan_.dim)));
  }
  const auto pack = [&](const std::string& name) {
    return ops::PackedLinear(parameters.find(name + ".weight"), parameters.find(name + ".bias"), options.precision);
  };
  for (int64_t n = 0; n < plan_.layers; ++n) {
    const std::string name = "backbone.layers." + std::to_string(n), attn = name + ".attn";
    Layer layer;
    const JoinedMaps maps = joined_maps(plan_, parameters, n);
    layer.maps = ops::PackedLinear(maps.weight, maps.bias, options.precision);
    layer.o = pack(attn + ".o");
    layer.in = pack(name + ".ffn.0");
    layer.out = pack(name + ".ffn.1");
    layer.norm1 = norm(name + ".norm1");
    layer.norm2 = norm(name + ".norm2");
    if (plan_.relative) {
      const bool own = parameters.find(name + ".u").defined();
      const std::string owner = own ? name : "backbone";
      layer.u = padded(parameters.find(owner + ".u"), plan_.width, plan_.scale);
      layer.v = padded(parameters.find(owner + ".v"), plan_.width, plan_.scale);
      layer.r = parameters.find(attn + ".r.weight").detach();
    }
    if (plan_.grc) {
      layer.grc.emplace(plan_, parameters, attn, options.precision);
      for (const auto& [field, tensor] : initial_.fields()) {
        if (field.path == "layers." + attn + ".grc.cache")
          caches_.push_back({numbers(tensor.to(at::kFloat)), {}, {}, {}});
      }
      layer.grc->project(caches_.back());
    }
    layers_.push_back(std::move(layer));
  }
  has_final_norm_ = parameters.find("backbone.final_norm.weight").defined();
  if (has_final_norm_) final_norm_ = norm("backbone.final_norm");
  const at::Tensor head = parameters.find("head.weight");
  head_ = ops::PackedLinear(head.defined() ? head : embedding_, parameters.find("head.bias"), options.precision);
  distances_ = std::make_shared<const Distances>();
}

Engine::~Engine() = default;

EngineSequence Engine::begin() const {
  EngineSequence sequence(plan_, wide_keys());
  if (plan_.sequence != EnginePlan::Sequence::none) sequence.memory = learned_;
  sequence.grc = caches_;
  return sequence;
}

EngineSequence Engine::import(const core::State& state) const {
  const c10::InferenceMode inference;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [field, tensor] : state.fields()) {
    base::require(!field.per_sequence() || tensor.size(field.dim("B")) == 1,
                  "engine: expected the state of one sequence, found '{}' for {}", field.path,
                  field.per_sequence() ? tensor.size(field.dim("B")) : 0);
    tensors.emplace_back(field.path, tensor);
  }
  const auto find = [&](const std::string& path) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const auto& entry) { return entry.first == path; });
    return found == tensors.end() ? at::Tensor() : found->second;
  };
  // Rows that are not real stand on the left.
  const auto padding_of = [](const at::Tensor& valid) {
    const int64_t real = valid.sum().item<int64_t>(), first = valid.size(1) - real;
    base::require(valid.narrow(1, first, real).all().item<bool>(),
                  "engine: expected padding on the left of the state's rows alone");
    return first;
  };
  EngineSequence sequence = begin();
  for (const char* name : {"memory_tokens.tokens", "recurrent_tokens.tokens"}) {
    if (const at::Tensor tokens = find(name); tokens.defined())
      sequence.memory = numbers(tokens.to(at::kCPU, at::kFloat));
  }
  const std::string core_name = plan_.grc ? ".attn.core." : ".attn.";
  for (int64_t n = 0; plan_.grc && n < plan_.layers; ++n) {
    const std::string path = "layers.backbone.layers." + std::to_string(n) + ".attn.grc.";
    GrcMemory& memory = sequence.grc[static_cast<size_t>(n)];
    memory.cache = numbers(find(path + "cache").to(at::kCPU, at::kFloat));
    layers_[static_cast<size_t>(n)].grc->project(memory);
    if (const at::Tensor rows = find(path + "rows"); rows.defined()) {
      const int64_t padding = padding_of(find(path + "valid"));
      memory.rows = numbers(rows.narrow(1, padding, rows.size(1) - padding).to(at::kCPU, at::kFloat));
    }
  }
  const at::Tensor length = find("open.length"), open_valid = find("open.valid");
  if (length.defined()) {
    sequence.open_segment();
    sequence.length = length.item<int64_t>();
    const int64_t padding = padding_of(open_valid), keys = open_valid.size(1) - padding;
    sequence.cached = keys - sequence.length;
    if (!plan_.abc) sequence.reserve(keys, 0);
    for (int64_t n = 0; !plan_.abc && n < plan_.layers; ++n) {
      const std::string path = "layers.backbone.layers." + std::to_string(n) + core_name + "kv_cache.";
      auto& layer = sequence.layers_[static_cast<size_t>(n)];
      sequence.import_heads(find(path + "k"), padding, layer.k, sequence.capacity_, sequence.first_, wide_keys());
      sequence.import_heads(find(path + "v"), padding, layer.v, sequence.capacity_, sequence.first_, wide_keys());
    }
    sequence.keys = keys;
  }
  for (int64_t n = 0; plan_.abc && n < plan_.layers; ++n) {
    const std::string path = "layers.backbone.layers." + std::to_string(n) + core_name;
    auto& layer = sequence.layers_[static_cast<size_t>(n)];
    sequence.import_heads(find(path + "k"), 0, layer.k, plan_.slots, 0, true);
    sequence.import_heads(find(path + "v"), 0, layer.v, plan_.slots, 0, true);
    const std::vector<float> z = numbers(find(path + "z").to(at::kCPU, at::kFloat));
    std::copy(z.begin(), z.end(), layer.z.as<float>());
  }
  if (!plan_.cache) return sequence;
  const at::Tensor valid = find("segment_cache.valid");
  const int64_t padding = padding_of(valid), rows = valid.size(1) - padding;
  sequence.reserve(0, rows);
  for (int64_t n = 0; n < plan_.layers && rows > 0; ++n) {
    const std::vector<float> cached = numbers(
        find("segment_cache.layers." + std::to_string(n)).to(at::kCPU, at::kFloat));
    std::copy(cached.begin() + padding * plan_.dim, cached.end(), sequence.cached_rows(n));
  }
  sequence.kept = rows;
  if (sequence.open() || rows == 0) return sequence;
  // Between segments the state has the cache's rows alone: their keys and values anew.
  sequence.reserve(rows, 0);
  Workspace workspace;
  workspace.resize(*this, kRows);
  for (int64_t n = 0; n < plan_.layers; ++n) {
    const Layer& layer = layers_[static_cast<size_t>(n)];
    for (int64_t from = 0; from < rows; from += kRows) {
      const int64_t count = std::min(kRows, rows - from);
      const float* x = sequence.cached_rows(n) + from * plan_.dim;
      if (plan_.pre_norm)
        x = workspace.normalised(x, count, plan_.dim, layer.norm1.weight, layer.norm1.bias, plan_.norm_eps);
      layer.maps(x, count, plan_.dim, workspace.maps.data(), layer.maps.out());
      for (int64_t row = 0; row < count; ++row)
        workspace.store_keys(*this, sequence, n, from + row, workspace.maps.data() + row * layer.maps.out());
    }
  }
  sequence.keys = sequence.cached = rows;
  return sequence;
}

int64_t Engine::bytes_per_token(int64_t keys) const {
  const int64_t number = wide_keys() ? 4 : 2, row = plan_.heads * plan_.head_dim;
  int64_t bytes = head_.num_bytes();
  for (const Layer& layer : layers_) {
    bytes += layer.maps.num_bytes() + layer.o.num_bytes() + layer.in.num_bytes() + layer.out.num_bytes();
    if (layer.grc)
      bytes += layer.grc->num_bytes() + static_cast<int64_t>(caches_[0].k.size() + caches_[0].v.size()) * 4;
    bytes += plan_.abc ? plan_.heads * plan_.slots * (2 * plan_.head_dim + 1) * 4
                       : keys * row * number * (plan_.relative ? 3 : 2);
  }
  return bytes;
}

std::shared_ptr<const Engine::Distances> Engine::distances(int64_t longest) const {
  const std::lock_guard lock(mutex_);
  const int64_t right = std::max<int64_t>(0, plan_.memory_rows - 1);
  if (distances_->count >= longest + 1 + right && distances_->count > 0) return distances_;
  const c10::InferenceMode inference;
  auto grown = std::make_shared<Distances>();
  grown->right = right;
  grown->count = right + 64;
  while (grown->count < longest + 1 + right) grown->count *= 2;
  at::Tensor numbers_of = at::arange(-right, grown->count - right, at::kDouble);
  if (plan_.clamp > 0) numbers_of = numbers_of.clamp(-plan_.clamp, plan_.clamp);
  const at::Tensor rows = ops::sinusoids(numbers_of, plan_.dim, at::TensorOptions().dtype(at::kFloat));
  for (const Layer& layer : layers_) {
    const at::Tensor r = at::constant_pad_nd(
                             at::linear(rows, layer.r).view({grown->count, plan_.heads, plan_.head_dim}),
                             {0, plan_.width - plan_.head_dim})
                             .transpose(0, 1)
                             .contiguous();
    ops::AlignedBytes& memory = grown->layers.emplace_back(r.numel() * (wide_keys() ? 4 : 2));
    if (wide_keys()) {
      ops::copy_row(r.const_data_ptr<float>(), r.numel(), memory.as<float>());
    } else {
      ops::copy_row(r.const_data_ptr<float>(), r.numel(), memory.as<ops::Bf16Bits>());
    }
  }
  distances_ = std::move(grown);
  return distances_;
}

}  // namespace mnemo::infer
