#pragma once

#include <cstdint>
#include <string_view>

#include "core/mode.h"

namespace mnemo::core {

/// Implemented by layer contexts and attentions whose state keeps rows of the past between segments. They declare how
/// large their state becomes, so that nothing of that size has to be allocated.
class Bounded {
 public:
  virtual ~Bounded() = default;
  /// The most rows that dimension M of the state field with that name has between segments; 0 for one that is empty
  /// then.
  virtual int64_t max_rows(std::string_view field, Mode mode) const = 0;
};

}  // namespace mnemo::core
