#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/typed_options.h"

namespace mnemo::core {

/// The maximum number of rows of a sequence that an attention supports, and the option that sets it.
struct RowLimit {
  int64_t rows;
  base::TypedOptions attention;
  std::string key;  ///< in its table

  /// Throws InputError if `wanted` exceeds the limit; `what` explains where the rows come from.
  void require(int64_t wanted, const std::string& what) const {
    base::require(wanted <= rows, "{}: allows only {} rows, expected at least {}: {}", attention.where(key), rows,
                  wanted, what);
  }
};

}  // namespace mnemo::core
