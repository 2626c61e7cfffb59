#pragma once

#include <functional>
#include <memory>

#include "core/attention_build.h"

namespace mnemo::core {

class Attention;

/// Creates the attention module of one layer, including memories on the attention seam.
using AttentionMaker = std::function<std::unique_ptr<Attention>(const AttentionBuild&)>;

}  // namespace mnemo::core
