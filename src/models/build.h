#pragma once

#include <cstdint>
#include <memory>

#include "core/model.h"
#include "models/options.h"

namespace mnemo::models {

/// Builds a model of any backbone, a language model or one of images; its fresh parameters depend on the seed alone.
/// Throws InputError for options that make no sense or ask for more than the budget.
std::unique_ptr<core::Model> build_any(const ModelOptions& options, uint64_t seed = 0,
                                       at::ScalarType dtype = at::kFloat, const layers::Budget& budget = {});

/// Parameters of a model of those options, counted from their declarations alone.
int64_t count_parameters(const ModelOptions& options);

/// The options that a model was built from. Throws InternalError for a model of another kind than build_any makes.
const ModelOptions& options_of(const core::Model& model);

}  // namespace mnemo::models
