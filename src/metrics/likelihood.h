#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "metrics/sum.h"

namespace mnemo::metrics {

/// Accumulates the negative log likelihood of a text in double precision.
class Likelihood {
 public:
  /// Adds the summed loss of `count` tokens, in nats.
  void add(double nll_sum, int64_t count);
  /// nll of any shape, in nats; only positions where `targets` (of the same shape) is not -100 count.
  /// Throws ShapeError if the shapes differ.
  void add(const at::Tensor& nll, const at::Tensor& targets);
  /// Adds the content of another accumulator.
  void add(const Likelihood& other);

  int64_t count() const { return count_; }
  double nll_sum() const { return sum_.value(); }

  // Means over the added tokens; NaN if there are none.
  /// Nats per token.
  double nll() const;
  /// Bits per token: nll / ln 2. For a byte model these are bits per byte, for a character model bits per character.
  double bits() const { return bits_per(1.0); }
  /// exp(nll): perplexity per token, which for a word model is the usual perplexity.
  double perplexity() const;
  /// Bits per unit of text if a token covers `units_per_token` of them: bits / units_per_token. With the number of
  /// characters per token (including word separators), byte, character and word models can be compared.
  double bits_per(double units_per_token) const;

 private:
  Sum sum_;
  int64_t count_ = 0;
};

}  // namespace mnemo::metrics
