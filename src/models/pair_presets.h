#pragma once

#include <vector>

#include "models/presets.h"

namespace mnemo::models {

/// Translation models, with the shapes of fairseq's architectures of the same names.
void add_pair_presets(std::vector<Preset>& presets);

}  // namespace mnemo::models
