#pragma once

#include "weights/safetensors.h"

namespace mnemo::test {

/// A tensor of every dtype that the reader supports, with NaN and infinity if the type has them, and tensors of rank 0
/// and of size 0.
weights::NamedTensors all_dtypes();

/// Same names in the same order, same dtypes and shapes, same bytes (so NaN equals NaN).
void expect_same_bytes(const weights::NamedTensors& found, const weights::NamedTensors& expected);

}  // namespace mnemo::test
