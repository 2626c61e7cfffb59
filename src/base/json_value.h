#pragma once

#include <string>
#include <string_view>

#include "base/node.h"

namespace mnemo::base {

/// A text for JSON, which is UTF-8: bytes that are not become \xNN.
std::string json_text(std::string_view text);
/// A number for JSON, which has neither infinity nor NaN: these become null.
Node json_number(double value);
/// The same with six digits behind the point, which say enough of a weight.
Node rounded(double value);

/// Every text of the node as json_text() has it.
Node with_json_texts(Node node);

}  // namespace mnemo::base
