#include "infer/translator.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "infer/engine_search.h"

namespace mnemo::infer {

Translator::Translator(const bundle::Bundle& stored, std::optional<ops::Precision> precision) : model_(stored.model) {
  models::require_input(*model_, core::InputKind::pairs, stored.folder);
  vocabularies_ = data::read_vocabularies(bundle::files_beside(stored.folder), stored.folder);
  const core::PairInput& input = core::pair_input(model_->input());
  const auto require_size = [&](const data::PairVocabulary& vocabulary, int64_t size, const char* side) {
    base::require(vocabulary.size() <= size, "{}: expected a {} vocabulary of at most {} tokens, the model's, found {}",
                  stored.folder, side, size, vocabulary.size());
  };
  require_size(*vocabularies_.source, input.source_vocab_size, "source");
  require_size(*vocabularies_.target, input.target_vocab_size, "target");
  if (precision || unsupported_reason(*model_).empty())
    engine_ = std::make_shared<const Engine>(model_, EngineOptions{precision.value_or(ops::Precision::float32)});
}

std::unique_ptr<search::StepDecoder> Translator::search_decoder() const {
  if (engine_) return std::make_unique<EngineSearch>(engine_);
  return search::make_model_decoder(*model_);
}

std::vector<std::vector<TranslatedText>> Translator::operator()(std::span<const std::string> lines,
                                                                const TranslateOptions& options, std::string_view where,
                                                                int64_t first_line) const {
  std::vector<data::PairSample> samples(lines.size());
  std::vector<int64_t> order;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string place = fmt::format("{}:{}", where, first_line + static_cast<int64_t>(i));
    std::vector<int64_t>& source = samples[i].source;
    source = vocabularies_.source->encode(lines[i], place);
    if (static_cast<int64_t>(source.size()) > options.max_source) {
      base::log_warning("{}: {} tokens, cut to {}", place, source.size(), options.max_source);
      source.resize(static_cast<size_t>(options.max_source) - 1);
      source.push_back(data::PairVocabulary::kEos);
    }
    samples[i].target = {data::PairVocabulary::kEos};
    if (source.size() > 1) order.push_back(static_cast<int64_t>(i));
  }
  std::vector<std::vector<TranslatedText>> results(lines.size(), {TranslatedText{}});
  const at::Device device = core::device_of(*model_);
  for (const std::vector<int64_t>& chosen :
       data::bucket_pairs(samples, std::move(order), options.batch_size * options.max_source, options.batch_size)) {
    const data::TokenSegment batch = data::make_pair_batch(samples, chosen);
    const std::unique_ptr<search::StepDecoder> decoder = search_decoder();
    const auto found = search::beam_search(*decoder, model_->options().tokens, batch.source.to(device),
                                           batch.source_valid.to(device), options.search);
    for (size_t i = 0; i < chosen.size(); ++i) {
      std::vector<TranslatedText> texts;
      for (const search::Hypothesis& hypothesis : found[i]) {
        texts.push_back({vocabularies_.target->decode(hypothesis.tokens, options.unknown), hypothesis.sum,
                         hypothesis.score, static_cast<int64_t>(hypothesis.tokens.size())});
      }
      results[static_cast<size_t>(chosen[i])] = std::move(texts);
    }
  }
  return results;
}

}  // namespace mnemo::infer
