#pragma once

#include <cstdint>

namespace mnemo::ops {

/// Bytes of a panel of int4 or int4_offset with that many inputs.
int64_t four_bit_bytes(int64_t in, bool offset);

/// Rounds a panel [in][16] to four bits, in the layout of packed_panels.h. Each group of 32 weights of an output
/// becomes start + scale * 0 .. 15 with the least squared error among a few scales, start = -8 scale unless `offset`.
/// Returns false if a weight is not finite.
bool pack_four_bits(const float* panel, int64_t in, bool offset, uint8_t* to);

}  // namespace mnemo::ops
