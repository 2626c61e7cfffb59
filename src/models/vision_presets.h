#pragma once

#include <vector>

#include "models/presets.h"

namespace mnemo::models {

/// Vision Transformers small, base and large with patches of 16 and 32, for images of 224 x 224 and the 1000 classes of
/// ImageNet.
void add_vit_presets(std::vector<Preset>& presets);

/// PVT tiny, small and medium, PVTv2 B2 (also linear), B3 and B4, and Swin tiny, for the same images and classes.
void add_pyramid_presets(std::vector<Preset>& presets);

/// ResNet 18, 34, 50 and 101, for the same images and classes.
void add_resnet_presets(std::vector<Preset>& presets);

}  // namespace mnemo::models
