#pragma once

#include <string>
#include <string_view>

#include "base/node.h"

namespace mnemo::cli {

/// Whoever read standard output has gone (`mnemo generate … | head`). The command ends at once, with status 0.
struct OutputClosed {};

/// Writes to standard output and flushes. Throws OutputClosed, or InputError when it cannot be written (a full disk).
void print(std::string_view text);

/// Prints a result as JSON, two spaces a level; texts as json_text() has them.
void print_json(const base::Node& node);

/// A text for JSON, which is UTF-8: bytes that are not become \xNN.
std::string json_text(std::string_view text);
/// A number for JSON, which has neither infinity nor NaN: these become null.
base::Node json_number(double value);
/// The same with six digits behind the point, which say enough of a weight.
base::Node rounded(double value);

/// A word as a shell takes it: in quotes where it needs them.
std::string shell_quoted(const std::string& word);

}  // namespace mnemo::cli
