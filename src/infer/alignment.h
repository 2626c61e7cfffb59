#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/pairs/pair_vocabulary.h"
#include "data/segment.h"
#include "models/model.h"

namespace mnemo::infer {

/// How much the decoder reads of each source token where it predicts each target token, the target given:
///   A[b,u,s] = mean over heads of the cross-attention weight of the last layer
/// batch: source [B,S], source_valid [B,S], tokens and targets [B,U]. Returns A [B,U,S]. Attentions through slots
/// report the weight that reaches a source token through them. Throws InputError if the cross-attention cannot be
/// inspected.
///   before  the state before these sources, of B sequences; the empty state: that of a document's start
at::Tensor source_weights(const models::Model& model, const data::TokenSegment& batch, const core::State& before = {});

/// The words of a line, with blanks between, and the word that each of its tokens belongs to; -1: none.
struct TokenWords {
  std::vector<std::string> words;
  std::vector<int64_t> word_of;
};

/// The words of a line as vocabulary.encode() divides it, cut to `num_tokens` tokens without the end of the sentence.
TokenWords source_words(const data::PairVocabulary& vocabulary, std::string_view line, int64_t num_tokens);
/// The word that each token belongs to in the text that vocabulary.decode() joins with `unknown`; -1: none.
std::vector<int64_t> target_words(const data::PairVocabulary& vocabulary, std::span<const int64_t> tokens,
                                  const std::function<std::string(size_t place)>& unknown);

/// Pairs (word of the source, word of the target), from 0, in the order of the target; none twice.
using WordLinks = std::vector<std::pair<int64_t, int64_t>>;

/// The source token that each target token reads most, ends and padding left out; -1 where there is none.
/// weights [U,S], of which the first num_source (without the end) and num_target count.
std::vector<int64_t> most_read(const at::Tensor& weights, int64_t num_source, int64_t num_target);

/// Links the words of each target token and of the source token that it reads most. source, target: the word of each
/// token.
WordLinks link_words(std::span<const int64_t> source, std::span<const int64_t> target,
                     std::span<const int64_t> most_read);

}  // namespace mnemo::infer
