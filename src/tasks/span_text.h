#pragma once

#include <cstdint>
#include <vector>

#include "data/text/corpus.h"
#include "data/text/span_corruption.h"
#include "models/special_tokens.h"
#include "tasks/piece_task.h"

namespace mnemo::tasks {

struct SpanTextTaskOptions : PieceTaskOptions {
  int64_t length = 512;  ///< tokens of the text in a sample
  data::SpanCorruption corruption = {};
  models::SpecialTokens tokens = {};  ///< of the model
};

/// Span corruption (Raffel et al. 2020), for an encoder-decoder model: spans of a sample are taken out.
class SpanText final : public PieceTask {
 public:
  /// Throws InputError for a text without a piece of two tokens.
  SpanText(data::Corpus corpus, const SpanTextTaskOptions& options);

 private:
  Pieces pieces_of(const data::TokenStore& text) const override { return data::pieces_of(text, spans_.length, 2); }
  std::vector<data::Batch> segments_of(const data::TokenStore& text, const Pieces& pieces,
                                       const SampleBatches::Batch& chosen) const override;

  SpanTextTaskOptions spans_;
};

}  // namespace mnemo::tasks
