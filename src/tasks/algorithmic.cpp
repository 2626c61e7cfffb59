#include "tasks/algorithmic.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "metrics/accuracy.h"
#include "metrics/likelihood.h"

namespace mnemo::tasks {

Algorithmic::Algorithmic(const data::AlgorithmicOptions& task, const AlgorithmicTrainOptions& options)
    : task_(task, options.seed), options_(options) {}

std::vector<data::TokenSegment> Algorithmic::segments(data::Part part, int64_t number, int64_t batch_size,
                                                      int64_t segment_size) const {
  base::require(task_.length() % segment_size == 0,
                "{}: a sample has {} tokens, expected a multiple of model.segment_size = {}", task_.options().task,
                task_.length(), segment_size);
  auto cut = data::cut_segments(task_.batch(part, number, batch_size), task_.length() / segment_size);
  // Every batch starts from the initial state anyway.
  for (data::TokenSegment& segment : cut) segment.reset.reset();
  return cut;
}

std::vector<data::TokenSegment> Algorithmic::next(int64_t segment_size) {
  return segments(data::Part::train, next_batch_++, options_.batch_size, segment_size);
}

std::optional<Evaluation> Algorithmic::evaluate(const core::Model& model, data::Part part) const {
  base::require(task_.vocabulary_size() <= model.vocab_size(), "evaluation: the task has {} different tokens, the model knows {}",
                task_.vocabulary_size(), model.vocab_size());
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  metrics::Accuracy accuracy;
  metrics::Likelihood likelihood;
  int64_t number = 0;
  for (int64_t left = options_.eval_samples; left > 0; left -= options_.eval_batch_size, ++number) {
    const int64_t batch = std::min(left, options_.eval_batch_size);
    core::State state = model.initial_state(batch);
    for (const data::TokenSegment& cut : segments(part, number, batch, model.segment_size())) {
      const data::TokenSegment segment = to(cut, device);
      core::StepResult step = model.forward(model_input(segment, core::Mode::evaluate), state);
      state = std::move(step.state);
      if (segment.num_targets == 0) continue;
      accuracy.add_logits(model.logits(step.hidden), segment.targets);
      likelihood.add(model.nll(step.hidden, segment.targets), segment.targets);
    }
  }
  return Evaluation{{{"accuracy", accuracy.value()}, {"nll", likelihood.nll()}}};
}

weights::NamedTensors Algorithmic::save() const { return {{"next_batch", at::full({1}, next_batch_, at::kLong)}}; }

void Algorithmic::load(const std::function<at::Tensor(const std::string&)>& find) {
  const at::Tensor saved = find("next_batch");
  base::require(saved.defined() && saved.scalar_type() == at::kLong && saved.numel() == 1,
                "data position: expected \"next_batch\" int64 [1]");
  const auto value = saved.item<int64_t>();
  base::require(value >= 0, "data position: \"next_batch\": expected 0 or more, found {}", value);
  next_batch_ = value;
}

}  // namespace mnemo::tasks
