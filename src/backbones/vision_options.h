#pragma once

#include <variant>

#include "backbones/pvt_options.h"
#include "backbones/pvt_v2_options.h"
#include "backbones/resnet_options.h"
#include "backbones/swin_options.h"
#include "backbones/vit_options.h"

namespace mnemo::backbones {

/// The options of every image backbone; `kType` is its name, `Backbone` the class they build. To add a backbone, add an
/// alternative.
using VisionOptions = std::variant<VitOptions, PvtOptions, PvtV2Options, SwinOptions, ResnetOptions>;

}  // namespace mnemo::backbones
