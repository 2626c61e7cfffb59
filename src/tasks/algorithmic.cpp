#include "tasks/algorithmic.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/ignore_target.h"
#include "core/model.h"
#include "core/state.h"
#include "distributed/shared_batches.h"
#include "tasks/data_position.h"
#include "tasks/greedy.h"

namespace mnemo::tasks {
Algorithmic::Algorithmic(std::shared_ptr<const data::SampleSource> source, const data::AnswerOptions& answer,
                         const AlgorithmicTrainOptions& options)
    : source_(std::move(source)), answer_(answer), options_(options) {
  answer_.require_cut(source_->length(), base::Where());
}

Algorithmic::Algorithmic(const data::AlgorithmicOptions& task, const AlgorithmicTrainOptions& options)
    : Algorithmic(std::make_shared<data::AlgorithmicTask>(task, options.seed), task.answer, options) {}

std::optional<int64_t> Algorithmic::segment_size() const {
  if (answer_.num_segments == 0) return std::nullopt;
  return data::segment_length(source_->length(), answer_.num_segments);
}

void Algorithmic::require_segment_size(int64_t size) const {
  const int64_t wanted = segment_size().value_or(size);
  base::require(
      size == wanted,
      "{}: data.num_segments = {} divides a sample of {} tokens into segments of {}; expected model.segment_size = "
      "{}, found {}",
      source_->name(), answer_.num_segments, source_->length(), wanted, wanted, size);
}

std::vector<data::Batch> Algorithmic::next(const core::ModelInput& input) {
  const int64_t segment_size = core::token_input(input).segment_size;
  require_segment_size(segment_size);
  const int64_t length = answer_.training_segment(source_->length(), segment_size, next_batch_);
  auto cut = data::cut_segments(source_->batch(data::Part::train, next_batch_++, options_.batch_size), length);
  // Every batch starts from the initial state anyway, so no reset is needed.
  for (data::Batch& segment : cut) segment.reset.reset();
  return cut;
}

double Algorithmic::epoch() const {
  const std::optional<int64_t> size = source_->size(data::Part::train);
  return size ? static_cast<double>(next_batch_ * options_.batch_size) / static_cast<double>(*size) : 0;
}

at::Tensor Algorithmic::teacher_forced(const core::Model& model, const data::SampleBatch& batch,
                                       metrics::Likelihood& likelihood) const {
  const at::Device device = device_of(model);
  core::State state = model.initial_state(batch.inputs.size(0));
  std::vector<at::Tensor> predictions;
  for (const data::Batch& cut : data::cut_segments(batch, core::token_input(model.input()).segment_size)) {
    const data::Batch segment = to(cut, device);
    core::StepResult step = model.forward(segment.input, state);
    state = std::move(step.state);
    if (segment.num_targets == 0) {
      predictions.push_back(at::full_like(segment.input.tokens, -1));
      continue;
    }
    const at::Tensor logits = model.logits(step.hidden);
    predictions.push_back(logits.argmax(-1).masked_fill(logits.isnan().any(-1), -1));
    const at::Tensor& targets = data::token_targets(segment);
    likelihood.add(model.nll(step.hidden, targets), targets);
  }
  return at::cat(predictions, 1);
}

void Algorithmic::count(const at::Tensor& predictions, const data::SampleBatch& batch, Counts& counts) const {
  const at::Tensor found = predictions.to(at::kCPU);
  counts.symbols.add(found, batch.targets.masked_fill(batch.scored.logical_not(), base::kIgnoreTarget));
  // The result: the last positions of each sample's answer, including padding that belongs to the answer.
  const at::Tensor from_the_end = batch.answer.to(at::kLong).flip(1).cumsum(1).flip(1);
  const at::Tensor result = batch.answer.logical_and(from_the_end.le(source_->result_length()));
  const at::Tensor wrong = found.ne(batch.targets).logical_and(result).any(1);
  counts.results.add(wrong.logical_not().sum().item<int64_t>(), wrong.size(0));
}

int64_t Algorithmic::evaluation_samples(data::Part part) const {
  return std::min(source_->size(part).value_or(options_.eval_samples), options_.eval_samples);
}

std::optional<Evaluation> Algorithmic::evaluate(const core::Model& model, data::Part part) const {
  base::require(source_->vocabulary_size() <= core::token_input(model.input()).vocab_size,
                "evaluation: the task has {} distinct tokens, but the model's vocabulary only {}",
                source_->vocabulary_size(), core::token_input(model.input()).vocab_size);
  require_segment_size(core::token_input(model.input()).segment_size);
  const int64_t samples = evaluation_samples(part);
  if (samples == 0) return std::nullopt;
  const at::NoGradGuard no_grad;
  const bool both = answer_.decoding == data::AnswerOptions::Decoding::greedy && source_->answer_length() > 1;
  distributed::SharedBatches shared(ranks());
  for (int64_t left = samples, number = 0; left > 0; left -= options_.eval_batch_size, ++number) {
    if (!shared.own(number)) continue;
    Counts forced, greedy;
    metrics::Likelihood likelihood;
    const data::SampleBatch whole = source_->batch(part, number, options_.eval_batch_size);
    const data::SampleBatch batch = data::rows(whole, 0, std::min(left, data::num_rows(whole)));
    count(teacher_forced(model, batch, likelihood), batch, forced);
    if (both) count(greedy_predictions(model, batch, core::token_input(model.input()).segment_size), batch, greedy);
    shared.add({static_cast<double>(forced.symbols.correct()), static_cast<double>(forced.symbols.total()),
                static_cast<double>(forced.results.correct()), static_cast<double>(forced.results.total()),
                static_cast<double>(greedy.symbols.correct()), static_cast<double>(greedy.symbols.total()),
                static_cast<double>(greedy.results.correct()), static_cast<double>(greedy.results.total()),
                likelihood.nll_sum(), static_cast<double>(likelihood.count())});
  }
  Counts forced, greedy;
  metrics::Likelihood likelihood;
  for (const std::vector<double>& counts : shared.all()) {
    const auto whole = [&](size_t i) { return static_cast<int64_t>(counts[i]); };
    forced.symbols.add(whole(0), whole(1));
    forced.results.add(whole(2), whole(3));
    greedy.symbols.add(whole(4), whole(5));
    greedy.results.add(whole(6), whole(7));
    likelihood.add(counts[8], whole(9));
  }
  const Counts& deciding = both ? greedy : forced;
  return Evaluation{{{"accuracy", deciding.symbols.value()},
                     {"teacher_forced_accuracy", forced.symbols.value()},
                     {"result_accuracy", deciding.results.value()},
                     {"nll", likelihood.nll()}},
                    forced.symbols.total()};
}

weights::NamedTensors Algorithmic::save() const {
  return {{"next_batch", at::full({1}, next_batch_, at::kLong)},
          {"fingerprint", at::full({1}, static_cast<int64_t>(source_->fingerprint()), at::kLong)}};
}

void Algorithmic::load(const std::function<at::Tensor(const std::string&)>& find) {
  const int64_t next_batch = saved_next_batch(find);
  // Checkpoints of earlier versions do not say whose position they hold.
  if (find("fingerprint").defined()) {
    base::require(saved_number(find, "fingerprint") == static_cast<int64_t>(source_->fingerprint()),
                  "data position: it belongs to other samples than those of [data] ({})", source_->name());
  }
  next_batch_ = next_batch;
}

}  // namespace mnemo::tasks
