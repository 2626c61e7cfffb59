#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/decode.h"
#include "ops/decode/decode_rows.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::core {

/// Memory layout of a decoder's keys and values: [H, capacity, width], where width is the head's, zero-padded to whole
/// vectors.
struct KeyLayout {
  int64_t heads = 0, head_dim = 0, width = 0;
  bool wide = true;   ///< float32, else bf16
  bool int8 = false;  ///< int8 with a scale for each row (ops::row_pitch), whatever `wide` says
  int64_t bytes_of_row() const { return bytes_of(width); }
  /// Bytes of a row's numbers without padding, and of its scale.
  int64_t bytes_in_use() const { return bytes_of(head_dim); }

 private:
  int64_t bytes_of(int64_t numbers) const { return int8 ? ops::row_pitch<int8_t>(numbers) : numbers * (wide ? 4 : 2); }
};

/// Keys and values of one layer of one sequence, [context; open segment], in memory that grows by a quarter. Keys of
/// context rows are kept when a segment ends: W_k x of a cached row does not change.
class KeyRowsState final : public CopiedState<KeyRowsState> {
 public:
  /// Stores keys from number `first` on; earlier ones were never imported.
  explicit KeyRowsState(const KeyLayout& layout, int64_t first = 0) : layout_(layout), missing_(first), keys_(first) {}
  /// A copy has room for a few more keys only: a search copies hypotheses at every step.
  KeyRowsState(const KeyRowsState& other);
  KeyRowsState& operator=(const KeyRowsState&) = delete;

  /// Reserves space for `more` keys.
  void reserve(int64_t more);
  /// Stores a key and its value, [H*d] each. Their space must have been reserved.
  void store(int64_t key, const float* k, const float* v);
  /// Counts `more` keys that have been stored after the last one.
  void append(int64_t more) { keys_ += more; }
  /// Keeps only these keys, and of them only the last `needed`. make(rows, from, count, number) stores keys computed
  /// from rows[from] on, starting at key `number`. Returns false and changes nothing if some of the keys are not
  /// stored.
  template <class Make>
  bool keep(std::span<const KeptKeys> kept, int64_t needed, const Make& make);
  /// Keeps only the last `count` keys.
  void trim(int64_t count) {
    const int64_t excess = std::max<int64_t>(0, keys_ - missing_ - count);
    first_ += excess;
    missing_ += excess;
  }

  int64_t keys() const { return keys_; }
  /// Index of the first stored key.
  int64_t first() const { return missing_; }
  /// The key or value row of a head.
  template <class T>
  T* key(int64_t head, int64_t number) const {
    return k_.as<T>() + (head * capacity_ + first_ + number - missing_) * ops::row_pitch<T>(layout_.width);
  }
  template <class T>
  T* value(int64_t head, int64_t number) const {
    return v_.as<T>() + (head * capacity_ + first_ + number - missing_) * ops::row_pitch<T>(layout_.width);
  }
  /// The last `count` keys or values as a tensor [1,H,count,d]; take() is the inverse.
  at::Tensor tensor(bool values, int64_t count) const;
  void take(const at::Tensor& k, const at::Tensor& v, int64_t count);
  int64_t num_bytes() const override;

 private:
  ops::AlignedBytes copy_of(const ops::AlignedBytes& memory, int64_t capacity) const;
  void move(int64_t capacity);
  /// The part of a run at or after key `first`, if the run begins with key `number`.
  static KeptKeys held_part(const KeptKeys& run, int64_t number, int64_t first) {
    const int64_t skipped = std::clamp<int64_t>(first - number, 0, run.count);
    return {run.from + skipped, run.count - skipped, run.rows};
  }
  void drop_to(std::span<const KeptKeys> kept, int64_t first);

  KeyLayout layout_;
  ops::AlignedBytes k_, v_;
  int64_t capacity_ = 0, first_ = 0;
  int64_t missing_ = 0, keys_ = 0;
};

template <class Make>
bool KeyRowsState::keep(std::span<const KeptKeys> kept, int64_t needed, const Make& make) {
  int64_t total = 0, number = 0;
  for (const KeptKeys& run : kept) total += run.count;
  const int64_t first = std::max<int64_t>(0, total - needed);
  for (const KeptKeys& run : kept) {
    const KeptKeys held = held_part(run, number, first);
    if (run.rows == nullptr && held.count > 0 && held.from < missing_) return false;
    number += run.count;
  }
  drop_to(kept, first);
  number = 0;
  for (const KeptKeys& run : kept) {
    const int64_t skipped = run.count - held_part(run, number, first).count;
    if (run.rows != nullptr) make(run.rows, skipped, run.count - skipped, number + skipped);
    number += run.count;
  }
  return true;
}

}  // namespace mnemo::core
