#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/answers/labelled.h"
#include "tasks/sample_batches.h"
#include "tasks/token_loss.h"

namespace mnemo::tasks {

struct ClassificationOptions {
  int64_t batch_size = 32;
  bool shuffle = true;
  int64_t seed = 0;
  int64_t eval_batch_size = 32;
  int64_t eval_samples = 512;      ///< maximum number of evaluation samples
  int64_t max_length = 2000;       ///< longer documents are truncated to this many tokens
  bool pad_to_max_length = false;  ///< if a document is one segment: every batch is [B,max_length]
  bool ask_every_segment = false;  ///< the label is a target after every segment of a document, not just after the last
  bool align_left = false;         ///< of several segments the last may be short, not the first
  std::string metric = "accuracy";  ///< of its evaluations, the deciding one
};

/// Divides the documents of a batch into segments of `segment_size` tokens; the only target of a segment is the label:
/// targets [B,1].
///
/// If the longest document fits into one segment, documents are padded on the right. Otherwise they are right-aligned,
/// as for RMT's encoders (Bulatov, Kuratov and Burtsev 2022, section 4): all end in the last segment; the first
/// segment of each, with align_left the last one, may be short and is padded on the right. Segments before a document's
/// first one are only padding; the document's state is reset at its first segment, so it sees nothing of them.
std::vector<data::Batch> document_segments(const data::LabelledDocuments& documents, const std::vector<int64_t>& rows,
                                           int64_t segment_size, const ClassificationOptions& options);

/// Logits [B,K] after the last segment of each document of `rows`; `each` is given every segment and what the model
/// made of it.
at::Tensor document_logits(const core::Model& model, const data::LabelledDocuments& documents,
                           const std::vector<int64_t>& rows, const ClassificationOptions& options,
                           const std::function<void(const data::Batch&, const core::StepResult&)>& each = {});

/// Document classification, for a model whose head makes one prediction per segment: the class with the largest logit
/// after the last segment. An evaluation has "accuracy", "nll", "macro_f1", "matthews" and, of two classes, "f1", which
/// is that of class 1 (metrics::class_scores). Training repeats the documents, in a new order every epoch if shuffled.
class Classification final : public TokenTask {
 public:
  Classification(data::LabelledSets sets, const ClassificationOptions& options);

  std::string metric() const override { return options_.metric; }
  bool lower_is_better() const override { return false; }
  std::optional<double> metric_of_loss(double) const override { return std::nullopt; }
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return options_.batch_size; }
  std::vector<data::Batch> next(const core::ModelInput& input) override;
  double epoch() const override { return batches_.epoch(); }
  bool has(data::Part part) const override { return sets_.part(part) != nullptr; }
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  weights::NamedTensors save() const override;
  void load(const std::function<at::Tensor(const std::string&)>& find) override;

  const data::LabelledSets& sets() const { return sets_; }

 private:
  data::LabelledSets sets_;
  ClassificationOptions options_;
  SampleBatches batches_;
};

}  // namespace mnemo::tasks
