#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "search/beam_search.h"
#include "search/generation_options.h"

namespace mnemo::search {

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
/// first: the token that the decoder starts from. Returns for each sequence its k best hypotheses, best first, without
/// `first`, and with eos unless max_new_tokens cut it off. Throws InputError as require_fitting(), and NotFinite for
/// logits that are not finite.
std::vector<std::vector<Hypothesis>> generation_search(StepDecoder& decoder, int64_t first, int64_t eos,
                                                       const at::Tensor& source, const at::Tensor& valid,
                                                       const GenerationOptions& options);

}  // namespace mnemo::search
