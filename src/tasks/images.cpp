#include "tasks/images.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "distributed/shared_batches.h"
#include "metrics/accuracy.h"
#include "metrics/likelihood.h"
#include "tasks/data_position.h"

namespace mnemo::tasks {

Images::Images(data::ImageSets sets, const data::ImageOptions& data, const ImageTrainOptions& options)
    : sets_(std::move(sets)),
      data_(data),
      options_(options),
      fingerprint_(static_cast<int64_t>(sets_.train->fingerprint())),
      training_(sets_.train, data, options.batch_size, options.shuffle, options.seed) {}

std::vector<data::TokenSegment> Images::next(const core::ModelInput&) {
  data::ImageBatch batch = training_.next();
  data::TokenSegment segment;
  segment.pixels = batch.pixels;
  segment.targets = batch.labels.unsqueeze(1);
  segment.num_targets = batch.labels.size(0);
  if (batch.targets.defined()) segment.soft_targets = batch.targets.unsqueeze(1);
  return {segment};
}

double Images::epoch() const {
  return static_cast<double>(training_.position() * options_.batch_size) / static_cast<double>(sets_.train->size());
}

std::optional<Evaluation> Images::evaluate(const core::Model& model, data::Part part) const {
  const auto& set = sets_.part(part);
  if (!set) return std::nullopt;
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  distributed::SharedBatches shared(ranks());
  data::MeasuredImages images(set, data_, options_.eval_batch_size, options_.eval_samples,
                              {shared.rank(), shared.size()});
  for (data::ImageBatch batch; images.next(batch);) {
    metrics::Accuracy accuracy, top5;
    metrics::Likelihood likelihood;
    core::Segment input;
    input.pixels = batch.pixels.to(device);
    input.mode = core::Mode::evaluate;
    const at::Tensor targets = batch.labels.unsqueeze(1).to(device);
    const core::StepResult step = model.forward(input, model.initial_state(targets.size(0)));
    const at::Tensor logits = model.logits(step.hidden);
    accuracy.add_logits(logits, targets);
    top5.add_top(logits, targets, 5);
    likelihood.add(model.nll(step.hidden, targets), targets);
    shared.add({static_cast<double>(accuracy.correct()), static_cast<double>(accuracy.total()),
                static_cast<double>(top5.correct()), static_cast<double>(top5.total()), likelihood.nll_sum(),
                static_cast<double>(likelihood.count())});
  }
  metrics::Accuracy accuracy, top5;
  metrics::Likelihood likelihood;
  for (const std::vector<double>& counts : shared.all()) {
    accuracy.add(static_cast<int64_t>(counts[0]), static_cast<int64_t>(counts[1]));
    top5.add(static_cast<int64_t>(counts[2]), static_cast<int64_t>(counts[3]));
    likelihood.add(counts[4], static_cast<int64_t>(counts[5]));
  }
  Evaluation found{{{"accuracy", accuracy.value()}, {"top5_accuracy", top5.value()}, {"nll", likelihood.nll()}},
                   accuracy.total()};
  if (data_.broken == data::ImageOptions::Broken::skip)
    found.metrics.emplace_back("skipped", static_cast<double>(shared.sum(images.num_broken())));
  return found;
}

weights::NamedTensors Images::save() const {
  return {{"next_batch", at::full({1}, training_.position(), at::kLong)},
          {"fingerprint", at::full({1}, fingerprint_, at::kLong)}};
}

void Images::load(const std::function<at::Tensor(const std::string&)>& find) {
  const int64_t next_batch = saved_next_batch(find);
  base::require(saved_number(find, "fingerprint") == fingerprint_,
                "data position: it belongs to other images than those of data.train");
  training_.seek(next_batch);
}

}  // namespace mnemo::tasks
