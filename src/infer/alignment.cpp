#include "infer/alignment.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "data/pairs/pair_text.h"

namespace mnemo::infer {
namespace {

constexpr std::string_view kBlanks = " \t\n\v\f\r";

/// The place after the next word at or after `from`, or npos.
size_t end_of_word(std::string_view text, size_t from) {
  const size_t begin = text.find_first_not_of(kBlanks, from);
  return begin == std::string_view::npos ? begin : std::min(text.find_first_of(kBlanks, begin), text.size());
}

std::string_view last_word(std::string_view text) {
  const size_t blank = text.find_last_of(kBlanks);
  return blank == std::string_view::npos ? text : text.substr(blank + 1);
}

int64_t count_words(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; (at = end_of_word(text, at)) != std::string_view::npos;) ++count;
  return count;
}

int64_t count_tokens(const data::PairVocabulary& vocabulary, std::string_view text) {
  return static_cast<int64_t>(vocabulary.encode_part(text, "source").size());
}

/// The words of a line up to a number of tokens.
struct SourceWords {
  TokenWords words;
  size_t end = 0;          ///< of the last of them
  int64_t num_tokens = 0;  ///< of the line up to there
};

/// alone: each word is encoded by itself with the blanks before it, in time proportional to the line; otherwise with
/// all that stands before it.
SourceWords words_of(const data::PairVocabulary& vocabulary, std::string_view line, int64_t num_tokens, bool alone) {
  SourceWords found;
  found.words.word_of.assign(static_cast<size_t>(num_tokens), -1);
  int64_t token = 0;
  while (found.num_tokens < num_tokens) {
    const size_t at = end_of_word(line, found.end);
    if (at == std::string_view::npos) break;
    const std::string_view read = line.substr(0, at);
    found.num_tokens = alone ? found.num_tokens + count_tokens(vocabulary, read.substr(found.end))
                             : count_tokens(vocabulary, read);
    found.end = at;
    for (; token < std::min(found.num_tokens, num_tokens); ++token)
      found.words.word_of[static_cast<size_t>(token)] = static_cast<int64_t>(found.words.words.size());
    found.words.words.emplace_back(last_word(read));
  }
  return found;
}

}  // namespace

at::Tensor source_weights(const models::Model& model, const data::TokenSegment& batch, const core::State& before) {
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  core::Segment segment;
  segment.tokens = batch.tokens.to(device, at::kLong, false, true);
  segment.tokens.select(1, 0).fill_(model.options().tokens.first());
  segment.source = batch.source.to(device);
  segment.source_valid = batch.source_valid.to(device);
  const int64_t last = model.backbone().num_layers() - 1;
  at::Tensor weights;
  model.forward(segment, before.empty() ? model.initial_state(batch.tokens.size(0)) : before,
                [&](int64_t layer, const core::Attention& attention, const core::AttentionInput& input,
                    const core::State& state) {
                  if (layer != last || !input.table.is_cross()) return;
                  const auto* inspectable = dynamic_cast<const core::Inspectable*>(&attention);
                  if (inspectable == nullptr) return;
                  for (const core::WeightMap& map : inspectable->inspect(input, state, {}).maps) {
                    if (map.rows == core::MapAxis::queries && map.columns == core::MapAxis::keys)
                      weights = map.weights.mean(1);
                  }
                });
  base::require(
      weights.defined(),
      "translation: the cross-attention of this model does not provide its weights, so words cannot be aligned");
  const at::Tensor of_tokens = at::tensor(model.source()->token_rows(batch.source.size(1)), at::kLong);
  return weights.to(at::kCPU, at::kDouble).index_select(2, of_tokens);
}

TokenWords source_words(const data::PairVocabulary& vocabulary, std::string_view line, int64_t num_tokens) {
  line = data::words_in(line);
  SourceWords found = words_of(vocabulary, line, num_tokens, true);
  // A vocabulary whose tokens depend on the words before them (blanks that it keeps) is asked for all of these.
  if (count_tokens(vocabulary, line.substr(0, found.end)) != found.num_tokens)
    found = words_of(vocabulary, line, num_tokens, false);
  return std::move(found.words);
}

std::vector<int64_t> target_words(const data::PairVocabulary& vocabulary, std::span<const int64_t> tokens,
                                  const std::function<std::string(size_t place)>& unknown) {
  std::vector<int64_t> words;
  for (size_t n = 1; n <= tokens.size(); ++n) {
    const bool is_silent = vocabulary.is_unknown(tokens[n - 1]) && unknown(n - 1).empty();
    words.push_back(is_silent ? -1 : count_words(vocabulary.decode(tokens.first(n), unknown)) - 1);
  }
  return words;
}

std::vector<int64_t> most_read(const at::Tensor& weights, int64_t num_source, int64_t num_target) {
  std::vector<int64_t> found(static_cast<size_t>(num_target), -1);
  if (num_source <= 0 || num_target <= 0) return found;
  const at::Tensor best = weights.narrow(0, 0, num_target).narrow(1, 0, num_source).argmax(1).contiguous();
  std::copy_n(best.const_data_ptr<int64_t>(), num_target, found.begin());
  return found;
}

WordLinks link_words(std::span<const int64_t> source, std::span<const int64_t> target,
                     std::span<const int64_t> most_read) {
  WordLinks links;
  for (size_t u = 0; u < std::min(target.size(), most_read.size()); ++u) {
    if (most_read[u] < 0) continue;
    const std::pair<int64_t, int64_t> link{source[static_cast<size_t>(most_read[u])], target[u]};
    if (link.first < 0 || link.second < 0) continue;
    if (std::find(links.begin(), links.end(), link) == links.end()) links.push_back(link);
  }
  return links;
}

}  // namespace mnemo::infer
