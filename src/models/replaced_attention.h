#pragma once

#include <string>

#include "base/node.h"
#include "models/options.h"

namespace mnemo::models {

/// The attention that takes the place of a trained model's own, as a complete table: what `made` says, and what the
/// model's weights need besides, its biases, grouped keys and values, and rotary positions. Throws InputError "WHO: .."
/// where the new one has no option for grouped keys or rotary positions that the model has, or would take the model's
/// only positions away.
base::Node replaced_attention(const BackboneOptions& backbone, base::Node made, const std::string& who);

}  // namespace mnemo::models
