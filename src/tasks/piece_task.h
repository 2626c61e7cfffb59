#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/text/corpus.h"
#include "data/text/pieces.h"
#include "tasks/sample_batches.h"
#include "tasks/token_counts.h"
#include "tasks/token_loss.h"

namespace mnemo::tasks {

struct TaskSettings;

/// The keys of tasks of pieces that decide how their samples are batched and measured.
struct PieceTaskOptions {
  int64_t batch_size = 16;
  bool shuffle = true;
  int64_t seed = 0;
  int64_t eval_batch_size = 16;
  int64_t eval_samples = 512;  ///< maximum number of evaluation samples
  static PieceTaskOptions of(const TaskSettings& settings);
};

/// A task whose samples are pieces of one document each, in which something is hidden: drawn anew every epoch, and in
/// an evaluation always the same. The metric is the perplexity of the hidden tokens. Training repeats the samples, in a
/// new order every epoch if shuffled.
class PieceTask : public TokenTask {
 public:
  std::string metric() const override { return "perplexity"; }
  bool lower_is_better() const override { return true; }
  std::optional<double> metric_of_loss(double nll) const override { return std::exp(nll); }
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return options_.batch_size; }
  std::vector<data::Batch> next(const core::ModelInput&) override {
    return segments_of(*corpus_.train, pieces_, batches_.next());
  }
  double epoch() const override { return batches_.epoch(); }
  bool has(data::Part part) const override { return corpus_.part(part) != nullptr; }
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  weights::NamedTensors save() const override { return batches_.save(corpus_.train->fingerprint()); }
  void load(const std::function<at::Tensor(const std::string&)>& find) override {
    batches_.load(find, corpus_.train->fingerprint(), "another text than that of data.train");
  }

 protected:
  using Pieces = std::vector<data::TextPiece>;
  PieceTask(data::Corpus corpus, const PieceTaskOptions& options)
      : corpus_(std::move(corpus)), options_(options), batches_({0, false, 0}, options.batch_size) {}
  /// Called at the end of a constructor: takes the pieces of the training text. Throws InputError
  /// "data.train: EXPECTED" if there are none.
  void begin(const char* expected);

  virtual Pieces pieces_of(const data::TokenStore& text) const = 0;
  /// The segments of a batch, with a stream of random numbers for each (seed, epoch, number) of a sample.
  virtual std::vector<data::Batch> segments_of(const data::TokenStore& text, const Pieces& pieces,
                                               const SampleBatches::Batch& chosen) const = 0;
  /// Counts the tokens that were hidden in a segment.
  virtual void count(const core::Model& model, const at::Tensor& hidden, const data::Batch& segment,
                     TokenCounts& counts) const;

  data::Corpus corpus_;
  PieceTaskOptions options_;

 private:
  Pieces pieces_;  ///< of the training text
  SampleBatches batches_;
};

}  // namespace mnemo::tasks
