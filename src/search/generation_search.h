#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/options.h"
#include "search/beam_search.h"

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
    v("length_penalty", length_penalty,
      "a hypothesis of n tokens scores (sum of log probabilities) / n^length_penalty");
    v("early_stopping", early_stopping,
      "yes: stop as soon as num_beams hypotheses are finished; no: when no running one would beat the worst of them "
      "if it ended now; never: when none can beat it even with max_new_tokens tokens",
      base::one_of("no", "yes", "never"));
    v("max_new_tokens", max_new_tokens, "tokens of a hypothesis, end included", base::range(1, 1 << 20));
    v("min_new_tokens", min_new_tokens, "tokens before a hypothesis may end", base::range(0, 1 << 20));
    v("no_repeat_ngram", no_repeat_ngram,
      "no sequence of this many tokens occurs twice, the first token included; 0: no limit", base::range(0, 1 << 10));
    v("suppressed", suppressed, "tokens that are never generated", base::at_least(0));
    v("forced_eos", forced_eos, "the only token allowed as the last of max_new_tokens; unset: any", base::at_least(0));
    v("renormalize", renormalize, "normalise the probabilities again after tokens were excluded");
  }
};

/// Throws InputError for invalid options, more beams than tokens of the vocabulary, and tokens that it lacks.
void require_fitting(const GenerationOptions& options, int64_t vocabulary);

/// Beam search as transformers defines it, each sequence by itself. n = 1, 2, ... counts generated tokens, k beams.
///   candidates = every running beam with every token, the 2k best by sum of log probabilities (n = 1: one beam); with
///                k = 1 the best alone, which is greedy
///   ends       = the token is eos, or n = max_new_tokens
///   the first k candidates that end join the finished hypotheses, score = sum / n^A; the k best are kept
///   running    = the first k candidates that do not end
///   early_stopping yes: stop when k are finished; nothing joins after that. no: stop when k are finished and
///   (best running sum) / n^A <= the worst finished score. never: the same with max_new_tokens for n, if A > 0
/// The log probabilities of a step are changed first: `suppressed` get -inf, and so do tokens that would repeat a
/// sequence of no_repeat_ngram, and eos while n <= min_new_tokens; at n = max_new_tokens with forced_eos all others get
/// -inf and it gets 0; with `renormalize` they are normalised again. A hypothesis that nothing is allowed after ends.
/// max_new_tokens is at most StepDecoder::max_tokens().
/// first: the token that the decoder starts from. Returns for each sequence its k best hypotheses, best first, with eos
/// and without `first`. Throws InputError as require_fitting(), and NotFinite for logits that are not finite.
std::vector<std::vector<Hypothesis>> generation_search(StepDecoder& decoder, int64_t first, int64_t eos,
                                                       const at::Tensor& source, const at::Tensor& valid,
                                                       const GenerationOptions& options);

}  // namespace mnemo::search
