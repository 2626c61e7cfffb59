#include "infer/engine_cache.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>

#include "infer/open_text.h"
#include "models/model.h"

namespace mnemo::infer {

bool EngineCache::Weights::equals(const Weights& other) const {
  return places == other.places && versions == other.versions &&
         std::ranges::equal(per_model, other.per_model,
                            [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
}

EngineCache::Weights EngineCache::weights_of(const models::Model& model) {
  Weights weights;
  for (const layers::Parameter& parameter : model.parameters().all()) {
    weights.places.push_back(parameter.tensor.const_data_ptr());
    weights.versions.push_back(parameter.tensor.is_inference() ? 0 : parameter.tensor._version());
  }
  const c10::InferenceMode inference;
  for (const auto& [field, tensor] : model.initial_state(1).fields()) {
    if (!field.per_sequence()) weights.per_model.push_back(tensor.clone());
  }
  return weights;
}

std::shared_ptr<const Engine> EngineCache::get(const std::shared_ptr<const models::Model>& model,
                                               const std::optional<std::string>& precision, std::string_view who,
                                               const std::string& kv_precision) {
  if (!unsupported_reason(*model).empty()) return make_engine(model, precision, who, kv_precision);
  const std::scoped_lock lock(mutex_);
  Weights weights = weights_of(*model);
  if (engine_ == nullptr || engine_->model() != model || precision_ != precision || kv_precision_ != kv_precision ||
      !weights_.equals(weights)) {
    engine_ = make_engine(model, precision, who, kv_precision);
    precision_ = precision;
    kv_precision_ = kv_precision;
    weights_ = std::move(weights);
  }
  return engine_;
}

}  // namespace mnemo::infer
