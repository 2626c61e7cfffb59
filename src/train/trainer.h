#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/model.h"
#include "tasks/task.h"
#include "train/history.h"
#include "train/optimiser.h"
#include "train/options.h"
#include "train/schedule.h"
#include "train/segment_bptt.h"
#include "train/weight_average.h"
#include "weights/checkpoint.h"

namespace mnemo::train {

class RunLog;

/// One optimiser step.
struct StepOutcome {
  double loss = 0;           ///< mean nll over the step's targets, before the step
  double total = 0;          ///< with the auxiliary loss: what was differentiated
  double gradient_norm = 0;  ///< before clipping
  double lr = 0;
  int64_t targets = 0;
};

struct TrainReport {
  int64_t steps = 0;   ///< steps done, earlier runs included
  int64_t tokens = 0;  ///< training targets so far
  double seconds = 0;  ///< of training, measuring and saving left out
  int signal = 0;      ///< the signal that ended it early, or 0
  History history;
  std::string checkpoint;  ///< the last one written or resumed from; empty: none
};

struct RunHooks {
  /// Asked after every step; a number other than 0 ends the run after saving. Unset: pending_signal().
  std::function<int()> stop;
  std::function<void(const LossPoint&)> on_loss;
  std::function<void(const EvaluationPoint&)> on_evaluation;
  bool show_progress = true;
};

/// Trains a model on a task, both through their interfaces only.
///
/// A step takes the task's next segments, differentiates the mean nll over all their targets (and the auxiliary loss)
/// through backward_segments, clips, and moves the weights; then per-model state (the GRC cache) is committed and
/// per-sequence state carried on, detached, where the task's sequences go on. With accumulate = A the rows are run in A
/// parts one after the other; losses are divided by the targets of all parts together, so the gradient is the whole
/// batch's.
///
/// With ema_decay the trainer keeps a moving average of the weights, measures that on held-out data and saves it beside
/// them.
///
/// Everything the next step depends on is in a checkpoint: a resumed run is bitwise the uninterrupted one (same
/// machine, same number of threads).
class Trainer {
 public:
  /// run_folder: where checkpoints and logs go; empty: nowhere. Seeds LibTorch's generators from options.seed.
  /// Throws InputError for options that make no sense together with the model.
  Trainer(core::Model& model, tasks::Task& task, const TrainOptions& options, std::string run_folder = {});

  /// Goes on from a checkpoint folder. Throws InputError if it is damaged or of another model, data or batch.
  void resume(const std::string& checkpoint);
  /// Goes on from the newest good checkpoint of the run folder; false if there is none.
  bool resume_latest();

  /// One optimiser step, without logging or saving. Throws InputError naming step, learning rate and last checkpoint if
  /// the loss or a gradient is not finite; the weights are then as they were.
  StepOutcome step();

  /// Steps until options.steps are done, the metric has reached options.stop_at or a signal comes, with evaluations,
  /// logs and checkpoints as the options say. A run that is done already returns at once. Throws InputError when the
  /// run folder holds checkpoints that were not resumed from.
  TrainReport run(const RunHooks& hooks = {});

  /// Writes a checkpoint of this moment; returns its path.
  std::string save();

  /// With ema_decay the model becomes the average, for good: no step may follow. Nothing without.
  void take_average();

  int64_t steps_done() const { return steps_; }
  const History& history() const { return history_; }

 private:
  /// Sums since the last point of the loss curve.
  struct Running {
    double loss = 0, gradient_norm = 0;
    int64_t steps = 0;
  };

  BpttResult differentiate(const std::vector<data::TokenSegment>& segments, int64_t part, int64_t targets,
                           StepOutcome& outcome);
  void commit(std::vector<core::State> states, const std::vector<data::TokenSegment>& segments);
  void require_finite(const StepOutcome& outcome) const;
  LossPoint loss_point(double lr);
  void evaluate(const RunHooks& hooks, RunLog* log);
  /// Whether the last evaluation is as good as options.stop_at asks for.
  bool reached() const;
  TrainReport report(int signal) const;
  void load(const weights::CheckpointReader& reader);

  core::Model& model_;
  tasks::Task& task_;
  TrainOptions options_;
  std::string run_folder_;
  BpttForm form_;
  bool per_model_state_;  ///< the model's state has fields that belong to it, not to a sequence
  std::unique_ptr<Optimiser> optimiser_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<WeightAverage> average_;  ///< null without ema_decay
  bool average_taken_ = false;

  int64_t steps_ = 0, tokens_ = 0;
  double seconds_ = 0;
  std::vector<core::State> states_;  ///< one a part; empty: the next step starts afresh
  Running running_;
  History history_;
  std::optional<double> best_;  ///< of the task's metric, negated where more is better
  bool is_best_ = false;        ///< the model of this moment holds it
  std::string checkpoint_;
};

}  // namespace mnemo::train
