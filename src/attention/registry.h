#pragma once

#include <functional>
#include <memory>

#include "base/option_poly.h"
#include "core/attention.h"
#include "core/attention_build.h"

namespace mnemo::attention {

/// Makes an attention from its options table (checked and complete).
using Factory = std::function<std::unique_ptr<core::CoreAttention>(const base::Node& options,
                                                                   const core::AttentionBuild&)>;

/// Every attention of this folder: option types and factories, filled by explicit lines.
void add_attentions(base::OptionTypes& types, base::Registry<Factory>& factories);

/// Those that read the rows of an image or of a window of it, which only the backbones of vision models hand them.
void add_image_attentions(base::OptionTypes& types, base::Registry<Factory>& factories);

}  // namespace mnemo::attention
