#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "core/state.h"
#include "models/special_tokens.h"
#include "search/beam_search_options.h"
#include "search/step_decoder.h"

namespace mnemo::core {
class Model;
}

namespace mnemo::search {

/// A translation: its tokens without start token and with eos, and its score.
struct Hypothesis {
  std::vector<int64_t> tokens;
  double sum = 0.0;    ///< of log probabilities (natural logarithm)
  double score = 0.0;  ///< sum / n^length_penalty
};

/// Beam search as fairseq defines it (Ott et al. 2019), each sentence by itself, so that its result does not depend on
/// the others of the batch. n = 1, 2, ... counts generated tokens, limit = floor(max_len_a * S + max_len_b), and at
/// most what StepDecoder::max_tokens() leaves.
///   candidates = every running beam with every token but pad; without eos while n <= min_len; only eos at limit + 1,
///   and where nothing else is allowed
///   of the best 2 * beam_size, those among the first beam_size that end with eos are finished, the first beam_size of
///   the others run on; the search ends when beam_size hypotheses are finished, or, with 0 < wanted < beam_size, when
///   no running one can get a better score than the worst of the `wanted` best. This changes none of them: sums only
///   fall, so that nothing after n can score above (best running sum) / (limit + 1)^length_penalty.
/// source [B,S] int64, ending with eos; valid [B,S] bool, undefined = no padding. prefix: tokens that every hypothesis
/// of a sentence begins with, none of not_after_prefix directly behind them; empty, or one list per sentence. read: the
/// state in which the targets of the source begin (core::ReadsSource::read_source()); empty: the decoder reads it from
/// its initial state. Returns for each sentence its hypotheses, at least one and at most `wanted`, best first. Throws
/// InputError as require_fitting() and for a prefix that leaves no place for the end, and NotFinite for logits that are
/// not finite.
std::vector<std::vector<Hypothesis>> beam_search(StepDecoder& decoder, const models::SpecialTokens& special,
                                                 const at::Tensor& source, const at::Tensor& valid,
                                                 const BeamSearchOptions& options,
                                                 const std::vector<std::vector<int64_t>>& prefix = {},
                                                 const core::State& read = {});
/// Throws InputError for invalid options and for a beam that is larger than the vocabulary.
void require_fitting(const BeamSearchOptions& options, int64_t vocabulary);
/// Chooses a token by log probabilities [V] (-inf = never) after `length` tokens of a sample; -1: none, so it ends.
using PickToken = std::function<int64_t(const at::Tensor& log_probabilities, int64_t sentence, int64_t sample,
                                        int64_t length)>;

/// beam_size samples of each sentence, drawn independently, with the same limits. The sum of a sample is that of the
/// log probabilities that the model gives its tokens, whatever `pick` makes of them. Returns as beam_search();
/// options are not checked.
std::vector<std::vector<Hypothesis>> sample_search(StepDecoder& decoder, const models::SpecialTokens& special,
                                                   const at::Tensor& source, const at::Tensor& valid,
                                                   const BeamSearchOptions& options, const PickToken& pick,
                                                   const std::vector<std::vector<int64_t>>& prefix = {},
                                                   const core::State& read = {});
/// The beam search with the model's own forward pass.
std::vector<std::vector<Hypothesis>> beam_search(const core::Model& model, const models::SpecialTokens& special,
                                                 const at::Tensor& source, const at::Tensor& valid,
                                                 const BeamSearchOptions& options,
                                                 const std::vector<std::vector<int64_t>>& prefix = {});

}  // namespace mnemo::search
