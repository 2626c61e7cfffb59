#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/options.h"

namespace mnemo::search {

/// How a published model of texts wants to be searched: the settings of its generation_config.json, or of config.json.
struct GenerationOptions {
  int64_t num_beams = 1;
  double length_penalty = 1.0;
  enum class EarlyStopping { no, yes, never } early_stopping = EarlyStopping::no;
  int64_t max_new_tokens = 20;
  int64_t min_new_tokens = 0;
  int64_t no_repeat_ngram = 0;
  std::vector<int64_t> suppressed;
  std::optional<int64_t> forced_eos;
  bool renormalize = false;
  template <class V>
  void visit(V&& v) {
    v("num_beams", num_beams, "beams per sequence; 1: greedy", base::range(1, 1 << 10));
    v("length_penalty", length_penalty, "a hypothesis of n tokens scores (sum of log probabilities) / n^length_penalty",
      base::range(-50.0, 50.0));
    v("early_stopping", early_stopping,
      "yes: stop as soon as num_beams hypotheses are finished; no: when no running one would beat the worst of them "
      "if it ended now; never: when none can beat it even with max_new_tokens tokens",
      base::one_of("no", "yes", "never"));
    v("max_new_tokens", max_new_tokens, "tokens of a hypothesis, end included", base::range(1, 1 << 20));
    v("min_new_tokens", min_new_tokens, "tokens before a hypothesis may end", base::range(0, 1 << 20));
    v("no_repeat_ngram", no_repeat_ngram,
      "no sequence of so many tokens occurs twice, the first token included; 0: any may", base::range(0, 1 << 10));
    v("suppressed", suppressed, "tokens that are never generated", base::at_least(0));
    v("forced_eos", forced_eos, "the only token allowed as the last of max_new_tokens; unset: any", base::at_least(0));
    v("renormalize", renormalize, "normalise the probabilities again after tokens were excluded");
  }
};

}  // namespace mnemo::search
