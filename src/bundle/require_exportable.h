#pragma once

#include <functional>
#include <string>

#include "base/node.h"
#include "models/options.h"
#include "weights/foreign.h"

namespace mnemo::bundle {

/// config.json of another library's format for a model. read_back: the [model] table that the format makes of such a
/// file. Throws InputError "WHO: ..." that names all options which the format cannot store: first memories and
/// attention, then others that change what the model computes, last dropout.
base::Node exported_config(const weights::ForeignFormat& format, const models::ModelOptions& options,
                           const std::function<base::Node(const base::Node& config)>& read_back,
                           const std::string& who);

/// Options without memories, with the segments of `said` if those are longer: segments are then no part of the model,
/// only of how it was trained.
base::Node with_segments_of(base::Node options, const base::Node& said);

}  // namespace mnemo::bundle
