#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace mnemo::ops {

/// Which keys each query may attend to: a few intervals of keys for each query, and padding keys of each sequence. Q
/// queries, K keys, R intervals in total, B batch.
struct KeyRanges {
  int64_t keys = 0;
  at::Tensor offsets;     ///< int32 [Q+1]: query i has the intervals offsets[i] .. offsets[i+1] - 1
  at::Tensor bounds;      ///< int32 [R,2]: first key and one past the last; ascending within a query, not touching
  at::Tensor valid = {};  ///< bool [B,K], false = padding; undefined = all keys are real

  int64_t queries() const { return offsets.size(0) - 1; }

  /// Every query sees every key.
  static KeyRanges all(int64_t queries, int64_t keys);
  /// Query i sees the keys 0 .. i + K - Q.
  static KeyRanges causal(int64_t queries, int64_t keys);
  /// From a mask bool [Q,K], true = may attend.
  static KeyRanges from_mask(const at::Tensor& mask);
  /// The mask, for naive references: bool [Q,K], or [B,Q,K] if there is padding.
  at::Tensor mask() const;
};

/// Whether LibTorch's own attention can be used: every query sees every key, or there are as many queries as keys and
/// each sees the keys to its left.
enum class Plain { no, all, causal };
Plain plain_form(const KeyRanges& ranges);

/// Builds KeyRanges query by query; touching intervals are merged.
class KeyRangesBuilder {
 public:
  explicit KeyRangesBuilder(int64_t keys) : keys_(keys) {}
  /// Adds begin .. end - 1 to the keys of the query; empty intervals are ignored. Intervals must be in ascending order.
  void add(int64_t begin, int64_t end);
  void end_query();
  KeyRanges ranges() const;

 private:
  int64_t keys_;
  std::vector<int32_t> offsets_ = {0}, bounds_;
};

}  // namespace mnemo::ops
