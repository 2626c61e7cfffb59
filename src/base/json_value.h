#pragma once

#include <string>
#include <string_view>

#include "base/node.h"

namespace mnemo::base {

/// Makes text valid UTF-8 for JSON: invalid bytes become \xNN.
std::string json_text(std::string_view text);
/// A number for JSON; infinity and NaN become null.
Node json_number(double value);
/// The same with six decimals, enough for a weight.
Node rounded(double value);

/// What the JSON parser's message says is wrong, without its own names and its place:
///   "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." is "syntax error ..."
std::string_view json_parser_words(std::string_view message);

/// Applies json_text() to every string of the node.
Node with_json_texts(Node node);

}  // namespace mnemo::base
