#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/options.h"

namespace mnemo::infer {

/// How a token is sampled from logits x [V]. First tokens are penalised for having occurred:
///   x = x / repetition_penalty if x > 0, else x * repetition_penalty    of a token that was read or written (Keskar et
///                                                                       al. 2019, CTRL)
///   x = x - frequency_penalty * count - presence_penalty                of a token written count > 0 times (OpenAI)
/// then p = softmax(x / temperature), restricted to the top_k most likely tokens, to the fewest of these that hold
/// top_p of their probability, and to those with at least min_p times the probability of the most likely token.
struct SamplingOptions {
  double temperature = 1.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  int64_t seed = 0;
  bool sample_unknown = false;
  template <class V>
  void visit(V&& v) {
    v("temperature", temperature, "temperature that divides the logits; 0: always take the most likely token (greedy)",
      base::range(0.0, 1e6));
    v("top_k", top_k, "sample from the k most likely tokens; 0: all", base::range(0, 1 << 24));
    v("top_p", top_p, "nucleus sampling: sample from the smallest set of tokens with this total probability; 1: all",
      base::check("more than 0 and at most 1",
                  [](const base::Node& value) { return value.as_double() > 0.0 && value.as_double() <= 1.0; }));
    v("min_p", min_p, "sample only from tokens with at least this share of the most likely token's probability; 0: all",
      base::range(0.0, 1.0));
    v("repetition_penalty", repetition_penalty,
      "divides positive logits of tokens read or written before, and multiplies negative ones; 1: none",
      base::range(0.01, 100.0));
    v("frequency_penalty", frequency_penalty,
      "subtracted from a token's logit for each time that it was written; negative encourages repetition; 0: none",
      base::range(-2.0, 2.0));
    v("presence_penalty", presence_penalty, "subtracted once from the logit of a token that was written; 0: none",
      base::range(-2.0, 2.0));
    v("seed", seed, "random seed; the same seed gives the same text", base::at_least(0));
    v("sample_unknown", sample_unknown, "whether a text may contain the token <unk>");
  }
  void validate(const base::Where& where) const;
  /// Whether earlier tokens matter.
  bool penalises() const { return repetition_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0; }

  /// Always the most likely token.
  static SamplingOptions greedy() { return {.temperature = 0.0}; }
};

/// How often each token has occurred in a sequence.
struct TokenCounts {
  std::vector<int32_t> read;     ///< [V] in what was fed; empty: nothing has occurred
  std::vector<int32_t> written;  ///< [V] in what was sampled; as long as `read`

  void add_read(std::span<const int64_t> tokens, int64_t vocab_size);
  void add_written(int64_t token, int64_t vocab_size);
};

/// Samples tokens. It has no state: the random number depends only on (seed, draw), so a text depends neither on the
/// rest of the batch nor on earlier draws. Safe to use from any number of threads.
class Sampler {
 public:
  /// unknown_id: the token <unk>, which is never sampled unless options.sample_unknown; -1: none. vocabulary: tokens
  /// from this one on are never sampled, as published models have rows in their output that stand for nothing. Throws
  /// InputError for options out of range.
  explicit Sampler(const SamplingOptions& options = {}, int64_t unknown_id = -1, int64_t vocabulary = INT64_MAX);

  /// Samples one token. logits [V] of a floating-point type, on any device; -inf = never. Ties are broken in favour of
  /// the lowest id. `seen` is what the penalties count. Throws ShapeError for another shape, and InputError for NaN,
  /// +inf or no finite value.
  int64_t pick(const at::Tensor& logits, uint64_t draw, const TokenCounts& seen = {}) const;
  int64_t pick(std::span<const float> logits, uint64_t draw, const TokenCounts& seen = {}) const;

  const SamplingOptions& options() const { return options_; }
  int64_t unknown_id() const { return unknown_id_; }
  int64_t vocabulary() const { return vocabulary_; }

 private:
  template <class T>
  int64_t pick(const T* logits, int64_t rows, uint64_t draw, const TokenCounts& seen) const;

  SamplingOptions options_;
  int64_t unknown_id_, vocabulary_;
};

/// Samples one token for each row of logits [B,V], row b with samplers[b] and draws[b].
std::vector<int64_t> pick_rows(const at::Tensor& logits, std::span<const Sampler> samplers,
                               std::span<const uint64_t> draws);

/// Converts floating-point logits to contiguous float32 or float64 on the CPU, which pick() reads without another copy.
at::Tensor readable_logits(const at::Tensor& logits);

}  // namespace mnemo::infer
