#pragma once

#include "core/attention_entry.h"

namespace mnemo::attention {

/// The type of `backbone.attention` if its options table names none.
inline constexpr const char* kDefaultAttention = "relative";

/// The default type of each of the three attentions of a translation model.
inline constexpr const char* kDefaultPairAttention = "softmax";

/// Registers the option types and factories of every attention in this folder, one explicit line each.
void add_attentions(base::OptionTypes& types, base::Registry<core::AttentionEntry>& entries);

/// Registers attentions over the rows of an image or a window; only backbones of vision models can use them.
void add_image_attentions(base::OptionTypes& types, base::Registry<core::AttentionEntry>& entries);

}  // namespace mnemo::attention
