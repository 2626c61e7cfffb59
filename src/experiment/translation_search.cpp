#include "experiment/translation_search.h"

#include "base/file_io.h"
#include "bundle/model_folder.h"
#include "bundle/published_config.h"
#include "experiment/experiment.h"
#include "infer/generation_settings.h"
#include "tasks/types/pairs.h"

namespace mnemo::experiment {
namespace {

/// The beam search that the recipe's pairs name, or need because their memory is carried from pair to pair; else unset.
std::optional<search::BeamSearchOptions> recipe_search(const std::optional<recipes::Recipe>& recipe) {
  const auto task = recipe ? recipe->task() : nullptr;
  const auto* pairs = dynamic_cast<const tasks::PairSpec*>(task.get());
  return pairs != nullptr ? pairs->own_search() : std::nullopt;
}

}  // namespace

std::optional<search::BeamSearchOptions> own_search(const bundle::Bundle& stored) {
  if (stored.folder.empty() || stored.format != nullptr) return std::nullopt;
  const std::string path = base::join_path(stored.folder, tasks::PairSpec::kSearchFile);
  if (!base::path_exists(path)) return recipe_search(own_recipe(stored));
  return base::read_options<search::BeamSearchOptions>(
      base::parse_json(base::read_file(path, uint64_t{1} << 20), path));
}

std::optional<search::GenerationOptions> published_search(const bundle::Bundle& stored,
                                                          const std::optional<recipes::Recipe>& recipe) {
  return recipe_search(recipe) ? std::nullopt : infer::generation_settings(stored);
}

std::optional<search::GenerationOptions> published_search(const recipes::Recipe& recipe) {
  if (!recipe.init || recipe_search(recipe)) return std::nullopt;
  const std::string folder = bundle::find_model_folder(*recipe.init);
  return infer::generation_settings(folder, bundle::read_published(folder).format != nullptr, recipe.model);
}

}  // namespace mnemo::experiment
