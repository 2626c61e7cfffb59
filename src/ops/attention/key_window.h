#pragma once

#include <cstdint>

#include "ops/attention/key_ranges.h"

namespace mnemo::ops {

/// Restricts the ranges to a window around each query.
///   query i keeps the keys j with -right <= p <= left, p = i + K - Q - j its distance (keys are [past; rows of the
///   queries])
///   The first `dropped` keys no longer exist; the others are numbered from 0.
/// Naive reference: restricts ranges.mask() in the same way.
KeyRanges key_window(const KeyRanges& ranges, int64_t left, int64_t right, int64_t dropped = 0);

}  // namespace mnemo::ops
