#pragma once

#include <vector>

#include "models/presets.h"

namespace mnemo::models {

/// The encoders of the Long Range Arena for Long ListOps, as released and as in the GRC paper.
void add_encoder_presets(std::vector<Preset>& presets);

}  // namespace mnemo::models
