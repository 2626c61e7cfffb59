#pragma once

#include <optional>

#include "bundle/bundle.h"
#include "experiment/recipe.h"
#include "search/beam_search.h"
#include "search/generation_search.h"

namespace mnemo::experiment {

/// How a translation model is searched, by training, eval and translate alike: as data.search of its recipe says, and
/// with that beam search where memory goes from pair to pair; without, as the folder of the published model says that
/// it is or began with (generation_config.json); where there is none, by fairseq's beam search with its defaults.
struct TranslationSearch {
  search::BeamSearchOptions beam = {};
  std::optional<search::GenerationOptions> generation = {};  ///< set: in place of `beam`
};

/// Of a stored model; recipe: of its run. Throws InputError as infer::generation_settings().
TranslationSearch translation_search(const bundle::Bundle& stored, const std::optional<Recipe>& recipe);

/// The search of the published model that a training of pairs starts from; unset: the recipe says another, or none is
/// there.
std::optional<search::GenerationOptions> search_of_start(const Recipe& recipe);

}  // namespace mnemo::experiment
