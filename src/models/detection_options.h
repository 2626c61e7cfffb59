#pragma once

#include <string>
#include <vector>

#include "heads/detection/detector_head.h"
#include "models/options.h"
#include "models/presets.h"

namespace mnemo::models {

heads::BackboneStages stages_of(const backbones::VisionOptions& vision);

/// Whether a model with these options finds objects in images, and whether with masks.
bool is_detector(const ModelOptions& model);
bool gives_masks(const ModelOptions& model);

/// A published detector for the 80 classes of COCO; also a preset of [model].
struct DetectorPreset {
  std::string name;           ///< HEAD_BACKBONE
  std::string backbone;       ///< preset of its model
  double published_millions;  ///< of parameters
  std::string keys = {};      ///< of the model beside the preset, as TOML
};
const std::vector<DetectorPreset>& detector_presets();
/// Adds them, after those of their backbones.
void add_detector_presets(std::vector<Preset>& presets);

}  // namespace mnemo::models
