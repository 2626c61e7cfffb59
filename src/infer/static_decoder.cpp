#include "infer/static_decoder.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/abc/abc.h"
#include "ops/attention/position.h"

namespace mnemo::infer {
namespace {

/// Room for keys at first; doubled where it ends.
constexpr int64_t kMinRoom = 256;

at::Tensor field_of(const core::State& state, const std::string& path) {
  for (const auto& [field, tensor] : state.fields()) {
    if (field.path == path) return tensor;
  }
  return {};
}

std::string attention_path(int64_t layer) { return "layers.backbone.layers." + std::to_string(layer) + ".attn."; }

/// The first dimension in rows of a larger room, zeros behind.
at::Tensor in_room(const at::Tensor& tensor, int64_t dim, int64_t room) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  const int64_t rows = sizes[static_cast<size_t>(dim)];
  sizes[static_cast<size_t>(dim)] = room;
  at::Tensor larger = at::zeros(sizes, tensor.options());
  larger.narrow(dim, 0, rows).copy_(tensor);
  return larger;
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace

std::string StaticDecoder::objection(const models::Model& model, const core::State& state) {
  try {
    const EnginePlan plan(model);
    if (plan.grc) return "it has no form of the memory 'grc'";
  } catch (const base::InputError& error) {
    return error.what();
  }
  const at::Tensor length = field_of(state, "open.length"), valid = field_of(state, "open.valid");
  if (!length.defined()) return "its segment is not open";
  if (length.size(0) != 1) return "it runs one sequence";
  if (!valid.all().item<bool>()) return "its rows are padded";
  return {};
}

StaticDecoder::StaticDecoder(std::shared_ptr<const models::Model> model, const core::State& state)
    : model_(std::move(model)), plan_(*model_), taken_(state) {
  const std::string objection = StaticDecoder::objection(*model_, state);
  base::require(objection.empty(), "static decoder: {}", objection);
  const c10::InferenceMode inference;
  take_weights();
  const int64_t length = field_of(state, "open.length").item<int64_t>();
  const auto numbers = layers_[0].maps.options().dtype(at::kLong);
  token_ = at::zeros({1}, numbers);
  row_ = at::full({1}, length, numbers);
  step_ = at::zeros({1}, numbers);
  for (int64_t n = 0; n < plan_.layers; ++n) {
    Layer& layer = layers_[static_cast<size_t>(n)];
    const std::string path = attention_path(n);
    layer.keys = field_of(state, path + (plan_.abc ? "k" : "kv_cache.k")).clone();
    layer.values = field_of(state, path + (plan_.abc ? "v" : "kv_cache.v")).clone();
    if (plan_.abc) layer.z = field_of(state, path + "z").clone();
    if (plan_.cache) layer.rows = at::zeros({0, plan_.dim}, layer.keys.options());
  }
  first_keys_ = plan_.abc ? 0 : layers_[0].keys.size(2);
  key_ = at::full({1}, first_keys_, numbers);
  grow(std::max(kMinRoom, 2 * first_keys_));
}

StaticDecoder::StaticDecoder(const StaticDecoder& other)
    : model_(other.model_),
      plan_(other.plan_),
      taken_(other.taken_),
      steps_(other.steps_),
      first_keys_(other.first_keys_),
      room_(other.room_),
      positions_(other.positions_),
      places_(other.places_),
      layers_(other.layers_) {
  const c10::InferenceMode inference;
  token_ = other.token_.clone();
  row_ = other.row_.clone();
  key_ = other.key_.clone();
  step_ = other.step_.clone();
  for (Layer& layer : layers_) {
    for (at::Tensor* tensor : {&layer.keys, &layer.values, &layer.z, &layer.rows}) {
      if (tensor->defined()) *tensor = tensor->clone();
    }
  }
}

void StaticDecoder::take_weights() {
  const layers::ParameterSet& parameters = model_->parameters();
  const auto find = [&](const std::string& name) {
    const at::Tensor found = parameters.find(name);
    return found.defined() ? found.detach() : found;
  };
  for (int64_t n = 0; n < plan_.layers; ++n) {
    const std::string name = "backbone.layers." + std::to_string(n), attn = name + ".attn";
    Layer layer;
    const JoinedMaps maps = joined_maps(plan_, parameters, n);
    layer.maps = maps.weight, layer.maps_bias = maps.bias;
    layer.o = find(attn + ".o.weight"), layer.o_bias = find(attn + ".o.bias");
    layer.in = find(name + ".ffn.0.weight"), layer.in_bias = find(name + ".ffn.0.bias");
    layer.out = find(name + ".ffn.1.weight"), layer.out_bias = find(name + ".ffn.1.bias");
    layer.norm1 = find(name + ".norm1.weight"), layer.norm1_bias = find(name + ".norm1.bias");
    layer.norm2 = find(name + ".norm2.weight"), layer.norm2_bias = find(name + ".norm2.bias");
    if (plan_.relative) {
      const std::string owner = find(name + ".u").defined() ? name : "backbone";
      layer.u = find(owner + ".u").unsqueeze(1);
      layer.v = find(owner + ".v").unsqueeze(1);
      layer.r = find(attn + ".r.weight");
    }
    layers_.push_back(std::move(layer));
  }
  if (plan_.position == EnginePlan::Position::learned) positions_ = find("backbone.positions.weight");
  if (plan_.position == EnginePlan::Position::sinusoidal) {
    const at::Tensor rows = at::arange(plan_.segment + 2 * plan_.memory_rows, at::kDouble);
    positions_ = ops::sinusoids(rows, plan_.dim, at::TensorOptions().dtype(at::kFloat)).to(layers_[0].maps.options());
  }
}

/// Puts keys, values and rows into rooms of that size; a graph recorded for smaller ones goes.
void StaticDecoder::grow(int64_t room) {
  const auto options = layers_[0].maps.options();
  places_ = at::arange(room, options.dtype(at::kLong));
  at::Tensor sinusoids;
  if (plan_.relative) {
    at::Tensor distances = at::arange(room, at::kDouble);
    if (plan_.clamp > 0) distances = distances.clamp_max(static_cast<double>(plan_.clamp));
    sinusoids = ops::sinusoids(distances, plan_.dim, at::TensorOptions().dtype(at::kFloat)).to(options);
  }
  for (Layer& layer : layers_) {
    if (!plan_.abc) {
      layer.keys = in_room(layer.keys, 2, room);
      layer.values = in_room(layer.values, 2, room);
    }
    if (plan_.cache) layer.rows = in_room(layer.rows, 0, room);
    if (plan_.relative) {
      layer.distances = at::linear(sinusoids, layer.r)
                            .view({room, plan_.heads, plan_.head_dim})
                            .permute({1, 2, 0})
                            .contiguous();
    }
  }
  room_ = room;
  graph_.reset();
  runs_in_place_ = 0;
}

at::Tensor StaticDecoder::step(int64_t token) {
  base::ensure(token >= 0 && token < plan_.vocab, "a token out of range");
  const c10::InferenceMode inference;
  if (!plan_.abc && first_keys_ + steps_ + 1 > room_) grow(2 * room_);
  token_.fill_(token);
  if (graph_ != nullptr) {
    graph_->replay();
  } else if (token_.is_cuda() && runs_in_place_ > 0) {
    // The run before this one has made what libraries make on first use; recording runs nothing itself.
    graph_ = ops::cuda::Graph::record([&] { run(); });
    graph_->replay();
  } else {
    ops::cuda::Graph::run_beside([&] { run(); }, token_.device());
  }
  ++runs_in_place_;
  ++steps_;
  return logits_.select(0, 0).clone();
}

void StaticDecoder::run() {
  const layers::ParameterSet& parameters = model_->parameters();
  const auto find = [&](const char* name) { return parameters.find(name); };
  const auto norm = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return at::layer_norm(x, {plan_.dim}, weight, bias, plan_.norm_eps);
  };
  const at::Tensor table = find("embed.weight").detach();
  at::Tensor h = table.index_select(0, token_) * plan_.embedding_factor;  // [1,D]
  if (positions_.defined()) h = h + positions_.index_select(0, row_);
  for (Layer& layer : layers_) {
    if (plan_.cache) layer.rows.index_copy_(0, step_, h);
    const at::Tensor x = plan_.pre_norm ? norm(h, layer.norm1, layer.norm1_bias) : h;
    const at::Tensor y = at::linear(attend(layer, at::linear(x, layer.maps, optional(layer.maps_bias))), layer.o,
                                    optional(layer.o_bias));
    h = plan_.pre_norm ? h + y : norm(h + y, layer.norm1, layer.norm1_bias);
    at::Tensor inner = at::linear(plan_.pre_norm ? norm(h, layer.norm2, layer.norm2_bias) : h, layer.in,
                                  optional(layer.in_bias));
    inner = plan_.activation == ops::RowActivation::relu
                ? at::relu(inner)
                : at::gelu(inner, plan_.activation == ops::RowActivation::gelu ? "none" : "tanh");
    const at::Tensor z = at::linear(inner, layer.out, optional(layer.out_bias));
    h = plan_.pre_norm ? h + z : norm(h + z, layer.norm2, layer.norm2_bias);
  }
  if (const at::Tensor weight = find("backbone.final_norm.weight"); weight.defined()) {
    h = norm(h, weight.detach(), find("backbone.final_norm.bias").detach());
  }
  const at::Tensor head = find("head.weight"), bias = find("head.bias");
  const at::Tensor logits = at::linear(h, head.defined() ? head.detach() : table,
                                       bias.defined() ? std::optional(bias.detach()) : std::nullopt);
  if (!logits_.defined()) logits_ = at::empty_like(logits);
  logits_.copy_(logits);
  row_.add_(1);
  step_.add_(1);
  if (!plan_.abc) key_.add_(1);
}

/// maps [1, 3*H*d (+ control)] -> joined heads [1,H*d].
at::Tensor StaticDecoder::attend(Layer& layer, const at::Tensor& maps) {
  const int64_t all = plan_.heads * plan_.head_dim;
  const auto heads = [&](int64_t part) {
    return maps.narrow(1, part * all, all).view({1, plan_.heads, 1, plan_.head_dim});
  };
  const at::Tensor q = heads(0), k = heads(1), v = heads(2);
  if (plan_.abc) {
    const int64_t own = plan_.abc_shared_control ? 1 : plan_.heads;
    const at::Tensor control = maps.narrow(1, 3 * all, own * plan_.slots)
                                   .view({1, own, 1, plan_.slots})
                                   .expand({-1, plan_.heads, -1, -1});
    const auto [o, memory] = ops::abc_causal(q, k, v, control, {layer.keys, layer.values, layer.z}, {},
                                             plan_.abc_activation, plan_.abc_eps, plan_.scale);
    layer.keys.copy_(memory.k);
    layer.values.copy_(memory.v);
    layer.z.copy_(memory.z);
    return o.reshape({1, all});
  }
  layer.keys.index_copy_(2, key_, k);
  layer.values.index_copy_(2, key_, v);
  const at::Tensor content = plan_.relative ? q + layer.u : q;
  at::Tensor scores = at::matmul(content, layer.keys.transpose(2, 3));  // [1,H,1,room]
  const at::Tensor distance = key_ - places_;                           // of every place, negative on the right
  if (plan_.relative) {
    const at::Tensor by_distance = at::matmul(q + layer.v, layer.distances);
    scores = scores + by_distance.index_select(3, distance.clamp_min(0));
  }
  at::Tensor unseen = distance.lt(0);
  if (plan_.band > 0) unseen = unseen.logical_or(distance.ge(plan_.band));
  scores = (scores * plan_.scale).masked_fill(unseen, -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), layer.values).reshape({1, all});
}

core::State StaticDecoder::state() const {
  const c10::InferenceMode inference;
  const int64_t kept = plan_.cache ? std::min(steps_, plan_.mem_len) : 0;
  const auto last = [&](const at::Tensor& older, const at::Tensor& fresh, int64_t dim) {
    const int64_t stay = std::min(older.size(dim), plan_.mem_len - kept);
    return at::cat({older.narrow(dim, older.size(dim) - stay, stay), fresh}, dim);
  };
  return taken_.map([&](const core::Field& field, const at::Tensor& tensor) -> at::Tensor {
    constexpr std::string_view kLayer = "layers.backbone.layers.", kCached = "segment_cache.layers.";
    const std::string& path = field.path;
    const auto real = [&](int64_t count) { return at::ones({1, count}, tensor.options()); };
    if (path == "open.length") return tensor + steps_;
    if (path == "open.valid") return at::cat({tensor, real(steps_)}, 1);
    if (path == "segment_cache.valid") return last(tensor, real(kept), 1);
    if (path.starts_with(kCached)) {
      const Layer& layer = layers_[static_cast<size_t>(std::stoll(path.substr(kCached.size())))];
      return last(tensor, layer.rows.narrow(0, steps_ - kept, kept).unsqueeze(0), 1);
    }
    if (!path.starts_with(kLayer)) return tensor;
    const Layer& layer = layers_[static_cast<size_t>(std::stoll(path.substr(kLayer.size())))];
    if (path.ends_with(".z")) return layer.z.clone();
    const at::Tensor& room = path.ends_with(".k") ? layer.keys : layer.values;
    return plan_.abc ? room.clone() : room.narrow(2, 0, first_keys_ + steps_).clone();
  });
}

int64_t StaticDecoder::num_bytes() const {
  int64_t bytes = 0;
  for (const Layer& layer : layers_) {
    for (const at::Tensor* tensor : {&layer.keys, &layer.values, &layer.z, &layer.rows}) {
      if (tensor->defined()) bytes += static_cast<int64_t>(tensor->nbytes());
    }
  }
  return bytes;
}

}  // namespace mnemo::infer
