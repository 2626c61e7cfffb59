#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/options.h"

namespace mnemo::infer {

/// How a token is picked from logits x [V]:
///   p = softmax(x / temperature), then only the top_k likeliest, then the fewest of these that hold top_p of their
///   mass.
struct SamplingOptions {
  double temperature = 1.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  int64_t seed = 0;
  template <class V>
  void visit(V&& v) {
    v("temperature", temperature, "temperature that divides the logits; 0: always take the most likely token (greedy)",
      base::range(0.0, 1e6));
    v("top_k", top_k, "sample from the k most likely tokens; 0: all", base::range(0, 1 << 24));
    v("top_p", top_p, "nucleus sampling: sample from the smallest set of tokens with this total probability; 1: all",
      base::check("more than 0 and at most 1",
                  [](const base::Node& value) { return value.as_double() > 0.0 && value.as_double() <= 1.0; }));
    v("seed", seed, "random seed; the same seed gives the same text", base::at_least(0));
  }
  void validate(const base::Where& where) const;

  /// The likeliest token, always.
  static SamplingOptions greedy() { return {.temperature = 0.0}; }
};

/// Picks tokens. It holds no state: the random number of a draw follows from (seed, draw) alone, so that a text depends
/// neither on what else is in the batch nor on what was drawn before. Any number of threads may use it.
class Sampler {
 public:
  /// Throws InputError for options out of range.
  explicit Sampler(const SamplingOptions& options = {});

  /// One token. logits [V] of a floating type, on any device; -inf = never. Of equals the lowest id counts as likelier.
  /// Throws ShapeError for another shape, and InputError for NaN, +inf or nothing finite.
  int64_t pick(const at::Tensor& logits, uint64_t draw) const;
  int64_t pick(std::span<const float> logits, uint64_t draw) const;

  const SamplingOptions& options() const { return options_; }

 private:
  SamplingOptions options_;
};

/// One token for each row of logits [B,V], row b with samplers[b] and draws[b].
std::vector<int64_t> pick_rows(const at::Tensor& logits, std::span<const Sampler> samplers,
                               std::span<const uint64_t> draws);

/// Floating logits as contiguous float32 or float64 on the CPU: what pick() reads without another copy.
at::Tensor readable_logits(const at::Tensor& logits);

}  // namespace mnemo::infer
