#pragma once

#include <string>
#include <string_view>

#include "base/node.h"

namespace mnemo::text {

/// The settings of a tokenizer_config.json: the plain values of its table. Tables and arrays inside, which may describe
/// thousands of added tokens, are read over. Throws InputError that names `where` for broken JSON, more than 8,192
/// settings, and anything but a table.
base::Node parse_tokenizer_config(std::string_view text, const std::string& where);

}  // namespace mnemo::text
