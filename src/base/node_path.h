#pragma once

#include <string>
#include <string_view>

#include "base/node.h"

namespace mnemo::base {

/// Sets the value under a key such as "model.memory[0].mem_len"; see set_value. Throws InputError that starts with the
/// place of `value` and leaves `root` unchanged.
void set_at(Node& root, std::string_view key, Node value);

/// The value at such a key; null if there is none. Throws InputError for an invalid key.
const Node* find_at(const Node& root, std::string_view key);

/// The key of an assignment "KEY=VALUE", without blanks around it and with indices in brackets: "model.memory[0].type"
/// of "model.memory.0.type =x". Throws InputError as set_value does.
std::string assigned_key(std::string_view assignment);

}  // namespace mnemo::base
