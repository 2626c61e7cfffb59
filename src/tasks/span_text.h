#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/text/corpus.h"
#include "data/text/pieces.h"
#include "data/text/span_corruption.h"
#include "models/special_tokens.h"
#include "tasks/sample_batches.h"
#include "tasks/task.h"

namespace mnemo::tasks {

struct SpanTextTaskOptions {
  int64_t batch_size = 16;
  int64_t length = 512;  ///< tokens of the text in a sample
  bool shuffle = true;
  int64_t seed = 0;
  int64_t eval_batch_size = 16;
  int64_t eval_samples = 512;  ///< maximum number of evaluation samples
  data::SpanCorruption corruption = {};
  models::SpecialTokens tokens = {};  ///< of the model
};

/// Span corruption (Raffel et al. 2020), for an encoder-decoder model. A sample is a piece of one document; its spans
/// are drawn anew every epoch, and in an evaluation they are always the same. The metric is the perplexity of the
/// targets' tokens. Training repeats the samples, in a new order every epoch if shuffled.
class SpanText final : public Task {
 public:
  /// Throws InputError for a text without a piece of two tokens.
  SpanText(data::Corpus corpus, const SpanTextTaskOptions& options);

  std::string metric() const override { return "perplexity"; }
  bool lower_is_better() const override { return true; }
  std::optional<double> metric_of_loss(double nll) const override;
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return options_.batch_size; }
  std::vector<data::TokenSegment> next(const core::ModelInput& input) override;
  double epoch() const override { return batches_.epoch(); }
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  weights::NamedTensors save() const override;
  void load(const std::function<at::Tensor(const std::string&)>& find) override;

 private:
  using Pieces = std::vector<data::TextPiece>;
  Pieces pieces_of(const data::TokenStore& text) const { return data::pieces_of(text, options_.length, 2); }
  /// The pieces of a batch, with spans drawn from a stream of random numbers for each (epoch, number).
  data::TokenSegment batch_of(const data::TokenStore& text, const Pieces& pieces,
                              const SampleBatches::Batch& chosen) const;

  data::Corpus corpus_;
  SpanTextTaskOptions options_;
  Pieces pieces_;  ///< of the training text
  SampleBatches batches_;
};

}  // namespace mnemo::tasks
