#pragma once

#include "tasks/task_spec.h"

namespace mnemo::tasks {

/// `[data] type = "span_corruption"`.
struct SpanTextOptions : data::TextOptions {
  double density = 0.15, mean_span = 3.0;
  int64_t max_length = 512;
  template <class V>
  void visit(V&& v) {
    data::TextOptions::visit(v);
    v("density", density, "fraction of the tokens that are taken out", base::open_range(0, 1));
    v("mean_span", mean_span, "tokens of a span on average", base::range(1, 1 << 16));
    v("max_length", max_length, "tokens of the text in a sample", base::range(2, 1 << 20));
  }
  void validate(const base::Where& where) const;
};

/// A text with spans that a decoder writes: tasks::SpanText.
class SpanTextSpec final : public TaskSpec {
 public:
  using Options = SpanTextOptions;
  explicit SpanTextSpec(const base::Node& table);

  InputKind input() const override { return InputKind::pairs; }
  bool takes_segments_per_step() const override { return false; }
  std::string describe() const override;
  MetricInfo metric() const override;
  std::vector<MetricInfo> more_metrics() const override;
  bool completes(const models::ModelOptions& model) const override;
  DataShape shape(const models::ModelOptions& model) const override;
  LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const override;
  bool shows_samples() const override { return false; }
  Shown show(const ShowOptions& options) const override;

 private:
  /// Throws InputError without data.tokenizer.
  void require_tokenizer() const;

  Options options_;
};

}  // namespace mnemo::tasks
