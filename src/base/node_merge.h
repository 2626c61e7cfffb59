#pragma once

#include "base/node.h"

namespace mnemo::base {

/// `over` on top of `under`: tables key by key, everything else replaced, tables of another `type` too.
Node merge(const Node& under, const Node& over);

}  // namespace mnemo::base
