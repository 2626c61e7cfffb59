#include "models/build.h"

#include <torch/types.h>

#include "base/error.h"
#include "models/model.h"
#include "models/vision_model.h"

namespace mnemo::models {

std::unique_ptr<core::Model> build_any(const ModelOptions& options, uint64_t seed, at::ScalarType dtype,
                                       const layers::Budget& budget) {
  base::check_options(options);
  if (options.backbone.is_vision()) return std::make_unique<VisionModel>(options, seed, dtype, budget);
  return std::make_unique<Model>(options, seed, dtype, budget);
}

int64_t count_parameters(const ModelOptions& options) {
  base::check_options(options);
  if (options.backbone.is_vision()) return VisionModel(options, 0, at::kFloat, {}, at::kMeta).parameters().count();
  return Model(options, 0, at::kFloat, {}, at::kMeta).parameters().count();
}

const ModelOptions& options_of(const core::Model& model) {
  if (const auto* vision = dynamic_cast<const VisionModel*>(&model)) return vision->options();
  const auto* language = dynamic_cast<const Model*>(&model);
  base::ensure(language != nullptr, "a model that was not built from options");
  return language->options();
}

}  // namespace mnemo::models
