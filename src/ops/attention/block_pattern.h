#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/attention/key_ranges.h"

namespace mnemo::ops {

/// BigBird's pattern of blocks (Zaheer et al. 2020): bool [N,N], true = the block of queries i sees the block of keys
/// j.
///   j = 0, N-1 (global), i-1, i, i+1 (window), and `random_blocks` of the others; the blocks 0 and N-1 see all
/// The random blocks are the first of the others after a Fisher-Yates shuffle with the stream (seed, layer, i) of
/// base/random.h, or all if there are fewer.
at::Tensor bigbird_blocks(int64_t blocks, int64_t random_blocks, uint64_t seed, uint64_t layer);

/// The key ranges of `rows` rows that attend to each other in blocks of block_size rows; the last block may be shorter.
KeyRanges block_ranges(const at::Tensor& blocks, int64_t block_size, int64_t rows);

/// Naive reference for block_ranges: bool [rows, rows].
at::Tensor block_mask(const at::Tensor& blocks, int64_t block_size, int64_t rows);

}  // namespace mnemo::ops
