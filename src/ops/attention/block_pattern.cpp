#include "ops/attention/block_pattern.h"

#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace mnemo::ops {

at::Tensor bigbird_blocks(int64_t blocks, int64_t random_blocks, uint64_t seed, uint64_t layer) {
  at::Tensor pattern = at::zeros({blocks, blocks}, at::kBool);
  for (int64_t i = 0; i < blocks; ++i) {
    bool* row = pattern.mutable_data_ptr<bool>() + i * blocks;
    if (i == 0 || i == blocks - 1) {
      std::fill(row, row + blocks, true);
      continue;
    }
    row[0] = row[blocks - 1] = row[i - 1] = row[i] = row[i + 1] = true;
    std::vector<int64_t> others;
    for (int64_t j = 0; j < blocks; ++j) {
      if (!row[j]) others.push_back(j);
    }
    const size_t drawn = std::min(others.size(), static_cast<size_t>(random_blocks));
    base::Random({seed, layer, static_cast<uint64_t>(i)}).shuffle(others, drawn);
    for (size_t n = 0; n < drawn; ++n) row[others[n]] = true;
  }
  return pattern;
}

KeyRanges block_ranges(const at::Tensor& blocks, int64_t block_size, int64_t rows) {
  const at::Tensor pattern = blocks.contiguous();
  const int64_t count = pattern.size(0);
  KeyRangesBuilder builder(rows);
  for (int64_t i = 0; i < rows; ++i) {
    const bool* row = pattern.const_data_ptr<bool>() + i / block_size * count;
    for (int64_t j = 0; j < count; ++j) {
      if (row[j]) builder.add(j * block_size, std::min((j + 1) * block_size, rows));
    }
    builder.end_query();
  }
  return builder.ranges();
}

at::Tensor block_mask(const at::Tensor& blocks, int64_t block_size, int64_t rows) {
  return blocks.repeat_interleave(block_size, 0)
      .repeat_interleave(block_size, 1)
      .narrow(0, 0, rows)
      .narrow(1, 0, rows)
      .contiguous();
}

}  // namespace mnemo::ops
