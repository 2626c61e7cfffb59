#include "experiment/translation_search.h"

#include "bundle/model_folder.h"
#include "bundle/published_config.h"
#include "infer/generation_settings.h"
#include "tasks/types/pairs.h"

namespace mnemo::experiment {

std::optional<search::BeamSearchOptions> own_search(const std::optional<recipes::Recipe>& recipe) {
  const auto task = recipe ? recipe->task() : nullptr;
  const auto* pairs = dynamic_cast<const tasks::PairSpec*>(task.get());
  if (pairs == nullptr) return std::nullopt;
  const std::optional<search::BeamSearchOptions>& search = pairs->options().search;
  return search || !pairs->has_segments() ? search : search::BeamSearchOptions();
}

std::optional<search::GenerationOptions> published_search(const bundle::Bundle& stored,
                                                          const std::optional<recipes::Recipe>& recipe) {
  return own_search(recipe) ? std::nullopt : infer::generation_settings(stored);
}

std::optional<search::GenerationOptions> published_search(const recipes::Recipe& recipe) {
  if (!recipe.init || own_search(recipe)) return std::nullopt;
  const std::string folder = bundle::find_model_folder(*recipe.init);
  return infer::generation_settings(folder, bundle::read_published(folder).format != nullptr, recipe.model);
}

}  // namespace mnemo::experiment
