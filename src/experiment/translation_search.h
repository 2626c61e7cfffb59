#pragma once

#include <optional>

#include "bundle/bundle.h"
#include "recipes/recipe.h"
#include "search/beam_search.h"
#include "search/generation_search.h"

namespace mnemo::experiment {

// How a translation model is searched, by training, eval and translate alike: as data.search of its recipe says, and
// with that beam search where memory goes from pair to pair; without, as the folder of the published model says that it
// is or began with (generation_config.json); where there is none, by fairseq's beam search with its defaults.

/// The beam search that the recipe's pairs name, or need since their memory goes from pair to pair; unset: neither.
std::optional<search::BeamSearchOptions> own_search(const std::optional<recipes::Recipe>& recipe);

/// The search of a stored published model; unset where the recipe of its run has its own, or there is none. Throws
/// InputError as infer::generation_settings().
std::optional<search::GenerationOptions> published_search(const bundle::Bundle& stored,
                                                          const std::optional<recipes::Recipe>& recipe);
/// The published search of the model that a training of pairs starts from.
std::optional<search::GenerationOptions> published_search(const recipes::Recipe& recipe);

}  // namespace mnemo::experiment
