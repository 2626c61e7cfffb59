#pragma once

#include <optional>

#include "bundle/bundle.h"
#include "recipes/recipe.h"
#include "search/beam_search.h"
#include "search/generation_search.h"

namespace mnemo::experiment {

// The search of a translation model, for training, eval and translate alike. data.search of its recipe comes first; so
// does that beam search if memory is carried from pair to pair. Next comes the search of the published model that it is
// or started from (generation_config.json). Otherwise it is fairseq's beam search with its defaults.

/// The beam search that a stored model was trained with: of search.json in its folder, so that a copy of the folder
/// searches alike, else (models of earlier versions) of the recipe of its run. Unset if neither names one. Throws
/// InputError naming file and key.
std::optional<search::BeamSearchOptions> own_search(const bundle::Bundle& stored);

/// The search of a stored published model; unset where the recipe of its run has its own, or there is none. Throws
/// InputError as infer::generation_settings().
std::optional<search::GenerationOptions> published_search(const bundle::Bundle& stored,
                                                          const std::optional<recipes::Recipe>& recipe);
/// The published search of the model that a training of pairs starts from.
std::optional<search::GenerationOptions> published_search(const recipes::Recipe& recipe);

}  // namespace mnemo::experiment
