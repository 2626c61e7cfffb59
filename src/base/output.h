#pragma once

#include <string>
#include <string_view>

#include "base/json_value.h"
#include "base/node.h"

namespace mnemo::base {

/// Whoever read standard output has gone (`mnemo generate … | head`). The command ends at once, with status 0.
struct OutputClosed {};

/// Writes to standard output and flushes. Throws OutputClosed, or InputError when it cannot be written (a full disk).
void print(std::string_view text);

/// Prints a result as JSON, two spaces a level; texts as json_text() has them.
void print_json(const Node& node);

}  // namespace mnemo::base
