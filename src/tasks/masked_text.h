#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/text/corpus.h"
#include "data/text/masking.h"
#include "tasks/piece_task.h"

namespace mnemo::tasks {

struct MaskedTextTaskOptions : PieceTaskOptions {
  int64_t segments = 1;        ///< consecutive segments of a document in a sample
  int64_t segment_size = 0;    ///< tokens of a segment, special tokens included
  bool special_tokens = true;  ///< around every segment; false: a memory puts its own around the tokens
  data::Masking masking = {};
};

/// Masked language modelling (Devlin et al. 2019): a model with a head that predicts a token in its own place. A sample
/// is divided into segments.
class MaskedText final : public PieceTask {
 public:
  /// Throws InputError if a segment has no room beside its special tokens, or the text has no token.
  MaskedText(data::Corpus corpus, const MaskedTextTaskOptions& options);

 private:
  Pieces pieces_of(const data::TokenStore& text) const override {
    return data::pieces_of(text, room_ * masked_.segments);
  }
  std::vector<data::Batch> segments_of(const data::TokenStore& text, const Pieces& pieces,
                                       const SampleBatches::Batch& chosen) const override;
  void count(const core::Model& model, const at::Tensor& hidden, const data::Batch& segment,
             TokenCounts& counts) const override;

  MaskedTextTaskOptions masked_;
  std::vector<int32_t> before_, after_;  ///< special tokens around a segment's text
  int64_t room_ = 0;                     ///< tokens of the text in a segment
};

}  // namespace mnemo::tasks
