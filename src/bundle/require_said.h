#pragma once

#include <string>

#include "base/node.h"

namespace mnemo::bundle {

/// Throws InputError "WHO: ..." naming the first option of ours that another library's config.json has lost. path: of
/// both tables, empty for a whole [model].
void require_said(const base::Node& ours, const base::Node& said, const std::string& path, const std::string& who);

}  // namespace mnemo::bundle
