#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/node.h"

namespace mnemo::weights {

/// A size that may be written as one number or as [height, width]: always the latter. Throws InputError for anything
/// else.
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

/// A size of one number, written so or as a pair of equal ones.
inline base::Node size_square(const base::Node& size) {
  const base::Node pair = size_pair(size);
  base::require(pair.items()[0] == pair.items()[1], "{}: expected equal sides, found {} x {}", size.where(),
                pair.items()[0].as_int(), pair.items()[1].as_int());
  return pair.items()[0];
}

/// The member of that name, or `otherwise` where it is missing or null.
inline base::Node member_or(const base::Node& table, std::string_view key, const base::Node& otherwise) {
  const base::Node* found = table.find(key);
  return found == nullptr || found->is_null() ? otherwise : *found;
}

}  // namespace mnemo::weights
