#pragma once

#include <string>
#include <string_view>

#include "base/node.h"

namespace mnemo::base {

/// Makes text valid UTF-8 for JSON: invalid bytes become \xNN.
std::string json_text(std::string_view text);
/// A number for JSON; infinity and NaN become null.
Node json_number(double value);
/// A JSON number with six decimals, enough for a weight.
Node rounded(double value);

/// The cause in a message of the JSON parser, without the parser's names and position:
///   "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." is "syntax error ..."
std::string_view json_parser_words(std::string_view message);

/// Applies json_text() to every string of the node.
Node with_json_texts(Node node);

}  // namespace mnemo::base
