#pragma once

#include <cstdint>
#include <string>

#include "base/node.h"
#include "base/options.h"

namespace mnemo::core {

/// The maximum number of rows of a sequence that an attention supports, and the option that sets it.
struct RowLimit {
  int64_t rows;
  base::Node table;  ///< the table that contains the key
  std::string key;

  /// Throws InputError if `wanted` exceeds the limit; `what` explains where the rows come from.
  void require(int64_t wanted, const std::string& what) const {
    base::Where(&table, table.path())
        .require(wanted <= rows, key, "allows only {} rows, expected at least {}: {}", rows, wanted, what);
  }
};

}  // namespace mnemo::core
