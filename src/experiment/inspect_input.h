#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bundle/bundle.h"
#include "data/segment.h"
#include "recipes/recipe.h"

namespace mnemo::experiment {

/// Input of `inspect`: at most one of a text, tokens, and a sample of the run's own training data.
struct InspectInput {
  std::optional<std::string> text, tokens;
  std::optional<int64_t> sample;
  bool given() const { return text.has_value() || tokens.has_value() || sample.has_value(); }
};

/// One sequence, cut into the model's segments, and its tokens for people.
struct InputSegments {
  std::vector<data::TokenSegment> segments;
  std::vector<std::vector<std::string>> words;
};

/// Throws InputError where the model cannot read what was given. `recipe` is the run's; a sample needs it.
InputSegments read_input(const InspectInput& input, const bundle::Bundle& stored,
                         const std::optional<recipes::Recipe>& recipe);

}  // namespace mnemo::experiment
