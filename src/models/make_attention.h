#pragma once

#include <memory>
#include <vector>

#include "base/node.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/image_layout.h"

namespace mnemo::models {

/// The attention of one layer: the core of those options, and the memory of the list that wraps attention, if any, around it.
std::unique_ptr<core::Attention> make_attention(const base::Node& core, const std::vector<base::Node>& memories, const core::AttentionBuild& build);
/// The same in an image backbone.
std::unique_ptr<core::Attention> make_image_attention(const base::Node& core, const std::vector<base::Node>& memories, const core::AttentionBuild& build,
                                                      const core::ImageLayout& image);

}  // namespace mnemo::models
