#pragma once

#include "base/node.h"

namespace mnemo::base {

/// Merges `over` into `under`: tables key by key; everything else, and tables of another `type`, is replaced.
Node merge(const Node& under, const Node& over);

}  // namespace mnemo::base
