#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "metrics/sum.h"

namespace mnemo::metrics {

/// Negative log likelihoods of a text, added up in double.
class Likelihood {
 public:
  /// The sum of `count` tokens' losses in nats.
  void add(double nll_sum, int64_t count);
  /// nll of any shape, in nats; only places where `targets` of the same shape is not -100 count.
  /// Throws ShapeError if the shapes differ.
  void add(const at::Tensor& nll, const at::Tensor& targets);
  /// What another accumulator holds.
  void add(const Likelihood& other);

  int64_t count() const { return count_; }
  double nll_sum() const { return sum_.value(); }

  // Means over the tokens added; NaN when there are none.
  /// Nats a token.
  double nll() const;
  /// Bits a token: nll / ln 2. Of a model over bytes these are bits per byte, over characters bits per character.
  double bits() const { return bits_per(1.0); }
  /// exp(nll): perplexity a token, of a model over words the usual perplexity.
  double perplexity() const;
  /// Bits a unit of text when a token stands for `units_per_token` of them: bits / units_per_token. With the characters
  /// for each token of the text, words separators included, models over bytes, characters and words can be compared.
  double bits_per(double units_per_token) const;
  /// Perplexity a unit of text: exp(nll / units_per_token).
  double perplexity_per(double units_per_token) const;

 private:
  Sum sum_;
  int64_t count_ = 0;
};

}  // namespace mnemo::metrics
