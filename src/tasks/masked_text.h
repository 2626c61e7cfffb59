#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/text/corpus.h"
#include "data/text/masking.h"
#include "data/text/pieces.h"
#include "tasks/sample_batches.h"
#include "tasks/token_loss.h"

namespace mnemo::tasks {

struct MaskedTextTaskOptions {
  int64_t batch_size = 16;
  int64_t segments = 1;        ///< consecutive segments of a document in a sample
  int64_t segment_size = 0;    ///< tokens of a segment, special tokens included
  bool special_tokens = true;  ///< around every segment; false: a memory puts its own around the tokens
  bool shuffle = true;
  int64_t seed = 0;
  int64_t eval_batch_size = 16;
  int64_t eval_samples = 512;  ///< maximum number of evaluation samples
  data::Masking masking = {};
};

/// Masked language modelling (Devlin et al. 2019): a model with a head that predicts a token in its own place. A sample
/// is a piece of one document, divided into segments; its masks are drawn anew every epoch, and in an evaluation they
/// are always the same. The metric is the perplexity of the masked tokens. Training repeats the samples, in a new order
/// every epoch if shuffled.
class MaskedText final : public TokenTask {
 public:
  /// Throws InputError if a segment has no room beside its special tokens, or the text has no token.
  MaskedText(data::Corpus corpus, const MaskedTextTaskOptions& options);

  std::string metric() const override { return "perplexity"; }
  bool lower_is_better() const override { return true; }
  std::optional<double> metric_of_loss(double nll) const override;
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return options_.batch_size; }
  std::vector<data::Batch> next(const core::ModelInput& input) override;
  double epoch() const override { return batches_.epoch(); }
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  weights::NamedTensors save() const override;
  void load(const std::function<at::Tensor(const std::string&)>& find) override;

 private:
  using Pieces = std::vector<data::TextPiece>;
  Pieces pieces_of(const data::TokenStore& text) const { return data::pieces_of(text, room_ * options_.segments); }
  /// The pieces of a batch as segments, masked by a stream of random numbers for each (epoch, number).
  std::vector<data::Batch> segments_of(const data::TokenStore& text, const Pieces& pieces,
                                       const SampleBatches::Batch& chosen) const;

  data::Corpus corpus_;
  MaskedTextTaskOptions options_;
  std::vector<int32_t> before_, after_;  ///< special tokens around a segment's text
  int64_t room_ = 0;                     ///< tokens of the text in a segment
  Pieces pieces_;                        ///< of the training text
  SampleBatches batches_;
};

}  // namespace mnemo::tasks
