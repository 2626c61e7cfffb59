#pragma once

#include <cstdint>
#include <vector>

#include "base/options.h"

namespace mnemo::search {

struct BeamSearchOptions {
  int64_t beam_size = 5;
  double length_penalty = 1.0;
  int64_t min_len = 1;
  double max_len_a = 0.0;
  int64_t max_len_b = 200;
  int64_t no_repeat_ngram = 0;
  /// How many hypotheses the caller reads, at most beam_size; 0: all. Not an option of recipes. The search ends as soon
  /// as these are certain.
  int64_t wanted = 0;
  /// Tokens that never stand directly behind a prefix. Not an option of recipes.
  std::vector<int64_t> not_after_prefix = {};
  template <class V>
  void visit(V&& v) {
    v("beam_size", beam_size, "hypotheses per sentence; 1: greedy", base::range(1, 1 << 10));
    v("length_penalty", length_penalty,
      "a hypothesis of n tokens scores (sum of log probabilities) / n^length_penalty; 0: the sum",
      base::range(0.0, 50.0));
    v("min_len", min_len, "tokens before a hypothesis may end", base::range(0, 1 << 20));
    v("max_len_a", max_len_a,
      "a hypothesis has at most max_len_a * S + max_len_b tokens and its end; S: tokens of the source, with its end",
      base::range(0.0, 1048576.0));
    v("max_len_b", max_len_b, "see max_len_a", base::range(1, 1 << 20));
    v("no_repeat_ngram", no_repeat_ngram, "no sequence of so many tokens occurs twice; 0: any may",
      base::range(0, 1 << 10));
  }
  void validate(const base::Where& where) const {
    where.require(max_len_a > 0.0 || min_len <= max_len_b, "min_len",
                  "expected at most max_len_b = {}, the tokens of the longest hypothesis, found {}", max_len_b,
                  min_len);
  }
};

}  // namespace mnemo::search
