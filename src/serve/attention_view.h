#pragma once

#include <string>

#include "base/node.h"
#include "base/stop.h"
#include "infer/text_session.h"

namespace mnemo::serve {

/// Where the last token of the last whole segment of a text looked: `layers`, for each map of attention weights its
/// columns, averaged over heads, the first `memory` of them rows of the past. resets: memory is reset at every segment.
/// Only the last 4,096 tokens are read. Throws ApiError 400 for a text shorter than a segment and for a model with too
/// many weights to compute, and base::Stopped.
base::Node last_attention(const infer::TextSession& like, bool resets, const std::string& text,
                          const base::ShouldStop& should_stop = {});

}  // namespace mnemo::serve
