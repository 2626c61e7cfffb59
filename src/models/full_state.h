#pragma once

#include <cstdint>
#include <string_view>

#include "core/mode.h"

namespace mnemo::models {

class Model;

/// The most rows that dimension M of the state field with that path has between segments, as its memory declares
/// (core::Bounded); 0 for one that is empty then.
int64_t max_rows(const Model& model, std::string_view path, core::Mode mode);

/// Bytes of one sequence's state between segments once every memory is full, or has seen `rows` rows if that is less.
/// Nothing of that size is allocated.
int64_t full_state_bytes(const Model& model, core::Mode mode, int64_t rows);

}  // namespace mnemo::models
