#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/json_value.h"
#include "base/node.h"

namespace mnemo::base {

/// The reader of standard output has exited (`mnemo generate … | head`). The command ends immediately with status 0.
struct OutputClosed {};

/// Writes to standard output and flushes. Throws OutputClosed, or InputError if writing fails (for example on a full
/// disk).
void print(std::string_view text);

/// Columns of the terminal that standard output is; 0 where it is none, so that tables are not broken.
size_t output_columns();

/// Prints a result as JSON with an indentation of two spaces; strings are converted by json_text().
void print_json(const Node& node);

}  // namespace mnemo::base
