#pragma once

#include <cstdint>
#include <string>

#include "base/node.h"
#include "base/options.h"

namespace mnemo::core {

/// How many rows of a sequence an attention has places for, and the key that says so.
struct RowLimit {
  int64_t rows;
  base::Node table;  ///< that the key stands in
  std::string key;

  /// Throws InputError if `wanted` rows are more; `what` says what they are.
  void require(int64_t wanted, const std::string& what) const {
    base::Where(&table, table.path())
        .require(wanted <= rows, key, "has places for {} rows, expected {} at least: {}", rows, wanted, what);
  }
};

}  // namespace mnemo::core
