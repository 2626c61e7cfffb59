#include "train/trainer.h"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text_format.h"
#include "core/last_inputs.h"
#include "models/finetune.h"
#include "ops/batch_rows.h"
#include "ops/linear/linear.h"
#include "train/auxiliary_loss.h"
#include "train/run_log.h"

namespace mnemo::train {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Sum of scalars that may be undefined; one wait for the device.
double sum_of(const std::vector<at::Tensor>& scalars) {
  std::vector<at::Tensor> defined;
  for (const at::Tensor& scalar : scalars) {
    if (scalar.defined()) defined.push_back(scalar);
  }
  if (defined.empty()) return 0.0;
  return (defined.size() == 1 ? defined.front() : at::stack(defined).sum()).item<double>();
}

/// Whether the model's state has fields of sequences, or of the model itself.
bool has_state(const core::Model& model, bool per_sequence) {
  const auto fields = model.initial_state(1).fields();
  return std::any_of(fields.begin(), fields.end(),
                     [&](const auto& field) { return field.first.per_sequence() == per_sequence; });
}

/// Bytes of the segments' graphs that backward_segments may store.
int64_t stored_bytes(const TrainOptions& options) {
  using Recompute = TrainOptions::Recompute;
  if (options.recompute == Recompute::none || options.recompute == Recompute::layer) return kStoreAll;
  return options.memory_limit ? *options.memory_limit * 1'000'000 : 0;
}

void require_float32(const core::Model& model) {
  for (const auto& [name, tensor] : model.parameters().named()) {
    base::require(tensor.scalar_type() == at::kFloat,
                  "training: precision = \"bf16\" rounds the factors of float32 products; expected "
                  "float32 parameters, found {} in '{}'",
                  at::toString(tensor.scalar_type()), name);
  }
}

/// "bits_per_character 2.31, held out 2.46": the loss in the unit of the metric, where it can be said in it, else in
/// nats.
std::string progress_note(const tasks::Task& task, double loss, const History& history) {
  const std::optional<double> value = task.metric_of_loss(loss);
  std::string note = value ? fmt::format("{} {:.4g}", task.metric(), *value) : fmt::format("loss {:.4g} nats", loss);
  if (history.evaluations.empty()) return note;
  const double held_out = history.evaluations.back().evaluation.at(task.metric());
  return note + fmt::format(", held out {}{:.4g}", value ? "" : task.metric() + " ", held_out);
}

/// Every rank gets the same number of rows of every part.
void require_divisible(const TrainOptions& options, int64_t ranks) {
  const int64_t unit = options.accumulate * ranks, batch = options.batch_size;
  const int64_t below = batch / unit * unit, above = below + unit;
  base::require(batch % unit == 0,
                "training: 'train.batch_size': expected a multiple of {} ({} ranks{}), such as {}{}, found {}", unit,
                ranks, options.accumulate > 1 ? fmt::format(" times accumulate = {}", options.accumulate) : "",
                below > 0 ? fmt::format("{} or ", below) : "", above, batch);
}

/// Rows of a batch that have a real token or pixel.
double real_rows(const data::Batch& batch) {
  if (!batch.input.valid.defined()) return static_cast<double>(data::num_rows(batch));
  return batch.input.valid.flatten(1).any(1).sum().item<double>();
}

}  // namespace

Trainer::Trainer(core::Model& model, tasks::Task& task, const TrainOptions& options, std::string run_folder,
                 std::map<std::string, std::string> files, std::shared_ptr<distributed::Group> group)
    : model_(model),
      task_(task),
      options_(options),
      run_folder_(std::move(run_folder)),
      files_(std::move(files)),
      per_model_state_(has_state(model, false)),
      carries_(task.carries_state() || (task.keeps_places() && has_state(model, true))),
      group_(std::move(group)) {
  base::check_options(options_);
  base::require(task.batch_size() == options_.batch_size,
                "training: the task has batches of {}, the options batches of {}", task.batch_size(),
                options_.batch_size);
  if (options_.precision == ops::ProductPrecision::bf16) require_float32(model);
  base::require(options_.replay == 0 || !per_model_state_,
                "training: 'train.replay': {} segments would be replayed in every step, and every replay would update "
                "the model's per-model memory again; expected 0",
                options_.replay);
  base::require(options_.accumulate == 1 || options_.segments_per_step == 1 || !per_model_state_,
                "training: 'train.accumulate', 'train.segments_per_step': a per-model memory is updated after each "
                "segment of the whole batch; expected 1 for one of them, found {} and {}",
                options_.accumulate, options_.segments_per_step);
  base::require(
      options_.recompute != TrainOptions::Recompute::layer || model.recomputes_layers(),
      "training: 'train.recompute': expected \"none\" for an image model, which does not support it, found \"layer\"");
  choose_parameters();
  if (group_) {
    require_divisible(options_, group_->size());
    if (group_->size() > 1) task.require_shareable(model);
    group_->note_step(0);
    task_.share_evaluations(group_);
    std::vector<at::Tensor> parameters;
    for (const layers::Parameter& parameter : model.parameters().all()) {
      if (parameter.tensor.requires_grad()) parameters.push_back(parameter.tensor);
    }
    reducer_ = std::make_unique<distributed::Reducer>(
        *group_, std::move(parameters),
        distributed::ReducerOptions{.bf16 = group_->size() > 1 &&
                                            options_.reduce_precision == TrainOptions::ReducePrecision::bf16});
  }
  if (group_ && options_.shard_optimiser) shards_ = std::make_unique<OptimiserShards>(*group_, model.parameters());
  optimiser_ = make_optimiser(options_.optimiser, shards_ ? shards_->own() : trained_);
  schedule_ = make_schedule(options_.schedule, options_.steps);
  base::require(!schedule_->needs_evaluations() || options_.eval_every > 0,
                "training: 'train.schedule': this schedule lowers the rate when evaluations stop improving; expected "
                "train.eval_every above 0, found {}",
                options_.eval_every);
  const char* measured = schedule_->needs_evaluations() ? "schedule"
                         : options_.patience            ? "patience"
                         : options_.stop_at             ? "stop_at"
                                                        : nullptr;
  if (measured != nullptr) {
    base::require(task.has(data::Part::valid),
                  "training: 'train.{}' goes by held-out data; expected data.valid, or a data.valid_fraction above 0, "
                  "found none",
                  measured);
  }
  if (options_.ema_decay) average_ = std::make_unique<WeightAverage>(model, *options_.ema_decay);
  if (options_.threads > 0) at::set_num_threads(static_cast<int>(options_.threads));
  generator_ = at::detail::createCPUGenerator();
  for (at::Generator& generator : generators()) generator.set_current_seed(static_cast<uint64_t>(options_.seed));
}

/// Which parameters take a gradient, and which the optimizer updates.
void Trainer::choose_parameters() {
  const std::vector<layers::Parameter>& all = model_.parameters().all();
  trained_ = all;
  if (options_.only.empty() && !options_.lora) return;
  if (options_.lora) {
    lora_ = std::make_unique<LowRank>(all, *options_.lora, static_cast<uint64_t>(options_.seed));
    trained_ = lora_->factors();
  } else {
    trained_.clear();
  }
  models::train_only(model_.parameters(), options_.only);
  for (const layers::Parameter& parameter : all) {
    const bool factored = lora_ && lora_->has(parameter.name);
    base::require(
        !factored || !parameter.tensor.requires_grad(),
        "train.only: '{}' is also in train.lora.targets, which change only by their factors; drop it from one of them",
        parameter.name);
    if (parameter.tensor.requires_grad()) trained_.push_back(parameter);
    if (factored) at::Tensor(parameter.tensor).set_requires_grad(true);
  }
  int64_t count = 0;
  for (const layers::Parameter& parameter : trained_) count += parameter.tensor.numel();
  base::log_info("trains {} of {} parameters", base::grouped(count), base::grouped(model_.parameters().count()));
}

/// A part of the batch, and of it the rows of this rank. Batches of sentences differ in their number of rows.
Trainer::Share Trainer::share_of(int64_t batch_rows, int64_t part) const {
  const int64_t parts = options_.accumulate, ranks = group_ ? group_->size() : 1, rank = group_ ? group_->rank() : 0;
  const int64_t begin = batch_rows * part / parts, rows = batch_rows * (part + 1) / parts - begin;
  const int64_t offset = rows * rank / ranks;
  return {rows, begin + offset, rows * (rank + 1) / ranks - offset, offset};
}

BpttResult Trainer::differentiate(const std::vector<data::Batch>& segments, int64_t part, int64_t targets,
                                  StepOutcome& outcome) {
  const Share share = share_of(data::num_rows(segments.front()), part);
  const ops::BatchRowsGuard random({share.offset, share.rows, group_ ? share.part_rows : 0});
  const at::Device device = core::device_of(model_);
  std::vector<data::Batch> own;
  std::vector<BpttSegment> inputs;
  for (const data::Batch& segment : segments) {
    own.push_back(to(data::rows(segment, share.first, share.rows), device));
    inputs.push_back({core::in_training(own.back().input), own.back().reset});
    inputs.back().input.recompute_layers = options_.recompute == TrainOptions::Recompute::layer;
  }
  const core::State state = states_.empty() ? model_.initial_state(share.rows) : states_[static_cast<size_t>(part)];
  const auto count = static_cast<int64_t>(segments.size());
  // Segments that a replay reads again have no loss, and no auxiliary one.
  const int64_t again = options_.replay > 0 ? count - options_.segments_per_step : 0;
  const double weight = static_cast<double>(share.rows) / static_cast<double>(share.part_rows) /
                        static_cast<double>((count - again) * options_.accumulate);
  std::vector<at::Tensor> reported(segments.size()), parts(segments.size());
  BpttHooks hooks;
  if (group_ && part + 1 == options_.accumulate) hooks.before_last_backward = [&] { reducer_->arm(); };
  if (group_ && per_model_state_) {
    const auto weight_of = [&](size_t index) {
      const data::Batch whole = data::rows(segments[index], share.first - share.offset, share.part_rows);
      return real_rows(own[index]) / std::max(real_rows(whole), 1.0);
    };
    hooks.shared_field = [&, weight_of](const core::Field& field, const at::Tensor& value, size_t index) {
      if (!value.is_floating_point()) return value;
      const bool is_last = group_->rank() + 1 == group_->size();
      return sum_over_ranks(value * (core::is_last_inputs(field) ? (is_last ? 1.0 : 0.0) : weight_of(index)));
    };
    hooks.shared_gradient = [&, weight_of](const at::Tensor& gradient, size_t index) {
      return sum_over_ranks(gradient) * weight_of(index);
    };
  }
  // The next step begins with the last `replay` segments once more.
  const int64_t behind = std::max<int64_t>(count - options_.replay, 0);
  if (options_.replay > 0 && behind > 0) hooks.carried = behind;
  const ops::ProductPrecisionGuard precision(options_.precision);
  BpttResult result = backward_segments(
      model_, inputs, state,
      [&](const core::StepResult& step, size_t index) {
        const data::Batch& batch = own[index];
        const tasks::TaskLoss loss = batch.num_targets > 0 ? task_.loss(model_, step, batch, targets)
                                                           : tasks::TaskLoss();
        if (loss.reported.defined()) reported[index] = loss.reported.detach();
        parts[index] = loss.parts;
        return static_cast<int64_t>(index) < again ? loss.total : with_auxiliary(loss.total, model_, step, weight);
      },
      options_.bptt, stored_bytes(options_), hooks);
  outcome.loss += sum_of(reported);
  outcome.total += sum_of(result.losses);
  for (const at::Tensor& own : parts) {
    if (!own.defined()) continue;
    const at::Tensor host = own.to(at::kCPU, at::kDouble).contiguous();
    for (size_t i = 0; i < outcome.parts.size(); ++i) outcome.parts[i] += host.const_data_ptr<double>()[i];
  }
  if (behind == 0) result.state = states_.empty() ? core::State() : states_[static_cast<size_t>(part)];
  return result;
}

StepOutcome Trainer::step() {
  base::ensure(!average_taken_, "a step after the model has become the average of its weights");
  const double began = now();
  const ops::GeneratorGuard random(generator_);
  const auto segments = task_.next(model_.input());
  StepOutcome outcome;
  outcome.parts.assign(task_.loss_parts(model_).size(), 0.0);
  for (const data::Batch& segment : segments) outcome.targets += segment.num_targets;
  base::require(options_.accumulate == 1 || segments.size() == 1 || !per_model_state_,
                "training: accumulate = {}: a per-model memory is updated after each segment of the whole batch; "
                "expected one segment per step, found {}",
                options_.accumulate, segments.size());
  model_.parameters().zero_grad();
  std::vector<core::State> next;
  std::vector<double> real;  // of each of several parts that has rows, its sequences with a real token
  bool idle = false;         // has a rank no row of some part?
  for (int64_t part = 0; part < options_.accumulate; ++part) {
    const Share share = share_of(data::num_rows(segments.front()), part);
    if (share.part_rows == 0) continue;  // a batch with fewer rows than parts
    base::require(!group_ || !per_model_state_ || share.part_rows >= group_->size(),
                  "training: a batch of {} sequences for {} ranks, and the model has a per-model memory; expected a "
                  "sequence for each rank",
                  share.part_rows, group_ ? group_->size() : 1);
    // A rank without a row of a part draws none of its numbers, which the next part goes on from.
    if (idle) share_generators();
    idle = group_ && share.part_rows < group_->size();
    if (share.rows == 0) continue;
    if (per_model_state_ && options_.accumulate > 1)
      real.push_back(real_rows(data::rows(segments.front(), share.first - share.offset, share.part_rows)));
    next.push_back(differentiate(segments, part, outcome.targets, outcome).state);
  }
  if (group_) reduce(outcome);
  if (idle) share_generators();
  outcome.lr = optimiser_->base_lr() * schedule_->factor(steps_);
  if (lora_) lora_->take_gradients();
  outcome.gradient_norm = gradient_norm(trained_);
  require_finite(outcome);
  if (options_.clip_norm) clip_gradients(trained_, outcome.gradient_norm, *options_.clip_norm);
  if (shards_) shards_->take_gradients();
  optimiser_->step(schedule_->factor(steps_));
  if (shards_) shards_->exchange();
  if (lora_) lora_->merge();
  commit(std::move(next), real);
  if (average_) average_->update();
  ++steps_;
  if (group_) group_->note_step(steps_);
  tokens_ += outcome.targets;
  is_best_ = false;
  running_.loss += outcome.loss;
  running_.gradient_norm += outcome.gradient_norm;
  running_.parts.resize(outcome.parts.size());
  for (size_t i = 0; i < outcome.parts.size(); ++i) running_.parts[i] += outcome.parts[i];
  ++running_.steps;
  seconds_ += now() - began;
  return outcome;
}

void Trainer::commit(std::vector<core::State> states, const std::vector<double>& real) {
  if (per_model_state_) {
    const double total = std::accumulate(real.begin(), real.end(), 0.0);
    if (states.size() > 1 && total > 0) {
      // As the whole batch would have: the mean over the sequences with a real token, or the last inputs.
      std::vector<std::vector<std::pair<core::Field, at::Tensor>>> fields;
      for (const core::State& state : states) fields.push_back(state.fields());
      for (core::State& state : states) {
        size_t index = 0;
        state = state.map([&](const core::Field& field, const at::Tensor& tensor) {
          const size_t i = index++;
          if (field.per_sequence()) return tensor;
          if (core::is_last_inputs(field) || !tensor.is_floating_point()) return fields.back()[i].second;
          at::Tensor sum = fields[0][i].second * (real[0] / total);
          for (size_t part = 1; part < fields.size(); ++part) sum = sum + fields[part][i].second * (real[part] / total);
          return sum;
        });
      }
    }
    model_.commit(states.front());
  }
  // Until a replay is full, every step begins where the first one did.
  const bool begins_anew = std::all_of(states.begin(), states.end(), [](const core::State& s) { return s.empty(); });
  states_ = carries_ && !begins_anew ? std::move(states) : std::vector<core::State>{};
}

void Trainer::require_finite(const StepOutcome& outcome) const {
  if (std::isfinite(outcome.total) && std::isfinite(outcome.gradient_norm)) return;
  const bool loss = !std::isfinite(outcome.total);
  throw base::NotFinite(fmt::format(
      "training: step {}: the {} is {} at learning rate {:g}; the weights are as before this step; {}; try a lower "
      "train.optimiser.lr, a longer warm-up or a lower train.clip_norm",
      steps_ + 1, loss ? "loss" : "norm of the gradient", loss ? outcome.total : outcome.gradient_norm, outcome.lr,
      last_checkpoint()));
}

std::string Trainer::last_checkpoint() const {
  return checkpoint_.empty() ? "no checkpoint was written" : "the last good checkpoint is " + checkpoint_;
}

void Trainer::take_average() {
  if (!average_ || average_taken_) return;
  average_->swap();
  average_taken_ = true;
}

LossPoint Trainer::loss_point(double lr) {
  const auto count = static_cast<double>(running_.steps);
  LossPoint point{steps_,          tokens_, seconds_, running_.loss / count, lr, running_.gradient_norm / count,
                  model_.scalars()};
  const std::vector<std::string> parts = task_.loss_parts(model_);
  for (size_t i = 0; i < running_.parts.size(); ++i)
    point.scalars.insert(point.scalars.begin() + static_cast<std::ptrdiff_t>(i),
                         {"loss." + parts[i], {running_.parts[i] / count}});
  running_ = {};
  return point;
}

void Trainer::evaluate(const RunHooks& hooks, RunLog* log) {
  const AveragedWeights averaged(average_.get());
  auto found = task_.evaluate(model_, data::Part::valid);
  if (!found) return;
  const double value = found->at(task_.metric());
  const double lower = task_.lower_is_better() ? value : -value;
  is_best_ = std::isfinite(lower) && (!best_ || lower < *best_);
  if (is_best_) best_ = lower;
  schedule_->observe(lower);
  const EvaluationPoint point{steps_, tokens_, seconds_, std::move(*found)};
  history_.add(point);
  if (log != nullptr) log->add(point, task_.metric());
  if (hooks.on_evaluation) hooks.on_evaluation(point);
}

bool Trainer::reached() const {
  if (!options_.stop_at || history_.evaluations.empty()) return false;
  const double value = history_.evaluations.back().evaluation.at(task_.metric());
  return task_.lower_is_better() ? value <= *options_.stop_at : value >= *options_.stop_at;
}

const EvaluationPoint* Trainer::best_evaluation() const {
  const EvaluationPoint* best = nullptr;
  const auto value = [&](const EvaluationPoint& point) {
    const double found = point.evaluation.at(task_.metric());
    return task_.lower_is_better() ? found : -found;
  };
  for (const EvaluationPoint& point : history_.evaluations) {
    if (std::isfinite(value(point)) && (best == nullptr || value(point) < value(*best))) best = &point;
  }
  return best;
}

bool Trainer::out_of_patience() const {
  if (!options_.patience || history_.evaluations.empty()) return false;
  const EvaluationPoint* best = best_evaluation();
  const auto begin = history_.evaluations.begin();
  const auto since = best == nullptr ? history_.evaluations.end() - begin
                                     : history_.evaluations.end() - (begin + (best - &*begin)) - 1;
  return since >= *options_.patience;
}

TrainReport Trainer::run(const RunHooks& hooks) {
  if (!run_folder_.empty() && checkpoint_.empty()) {
    const auto other = weights::latest_checkpoint(run_folder_);
    base::require(!other, "{}: already contains a run, up to step {}; resume it or choose another folder", run_folder_,
                  other ? other->step : 0);
  }
  const bool owed = owes_evaluation();
  if (!owed && done()) return report(0);
  const auto tell = [&] {
    if (hooks.on_step) hooks.on_step(steps_, saved_);
  };
  const auto keep = [&] {
    save();
    tell();
  };
  tell();
  const bool is_cut = carries_ && warn_of_cut_memories(model_, options_.segments_per_step + options_.replay);
  const std::unique_ptr<RunLog> log = writes() ? std::make_unique<RunLog>(run_folder_, steps_, options_.tensorboard)
                                               : nullptr;
  std::optional<base::Progress> progress;
  if (hooks.show_progress) {
    base::ProgressOptions shown;
    shown.start = steps_;
    progress.emplace("train", options_.steps, shown);
  }
  const auto every = [&](int64_t period) { return period > 0 && steps_ % period == 0; };
  const auto asked_to_stop = [&] {
    const int stopped = hooks.should_stop ? hooks.should_stop() : 0;
    return group_ ? static_cast<int>(group_->max(stopped)) : stopped;
  };
  int stopped = steps_ > 0 ? asked_to_stop() : 0;  // the time of a run that goes on may be up
  if (owed) {
    const size_t before = history_.evaluations.size();
    evaluate(hooks, log.get());
    if (!run_folder_.empty() && history_.evaluations.size() > before) keep();
  }
  bool last = done();
  while (!last && stopped == 0) {
    const StepOutcome outcome = step();
    tell();
    if (!is_cut) watch_.look(model_, trained_, lora_ != nullptr, options_.steps);
    last = steps_ == options_.steps;
    try {
      if (last || every(options_.log_every)) {
        history_.losses.push_back(loss_point(outcome.lr));
        if (log) log->add(history_.losses.back(), task_.epoch());
        if (hooks.on_loss) hooks.on_loss(history_.losses.back());
      }
      if (last || every(options_.eval_every)) {
        evaluate(hooks, log.get());
        last = last || reached() || out_of_patience();
      }
      if (hooks.on_sample && hooks.sample_every > 0 && (last || every(hooks.sample_every))) {
        const AveragedWeights averaged(average_.get());
        hooks.on_sample(steps_);
      }
    } catch (...) {
      keep_step();
      throw;
    }
    if (!last) stopped = asked_to_stop();
    const bool new_best = is_best_ && (options_.save_every > 0 || options_.patience);
    if (!run_folder_.empty() && (last || stopped != 0 || new_best || every(options_.save_every))) keep();
    if (progress) {
      progress->update(steps_, progress_note(task_, outcome.loss, history_));
    }
  }
  return report(stopped);
}

/// Whether the step that a resumed run goes on after was saved without the evaluation that it is due (keep_step).
bool Trainer::owes_evaluation() const {
  const bool due = steps_ == options_.steps || (options_.eval_every > 0 && steps_ % options_.eval_every == 0);
  const bool measured = !history_.evaluations.empty() && history_.evaluations.back().step == steps_;
  return steps_ > 0 && due && !measured && task_.has(data::Part::valid);
}

/// The step is done, whatever failed after it. Several ranks would wait for one another here.
void Trainer::keep_step() {
  if (run_folder_.empty() || group_) return;
  try {
    base::log_warning("saved {}, with this step done", save());
  } catch (const std::exception& error) {
    base::log_warning("this step could not be saved: {}", error.what());
  }
}

TrainReport Trainer::report(int stopped) const {
  return {steps_, tokens_, seconds_, stopped, stopped == 0 && out_of_patience(), history_, checkpoint_, waited_};
}

}  // namespace mnemo::train
