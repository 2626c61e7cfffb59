#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/node.h"

namespace mnemo::weights {

/// A size written as one number or as [height, width]; returns the latter. Throws InputError for anything else.
inline base::Node size_pair(const base::Node& size) {
  base::Node pair = size;
  if (size.is_int()) {
    pair = base::Node::array({size, size});
    pair.set_place(size.place());
  }
  base::require(pair.is_array() && pair.size() == 2 && pair.items()[0].is_int() && pair.items()[1].is_int(),
                "{}: expected a number or [height, width], found {}", size.where(), size.found());
  return pair;
}

/// A single size, written as a number or as a pair of equal numbers.
inline base::Node size_square(const base::Node& size) {
  const base::Node pair = size_pair(size);
  base::require(pair.items()[0] == pair.items()[1], "{}: expected equal sides, found {} x {}", size.where(),
                pair.items()[0].as_int(), pair.items()[1].as_int());
  return pair.items()[0];
}

/// The member with that name, or `otherwise` if it is missing or null.
inline base::Node member_or(const base::Node& table, std::string_view key, const base::Node& otherwise) {
  const base::Node* found = table.find(key);
  return found == nullptr || found->is_null() ? otherwise : *found;
}

}  // namespace mnemo::weights
