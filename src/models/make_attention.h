#pragma once

#include <memory>
#include <vector>

#include "base/node.h"
#include "core/attention.h"
#include "core/attention_build.h"

namespace mnemo::models {

/// The attention of one layer: the core of those options, and the memory of the list that wraps attention, if any, around it.
std::unique_ptr<core::Attention> make_attention(const base::Node& core, const std::vector<base::Node>& memories, const core::AttentionBuild& build);

}  // namespace mnemo::models
