#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backbones/encoder.h"
#include "base/registry.h"
#include "core/backbone.h"

namespace mnemo::backbones {

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

}  // namespace mnemo::backbones
