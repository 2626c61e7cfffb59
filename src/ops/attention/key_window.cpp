#include "ops/attention/key_window.h"

#include <torch/types.h>

#include <algorithm>

namespace mnemo::ops {

KeyRanges key_window(const KeyRanges& ranges, int64_t left, int64_t right, int64_t dropped) {
  const int64_t queries = ranges.queries(), past = ranges.keys - queries;
  const int32_t *offsets = ranges.offsets.const_data_ptr<int32_t>(), *bounds = ranges.bounds.const_data_ptr<int32_t>();
  KeyRangesBuilder builder(ranges.keys - dropped);
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t self = i + past, first = std::max(self - left, dropped), last = self + right + 1;
    for (int32_t r = offsets[i]; r < offsets[i + 1]; ++r) {
      builder.add(std::max<int64_t>(bounds[2 * r], first) - dropped,
                  std::min<int64_t>(bounds[2 * r + 1], last) - dropped);
    }
    builder.end_query();
  }
  KeyRanges cut = builder.ranges();
  if (ranges.valid.defined()) cut.valid = ranges.valid.narrow(1, dropped, ranges.keys - dropped);
  return cut;
}

}  // namespace mnemo::ops
