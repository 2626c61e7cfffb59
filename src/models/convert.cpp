#include "models/convert.h"

#include <torch/types.h>

#include "attention/softmax.h"
#include "base/error.h"
#include "models/registry.h"

namespace mnemo::models {

std::unique_ptr<Model> to_t2r(const Model& model, std::optional<int64_t> num_features, uint64_t seed) {
  ModelOptions options = model.options();
  const std::string type = type_of(options.backbone.attention);
  base::require(type == "softmax",
                "t2r: expected a softmax model, whose q, k, v and o projections are copied; found "
                "backbone.attention.type = \"{}\"",
                type);
  const auto softmax = base::read_typed_options<attention::SoftmaxOptions>(options.backbone.attention);
  base::Node attention = base::Node::table({{"type", "linear"}, {"feature_map", "t2r"}, {"bias", softmax.bias}});
  if (softmax.qkv_bias) attention.set("qkv_bias", *softmax.qkv_bias);
  if (num_features) attention.set("num_features", *num_features);
  options.backbone.attention = Mechanisms::all().attention_types.complete(attention);
  const layers::ParameterSet& from = model.parameters();
  auto made = build(options, seed, from.all().front().tensor.scalar_type());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : made->parameters().named()) {
    const at::Tensor source = from.find(name);
    if (source.defined()) at::Tensor(tensor).copy_(source);
  }
  made->commit(model.initial_state(1));
  return made;
}

}  // namespace mnemo::models
