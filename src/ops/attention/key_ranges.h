#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace mnemo::ops {

/// Which keys each query may attend to: for every query a few intervals of keys, and keys that are not real in some
/// sequence. Q queries, K keys, R intervals of all queries together, B batch.
struct KeyRanges {
  int64_t keys = 0;
  at::Tensor offsets;  ///< int32 [Q+1]: query i has the intervals offsets[i] .. offsets[i+1] - 1
  at::Tensor
      bounds;  ///< int32 [R,2]: first key and one past the last; ascending within a query, apart from one another
  at::Tensor valid = {};  ///< bool [B,K], false = padding; undefined = all keys are real

  int64_t queries() const { return offsets.size(0) - 1; }

  /// Every query sees every key.
  static KeyRanges all(int64_t queries, int64_t keys);
  /// Query i sees the keys 0 .. i + K - Q.
  static KeyRanges causal(int64_t queries, int64_t keys);
  /// From a mask bool [Q,K], true = may attend.
  static KeyRanges from_mask(const at::Tensor& mask);
  /// The mask again, for naive references: bool [Q,K], or [B,Q,K] where some keys are not real.
  at::Tensor mask() const;
};

/// What LibTorch's own attention has a form for: every query sees every key, or as many queries as keys see what lies
/// on their left.
enum class Plain { no, all, causal };
Plain plain_form(const KeyRanges& ranges);

/// Makes KeyRanges query by query; intervals that touch become one.
class KeyRangesBuilder {
 public:
  explicit KeyRangesBuilder(int64_t keys) : keys_(keys) {}
  /// The query sees begin .. end - 1 too; nothing where they are empty. Intervals come in ascending order.
  void add(int64_t begin, int64_t end);
  void end_query();
  KeyRanges ranges() const;

 private:
  int64_t keys_;
  std::vector<int32_t> offsets_ = {0}, bounds_;
};

}  // namespace mnemo::ops
