#pragma once

#include <vector>

#include "models/presets.h"

namespace mnemo::models {

/// The papers' language models: WikiText-103 (words) and enwik8 (bytes).
void add_language_presets(std::vector<Preset>& presets);

}  // namespace mnemo::models
