#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/text/corpus.h"
#include "data/text/streams.h"
#include "metrics/likelihood.h"
#include "tasks/token_loss.h"

namespace mnemo::tasks {

/// How to evaluate a model on held-out text.
struct TextEvaluationOptions {
  int64_t batch_size = 1;       ///< parallel parts of the text; 1: every token has the full history
  int64_t segment_size = 0;     ///< tokens per call; 0: the model's
  bool reset_segments = false;  ///< reset memory at every segment
  /// The first tokens of a segment, which are those before the scored ones, read again; requires reset_segments.
  int64_t context = 0;
  /// Each rank of the group reads its share of the parts; all get the result. Null: one process.
  distributed::Group* group = nullptr;
};

/// The likelihood of a text in one pass, with the state carried from segment to segment and reset at documents, or at
/// every segment. Runs in evaluation mode without gradients. With a context each token but the first of a text has at
/// least that many tokens in front of it (Peng et al. 2022, table 3: 0, 256 and 480 of segments of 512). Throws
/// InputError for a context with a memory that is carried, which has read those tokens already.
metrics::Likelihood evaluate_text(const core::Model& model, std::shared_ptr<const data::TokenStore> text,
                                  const TextEvaluationOptions& options = {});

/// Named metrics of a likelihood: nll (nats per token), bits_per_byte, bits_per_character or bits_per_word (whichever
/// the tokens are), perplexity (per token), and bits_per_character if tokens are not characters.
Evaluation describe_likelihood(const metrics::Likelihood& likelihood, const std::string& unit,
                               double characters_per_token);

struct LanguageModelOptions {
  int64_t batch_size = 16;
  int64_t segments_per_step = 1;
  bool shuffle = false;
  int64_t seed = 0;
  int64_t eval_batch_size = 16;
  bool reset_segments = false;  ///< reset memory at every segment, also in evaluation
  int64_t eval_context = 0;     ///< TextEvaluationOptions::context
  int64_t replay = 0;           ///< segments of earlier steps that each step begins with, without targets
};

/// Next-token prediction on a text: parallel contiguous streams whose state is carried from step to step. The metric is
/// bits per byte or character; for words, perplexity.
///
/// With replay = k each step's list begins with the last k segments of the steps before, without targets (fewer at the
/// start), so its first segment is not the one after the last step's.
class LanguageModel final : public TokenTask {
 public:
  /// Throws InputError if the text is too short for the batch.
  LanguageModel(data::Corpus corpus, const LanguageModelOptions& options);

  std::string metric() const override;
  bool lower_is_better() const override { return true; }
  std::optional<double> metric_of_loss(double nll) const override;
  bool carries_state() const override { return true; }
  int64_t batch_size() const override { return options_.batch_size; }
  std::vector<data::Batch> next(const core::ModelInput& input) override;
  double epoch() const override { return batches_.epoch(); }
  bool has(data::Part part) const override { return corpus_.part(part) != nullptr; }
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  weights::NamedTensors save() const override;
  void load(const std::function<at::Tensor(const std::string&)>& find) override;

  const data::Corpus& corpus() const { return corpus_; }

 private:
  /// A segment that has been read, as it comes again, and the position in the text before it.
  struct Replayed {
    data::Batch segment;
    weights::NamedTensors position;
  };
  /// The next segment of the text, which is then the last of `replayed_`.
  data::Batch read(int64_t segment_size);

  data::Corpus corpus_;
  LanguageModelOptions options_;
  data::StreamBatches batches_;
  std::deque<Replayed> replayed_;
  int64_t to_read_again_ = 0;  ///< after load(): segments that replayed_ lacks, the next of the text
};

}  // namespace mnemo::tasks
