#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "infer/generate_options.h"

namespace mnemo::infer {

/// How often each token of a sequence has been counted: an entry for each different one, and nothing for the others.
class TokenCounts {
 public:
  struct Entry {
    int32_t token;
    int32_t read;     ///< in what was fed
    int32_t written;  ///< in what was sampled
  };
  void add_read(std::span<const int64_t> tokens);
  void add_written(int64_t token) { add(token, 0, 1); }
  /// Adds to a token's counts, which end at the largest int32.
  void add(int64_t token, int32_t read, int32_t written);
  /// By ascending token.
  std::span<const Entry> entries() const { return entries_; }
  int64_t num_bytes() const { return static_cast<int64_t>(entries_.size() * sizeof(Entry)); }

 private:
  std::vector<Entry> entries_;
};

/// Samples tokens. It has no state: the random number depends only on (seed, draw), so a text depends neither on the
/// rest of the batch nor on earlier draws. Safe to use from any number of threads.
class Sampler {
 public:
  /// unknown_id: the token <unk>, which is never sampled unless options.sample_unknown; -1: none. vocabulary: tokens
  /// from this one on are never sampled, as published models have rows in their output that stand for nothing. Throws
  /// InputError for options out of range.
  explicit Sampler(const GenerateOptions& options = {}, int64_t unknown_id = -1, int64_t vocabulary = INT64_MAX);

  /// Samples one token. logits [V] of a floating-point type, on any device; -inf = never. Ties are broken in favour of
  /// the lowest id. `seen` is what the penalties count. Throws ShapeError for another shape, and InputError for NaN,
  /// +inf or no finite value.
  int64_t pick(const at::Tensor& logits, uint64_t draw, const TokenCounts& seen = {}) const;
  int64_t pick(std::span<const float> logits, uint64_t draw, const TokenCounts& seen = {}) const;

  const GenerateOptions& options() const { return options_; }
  int64_t unknown_id() const { return unknown_id_; }
  int64_t vocabulary() const { return vocabulary_; }

 private:
  template <class T>
  int64_t pick(const T* logits, int64_t rows, uint64_t draw, const TokenCounts& seen) const;

  GenerateOptions options_;
  int64_t unknown_id_, vocabulary_;
};

/// Samples one token for each row of logits [B,V], row b with samplers[b] and draws[b].
std::vector<int64_t> pick_rows(const at::Tensor& logits, std::span<const Sampler> samplers,
                               std::span<const uint64_t> draws);

/// Converts floating-point logits to contiguous float32 or float64 on the CPU, which pick() reads without another copy.
at::Tensor readable_logits(const at::Tensor& logits);

}  // namespace mnemo::infer
