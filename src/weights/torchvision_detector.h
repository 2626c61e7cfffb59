#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

#include "base/node.h"
#include "models/detection.h"
#include "weights/foreign.h"

/// Detectors of torchvision: a folder with the state_dict as model.safetensors and a config.json
///   {"architecture": "maskrcnn_resnet50_fpn", "num_classes": 91, "model_args": {"box_score_thresh": 0.05}}
/// architecture: retinanet_resnet50_fpn, fasterrcnn_resnet50_fpn or maskrcnn_resnet50_fpn. model_args, all optional:
/// torchvision's arguments of thresholds and counts; "backbone_name": "resnet50"; "norm_eps": 1e-5, which is 0 for the
/// weights that torchvision publishes as COCO_V1.
namespace mnemo::weights {

/// Whether a config.json names such a detector.
bool is_torchvision_detector(const base::Node& config);

/// The detector of a config.json. Classes as torchvision counts them: index 0 is the background of Faster and Mask
/// R-CNN, whose labels are one less here; RetinaNet's labels are the same. Throws InputError for an architecture or an
/// argument that is not supported.
models::DetectorOptions torchvision_detector_options(const base::Node& config);

/// The names of its tensors. Files with the names of torchvision before 0.12 are read too.
ForeignFormat torchvision_detector_format();

/// Fills a detector with those options from a state_dict. Throws InputError that lists tensors that are missing,
/// unexpected or wrongly shaped; the detector is then unchanged.
void load_torchvision_tensors(const TensorFile& file, models::Detector& detector, const std::string& where);

/// The detector in a folder, in float32 or float64. Throws InputError before anything that the file does not hold is
/// allocated.
models::Detector load_torchvision_detector(const std::string& folder, at::ScalarType dtype = at::kFloat);

}  // namespace mnemo::weights
