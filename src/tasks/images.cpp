#include "tasks/images.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/ignore_target.h"
#include "base/text_format.h"
#include "core/model.h"
#include "core/state.h"
#include "distributed/shared_batches.h"
#include "metrics/accuracy.h"
#include "metrics/likelihood.h"
#include "tasks/data_position.h"

namespace mnemo::tasks {
namespace {

constexpr size_t kCounts = 6;  ///< numbers that an evaluation counts of each batch

/// The state in which `count` images begin, the first places of the batch before it; a state of its own at the start.
core::State next_places(const core::Model& model, const core::State& before, int64_t places, int64_t count) {
  if (places == 0) return model.initial_state(count);
  base::ensure(count <= places, "an evaluation's batches become no larger: {} after {}", count, places);
  return count == places ? before : core::select_batch(before, at::arange(count, at::kLong));
}

/// `before` with the places `changed` as they are in `after`, which has these alone, in order.
core::State with_places(const core::State& before, int64_t places, const core::State& after,
                        const at::Tensor& changed) {
  const int64_t count = changed.numel();
  at::Tensor from = at::arange(places, at::kLong) + count;
  from.index_copy_(0, changed, at::arange(count, at::kLong));
  return core::select_batch(core::concat_batch({after, before}), from);
}

/// Whether an image has changed the memory that later images in its place read.
bool moved(const core::State& before, const core::State& after) {
  const auto old = before.fields(), now = after.fields();
  if (old.size() != now.size()) return true;
  for (size_t i = 0; i < old.size(); ++i) {
    if (old[i].first.per_sequence() && !old[i].second.is_same(now[i].second)) return true;
  }
  return false;
}

}  // namespace

Images::Images(data::ImageSets sets, const data::ImageOptions& data, const ImageTrainOptions& options)
    : sets_(std::move(sets)),
      data_(data),
      options_(options),
      fingerprint_(static_cast<int64_t>(sets_.train->fingerprint())),
      training_(sets_.train, data, options.batch_size, options.shuffle, options.seed) {}

std::vector<data::Batch> Images::next(const core::ModelInput&) {
  const data::ImageBatch images = training_.next();
  data::Batch batch;
  batch.input.pixels = images.pixels;
  batch.targets = ImageTargets{images.labels.unsqueeze(1),
                               images.targets.defined() ? images.targets.unsqueeze(1) : at::Tensor()};
  batch.num_targets = images.labels.size(0);
  return {batch};
}

TaskLoss Images::loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                      int64_t targets) const {
  const auto& classes = batch.targets.as<ImageTargets>();
  const at::Tensor nll = classes.soft.defined() ? -(at::log_softmax(model.logits(step.hidden), -1) *
                                                    classes.soft.to(step.hidden.scalar_type()))
                                                       .sum(-1)
                                                : model.nll(step.hidden, classes.labels);
  return nll.sum().div(static_cast<double>(targets));
}

double Images::epoch() const {
  return static_cast<double>(training_.position() * options_.batch_size) / static_cast<double>(sets_.train->size());
}

std::optional<Evaluation> Images::evaluate(const core::Model& model, data::Part part) const {
  if (!has(part)) return std::nullopt;
  const auto& set = sets_.part(part);
  Evaluation found = measure(model, set, options_.eval_samples);
  if (options_.eval_train_samples > 0 && part != data::Part::train) {
    const Evaluation seen = measure(model, sets_.train, options_.eval_train_samples);
    for (const char* name : {"accuracy", "nll"})
      found.metrics.emplace_back(std::string("train_") + name, seen.at(name));
  }
  return found;
}

void Images::require_shareable(const core::Model& model) const {
  const at::NoGradGuard no_grad;
  core::Segment image;
  image.pixels = at::zeros({1, 3, data_.height(), data_.width()}, device_of(model));
  image.mode = core::Mode::evaluate;
  const core::State before = model.initial_state(1);
  base::require(!moved(before, model.forward(image, before).state),
                "evaluation: several processes each measure a share of the batches, but this model carries a memory "
                "from batch to batch; expected one process, or a memory that stays empty in evaluation");
}

Evaluation Images::measure(const core::Model& model, const std::shared_ptr<const data::ImageSet>& set,
                           int64_t samples) const {
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  distributed::SharedBatches shared(ranks());
  if (shared.size() > 1) require_shareable(model);
  data::MeasuredImages images(set, data_, options_.eval_batch_size, samples, {shared.rank(), shared.size()});
  core::State state;
  int64_t places = 0;
  for (data::ImageBatch batch; images.next(batch);) {
    metrics::Accuracy accuracy, top5;
    metrics::Likelihood likelihood;
    const core::State before = next_places(model, state, places, batch.labels.size(0));
    places = batch.labels.size(0);
    state = before;
    const at::Tensor readable = at::nonzero(batch.labels != base::kIgnoreTarget).squeeze(1);
    if (readable.numel() == 0) {
      shared.add(std::vector<double>(kCounts, 0.0));
      continue;
    }
    const bool all = readable.numel() == places;
    core::Segment input;
    input.pixels = core::as_input(model, all ? batch.pixels : batch.pixels.index_select(0, readable));
    input.mode = core::Mode::evaluate;
    const at::Tensor targets = batch.labels.index_select(0, readable).unsqueeze(1).to(device);
    core::StepResult step = model.forward(input, all ? before : core::select_batch(before, readable));
    state = all ? std::move(step.state) : with_places(before, places, step.state, readable);
    const at::Tensor logits = model.logits(step.hidden);
    accuracy.add_logits(logits, targets);
    if (logits.size(-1) > 5) top5.add_top(logits, targets, 5);  // of five classes every image has one
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
  base::require(accuracy.total() > 0, "evaluation: none of the {} can be read, from {} on",
                base::counted(std::min(samples, set->size()), "image"), set->name(0));
  Evaluation found{{{"accuracy", accuracy.value()}}, accuracy.total()};
  if (top5.total() > 0) found.metrics.emplace_back("top5_accuracy", top5.value());
  found.metrics.emplace_back("nll", likelihood.nll());
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
