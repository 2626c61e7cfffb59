#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "data/pairs/pair_batches.h"
#include "text/tokenizer.h"

namespace mnemo::data {

/// How spans of a text are taken out, to be written by a decoder (Raffel et al. 2020, section 3.1.4).
struct SpanCorruption {
  double density = 0.15;                ///< of the tokens, at least one and not all, that are taken out
  double mean_span = 3.0;               ///< tokens of a span on average
  std::vector<int64_t> sentinels = {};  ///< <extra_id_0>, <extra_id_1> ..: a text has at most as many spans
  int64_t end = 1;                      ///< the end of source and target
};

/// A text without its spans, and the spans: of a b c d e f with the spans b and e f
///   source  a <0> c d <1> end        target  <0> b <1> e f end
/// n tokens have s = round(density n) of them in max(1, round(s / mean_span)) spans of random lengths, between random
/// lengths of what stays; the text begins with what stays. tokens: at least 2.
PairSample corrupt_spans(std::span<const int64_t> tokens, const SpanCorruption& corruption, base::Random& random);

/// The ids of <extra_id_0>, <extra_id_1> .. that a tokenizer has.
std::vector<int64_t> sentinels_of(const text::Tokenizer& tokenizer);

}  // namespace mnemo::data
