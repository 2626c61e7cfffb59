#include "ops/attention/key_ranges.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace mnemo::ops {
Plain plain_form(const KeyRanges& ranges) {
  if (ranges.valid.defined()) return Plain::no;
  const int64_t queries = ranges.queries(), keys = ranges.keys;
  const int32_t *offsets = ranges.offsets.const_data_ptr<int32_t>(), *bounds = ranges.bounds.const_data_ptr<int32_t>();
  bool all = true, causal = queries == keys;
  for (int64_t i = 0; i < queries && (all || causal); ++i) {
    if (offsets[i + 1] - offsets[i] != 1 || bounds[2 * offsets[i]] != 0) return Plain::no;
    const int64_t end = bounds[2 * offsets[i] + 1];
    all = all && end == keys;
    causal = causal && end == i + 1;
  }
  return all ? Plain::all : causal ? Plain::causal : Plain::no;
}

void KeyRangesBuilder::add(int64_t begin, int64_t end) {
  if (begin >= end) return;
  const bool same_query = bounds_.size() > 2 * static_cast<size_t>(offsets_.back());
  if (same_query && bounds_.back() == begin) {
    bounds_.back() = static_cast<int32_t>(end);
  } else {
    bounds_.insert(bounds_.end(), {static_cast<int32_t>(begin), static_cast<int32_t>(end)});
  }
}

void KeyRangesBuilder::end_query() { offsets_.push_back(static_cast<int32_t>(bounds_.size() / 2)); }

KeyRanges KeyRangesBuilder::ranges() const {
  const auto options = at::TensorOptions().dtype(at::kInt);
  KeyRanges ranges;
  ranges.keys = keys_;
  ranges.offsets = at::empty({static_cast<int64_t>(offsets_.size())}, options);
  ranges.bounds = at::empty({static_cast<int64_t>(bounds_.size() / 2), 2}, options);
  std::copy(offsets_.begin(), offsets_.end(), ranges.offsets.mutable_data_ptr<int32_t>());
  std::copy(bounds_.begin(), bounds_.end(), ranges.bounds.mutable_data_ptr<int32_t>());
  return ranges;
}

KeyRanges KeyRanges::all(int64_t queries, int64_t keys) {
  KeyRangesBuilder builder(keys);
  for (int64_t i = 0; i < queries; ++i) {
    builder.add(0, keys);
    builder.end_query();
  }
  return builder.ranges();
}

KeyRanges KeyRanges::causal(int64_t queries, int64_t keys) {
  KeyRangesBuilder builder(keys);
  for (int64_t i = 0; i < queries; ++i) {
    builder.add(0, i + keys - queries + 1);
    builder.end_query();
  }
  return builder.ranges();
}

KeyRanges KeyRanges::from_mask(const at::Tensor& mask) {
  base::ensure(mask.dim() == 2 && mask.scalar_type() == at::kBool, "key ranges: expected a mask bool [Q,K]");
  const at::Tensor rows = mask.to(at::kCPU).contiguous();
  const int64_t keys = mask.size(1);
  KeyRangesBuilder builder(keys);
  for (int64_t i = 0; i < mask.size(0); ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      if (rows.const_data_ptr<bool>()[i * keys + j]) builder.add(j, j + 1);
    }
    builder.end_query();
  }
  return builder.ranges();
}

at::Tensor KeyRanges::mask() const {
  at::Tensor mask = at::zeros({queries(), keys}, at::kBool);
  const int32_t* first = offsets.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < queries(); ++i) {
    bool* row = mask.mutable_data_ptr<bool>() + i * keys;
    for (int32_t r = first[i]; r < first[i + 1]; ++r) {
      const int32_t* bound = bounds.const_data_ptr<int32_t>() + 2 * r;
      std::fill(row + bound[0], row + bound[1], true);
    }
  }
  return valid.defined() ? mask.to(valid.device()).unsqueeze(0).logical_and(valid.unsqueeze(1)) : mask;
}

}  // namespace mnemo::ops
