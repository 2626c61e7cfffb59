#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/state.h"
#include "infer/engine_grc.h"
#include "infer/engine_plan.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::infer {

/// One sequence in the decoding engine: its state in place, in memory that grows by doubling. A value; a copy goes on
/// alone.
///
/// Keys and values of the segment cache are kept beside its rows: W_k of a row is what it was when the row ran, so a
/// segment starts without projecting the cache anew.
class EngineSequence {
 public:
  /// An empty sequence. wide_keys: keys and values in float32, else in bf16.
  EngineSequence(const EnginePlan& plan, bool wide_keys);

  /// Makes room for `more` keys and `kept` rows of the cache behind those there are.
  void reserve(int64_t more, int64_t kept);
  /// Ends the open segment: what the cache does not keep goes.
  void close_segment();

  /// Key or value rows of a head, from the sequence's first key on.
  template <class T>
  T* keys_of(int64_t layer, int64_t head) const {
    return layers_[static_cast<size_t>(layer)].k.as<T>() + (head * capacity_ + first_) * plan_.width;
  }
  template <class T>
  T* values_of(int64_t layer, int64_t head) const {
    return layers_[static_cast<size_t>(layer)].v.as<T>() + (head * capacity_ + first_) * plan_.width;
  }
  ops::AbcSlots slots_of(int64_t layer, int64_t head) const;
  /// Rows that entered a layer, as the cache keeps them.
  float* cached_rows(int64_t layer) const {
    return layers_[static_cast<size_t>(layer)].rows.as<float>() + kept_first_ * plan_.dim;
  }

  /// Tokens of the open segment that have run.
  int64_t used() const { return open_ ? length - plan_.memory_rows : 0; }
  bool open() const { return open_; }
  void open_segment() { open_ = true; }

  int64_t keys = 0;            ///< of the cache, then of the open segment
  int64_t cached = 0;          ///< keys of the cache, as the open segment sees it
  int64_t length = 0;          ///< rows of the open segment
  int64_t kept = 0;            ///< rows that the cache has so far, those of the open segment included
  std::vector<float> memory;   ///< rows handed to the next segment, [m,D]
  std::vector<GrcMemory> grc;  ///< of each layer, where the model has a gated recurrent cache

  /// The state as the model has it, and the sequence's bytes.
  core::State state(const core::State& initial) const;
  int64_t num_bytes() const;

 private:
  friend class Engine;
  struct Layer {
    ops::AlignedBytes k, v;  ///< [H, capacity, width], or the slots [H, n, width]
    ops::AlignedBytes z;     ///< [H, n]
    ops::AlignedBytes rows;  ///< [kept_capacity, D]
  };
  void move_keys(int64_t capacity, int64_t skip_from, int64_t skip);
  at::Tensor export_heads(const ops::AlignedBytes& memory, int64_t stride, int64_t first, int64_t count,
                          bool wide) const;
  void import_heads(const at::Tensor& tensor, int64_t from, ops::AlignedBytes& memory, int64_t stride, int64_t first,
                    bool wide);

  EnginePlan plan_;
  bool wide_keys_;
  bool open_ = false;
  std::vector<Layer> layers_;
  int64_t capacity_ = 0, first_ = 0;            // of the keys
  int64_t kept_capacity_ = 0, kept_first_ = 0;  // of the cache's rows
};

}  // namespace mnemo::infer
