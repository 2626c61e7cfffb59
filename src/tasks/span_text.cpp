#include "tasks/span_text.h"

#include <torch/types.h>

#include "base/random.h"

namespace mnemo::tasks {

SpanText::SpanText(data::Corpus corpus, const SpanTextTaskOptions& options)
    : PieceTask(std::move(corpus), options), spans_(options) {
  begin("expected a text of at least two tokens, found less");
}

std::vector<data::Batch> SpanText::segments_of(const data::TokenStore& text, const Pieces& pieces,
                                               const SampleBatches::Batch& chosen) const {
  std::vector<data::PairSample> samples;
  std::vector<int64_t> all, tokens;
  for (size_t i = 0; i < chosen.samples.size(); ++i) {
    const int64_t number = chosen.samples[i];
    const data::TextPiece& piece = pieces[static_cast<size_t>(number)];
    tokens.resize(static_cast<size_t>(piece.end - piece.begin));
    text.read(piece.begin, tokens);
    base::Random random{static_cast<uint64_t>(options_.seed), static_cast<uint64_t>(chosen.epochs[i]),
                        static_cast<uint64_t>(number)};
    all.push_back(static_cast<int64_t>(samples.size()));
    samples.push_back(data::corrupt_spans(tokens, spans_.corruption, random));
  }
  return {data::make_pair_batch(samples, all, {spans_.tokens.first(), spans_.tokens.pad})};
}

}  // namespace mnemo::tasks
