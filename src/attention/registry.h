#pragma once

#include "core/attention_entry.h"

namespace mnemo::attention {

/// What `backbone.attention` is where an options table names none.
inline constexpr const char* kDefaultAttention = "relative";

/// Every attention of this folder: option types and factories, filled by explicit lines.
void add_attentions(base::OptionTypes& types, base::Registry<core::AttentionEntry>& entries);

/// Those that read the rows of an image or of a window of it, which only the backbones of vision models hand them.
void add_image_attentions(base::OptionTypes& types, base::Registry<core::AttentionEntry>& entries);

}  // namespace mnemo::attention
