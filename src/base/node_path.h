#pragma once

#include <string_view>

#include "base/node.h"

namespace mnemo::base {

/// Sets the value under a key such as "model.memory[0].mem_len"; see set_value. Throws InputError that starts from the
/// place of `value` and leaves `root` as it was.
void set_at(Node& root, std::string_view key, Node value);

/// The value under such a key; null where there is none. Throws InputError where the key is no key at all.
const Node* find_at(const Node& root, std::string_view key);

}  // namespace mnemo::base
