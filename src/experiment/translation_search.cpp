#include "experiment/translation_search.h"

#include "bundle/model_folder.h"
#include "bundle/published_config.h"
#include "infer/generation_settings.h"
#include "tasks/types/pairs.h"

namespace mnemo::experiment {
namespace {

/// The beam search that the recipe's pairs name, or need since their memory goes from pair to pair; unset: neither.
std::optional<search::BeamSearchOptions> search_of(const std::optional<Recipe>& recipe) {
  const auto task = recipe ? recipe->task() : nullptr;
  const auto* pairs = dynamic_cast<const tasks::PairSpec*>(task.get());
  if (pairs == nullptr) return std::nullopt;
  const std::optional<search::BeamSearchOptions>& search = pairs->options().search;
  return search || !pairs->has_segments() ? search : search::BeamSearchOptions();
}

}  // namespace

TranslationSearch translation_search(const bundle::Bundle& stored, const std::optional<Recipe>& recipe) {
  if (const auto asked = search_of(recipe)) return {.beam = *asked};
  return {.generation = infer::generation_settings(stored)};
}

std::optional<search::GenerationOptions> search_of_start(const Recipe& recipe) {
  if (!recipe.init || search_of(recipe)) return std::nullopt;
  const std::string folder = bundle::model_folder(*recipe.init);
  return infer::generation_settings(folder, bundle::read_published(folder).format != nullptr, recipe.model);
}

}  // namespace mnemo::experiment
