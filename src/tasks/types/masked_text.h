#pragma once

#include "tasks/task_spec.h"

namespace mnemo::tasks {

/// `[data] type = "masked_text"`.
struct MaskedTextOptions : data::TextOptions {
  double mask_fraction = 0.15, mask_share = 0.8, random_share = 0.1;
  bool whole_words = false;
  int64_t max_length = 0;
  template <class V>
  void visit(V&& v) {
    data::TextOptions::visit(v);
    v("mask_fraction", mask_fraction, "fraction of the tokens that are to be predicted", base::open_range(0, 1));
    v("mask_share", mask_share, "of these, the fraction that becomes the mask", base::range(0, 1));
    v("random_share", random_share, "of these, the fraction that becomes a random token; the rest stays as it is",
      base::range(0, 1));
    v("whole_words", whole_words, "choose whole words, not tokens");
    v("max_length", max_length,
      "maximum tokens of a segment, special tokens included unless a memory adds its own; 0: model.segment_size",
      base::range(0, 1 << 20));
  }
  void validate(const base::Where& where) const;
};

/// A text for masked language modelling: tasks::MaskedText.
class MaskedTextSpec final : public TaskSpec {
 public:
  using Options = MaskedTextOptions;
  explicit MaskedTextSpec(const base::Node& table);

  std::string describe() const override;
  MetricInfo metric() const override;
  std::vector<MetricInfo> more_metrics() const override;
  bool completes(const models::ModelOptions& model) const override;
  DataShape shape(const models::ModelOptions& model) const override;
  LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const override;
  void check_model(const models::Model& model, const DataShape& shape) const override;
  bool shows_samples() const override { return false; }
  Shown show(const ShowOptions& options) const override;

 private:
  /// Throws InputError without data.tokenizer.
  void require_tokenizer() const;

  Options options_;
};

}  // namespace mnemo::tasks
