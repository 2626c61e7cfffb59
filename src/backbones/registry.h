#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backbones/encoder_options.h"
#include "backbones/vision_options.h"
#include "base/registry.h"
#include "core/attention_maker.h"

namespace mnemo::core {
class Backbone;
}

namespace mnemo::backbones {

struct VisionBuild;

/// A backbone of tokens: a stack of identical layers. (Image backbones have options of their own.)
struct StackEntry {
  std::string meaning;
  bool causal;  ///< a row sees itself and the rows to its left
  std::function<std::unique_ptr<core::Backbone>(const EncoderOptions&, const layers::Scope&,
                                                const core::AttentionMaker&)>
      make;
};

/// Every backbone of tokens, the default first.
const base::Registry<StackEntry>& stack_backbones();

/// The first of them that is causal, or the first that is not.
const std::string& stack_type(bool causal);

/// The image backbone with those options.
std::unique_ptr<core::Backbone> make_vision_backbone(const VisionOptions& options, const VisionBuild& build);

}  // namespace mnemo::backbones
