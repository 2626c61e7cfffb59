#pragma once

#include <string_view>
#include <vector>

#include "base/node.h"
#include "weights/foreign.h"

/// The residual networks of torchvision and timm, and in torchvision's detectors.
namespace mnemo::weights {

/// The keys of [model] backbone for "resnet50" and its kin: type, block, depths. Throws InputError for another name.
base::Node resnet_backbone(std::string_view architecture);
/// The name of a residual network with this block and these depths; resnet50 where none has them.
std::string_view resnet_name(const backbones::ResnetOptions& options);

/// Names of its tensors, running statistics included.
std::vector<NameRule> resnet_rules();

/// The file without the number of batches that each norm has counted, which nothing reads.
TensorFile without_batch_counts(const TensorFile& file);

}  // namespace mnemo::weights
