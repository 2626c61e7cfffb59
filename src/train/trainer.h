#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/stop.h"
#include "distributed/group.h"
#include "distributed/reducer.h"
#include "tasks/task.h"
#include "train/gradient_watch.h"
#include "train/history.h"
#include "train/low_rank.h"
#include "train/optimiser.h"
#include "train/optimiser_shards.h"
#include "train/options.h"
#include "train/schedule.h"
#include "train/segment_bptt.h"
#include "train/weight_average.h"
#include "weights/checkpoint.h"

namespace mnemo::core {
class Model;
}

namespace mnemo::train {

class RunLog;

/// The result of one optimizer step.
struct StepOutcome {
  double loss = 0;           ///< mean nll over the step's targets, before the step
  double total = 0;          ///< including the auxiliary loss: the value that was differentiated
  double gradient_norm = 0;  ///< before clipping
  double lr = 0;
  int64_t targets = 0;
  std::vector<double> parts = {};  ///< of the loss, as Task::loss_parts() names them
};

struct TrainReport {
  int64_t steps = 0;             ///< completed steps, including earlier runs
  int64_t tokens = 0;            ///< training targets so far
  double seconds = 0;            ///< training time, without evaluation and saving
  int stopped = 0;               ///< the answer of RunHooks::should_stop that ended it early, or 0
  bool out_of_patience = false;  ///< options.patience ended it
  History history;
  std::string checkpoint;  ///< the last checkpoint written or resumed from; empty: none
  double waited = 0;       ///< seconds of this process's steps in which gradients of other ranks were waited for
};

struct RunHooks {
  /// Asked after every step; the run is saved before it ends. With a group one rank's answer ends all.
  base::ShouldStop should_stop;
  /// Called after every step and every checkpoint: steps that are done, and the step of the last checkpoint (-1: none).
  std::function<void(int64_t done, int64_t saved)> on_step;
  std::function<void(const LossPoint&)> on_loss;
  std::function<void(const EvaluationPoint&)> on_evaluation;
  /// Called with the step after every sample_every steps and after the last one, before what belongs to the step is
  /// saved; the model then has the weights that evaluations see.
  std::function<void(int64_t step)> on_sample;
  int64_t sample_every = 0;  ///< 0: never
  bool show_progress = true;
};

/// Trains a model on a task, using only their interfaces.
///
/// A step takes the task's next segments, differentiates the mean nll over all their targets (and the auxiliary loss)
/// with backward_segments, clips, and updates the weights. Then per-model state (the GRC cache) is committed, and
/// per-sequence state is carried over, detached, if the task's sequences continue. With accumulate = A the rows run in
/// A parts; losses are divided by the targets of all parts together, so the gradient is that of the whole batch.
///
/// With ema_decay the trainer keeps a moving average of the weights, evaluates it on held-out data and saves it next to
/// them.
///
/// With a group, the ranks train one model: every rank has the same task and takes its share of the rows of each part.
/// Losses are divided by the targets of all ranks, and gradients are summed over the ranks. Random masks are drawn by
/// row of the whole batch, and per-model state is the mean over all rows. A step thus equals that of one process with
/// the whole batch, to rounding. Checkpoints hold all ranks' rows and load on any number of ranks.
///
/// Checkpoints contain everything the next step depends on: a resumed run is bitwise equal to an uninterrupted one (on
/// the same machine with the same number of threads).
class Trainer {
 public:
  /// run_folder: folder for checkpoints and logs; empty: none. files: what every checkpoint holds besides, name to
  /// content. group: the ranks that share the batch, null for one process; rank 0 writes. Steps draw from a generator
  /// of the trainer's own, on the CPU, so trainings in several threads do not see each other. Throws InputError for
  /// options that do not fit the model.
  Trainer(core::Model& model, tasks::Task& task, const TrainOptions& options, std::string run_folder = {},
          std::map<std::string, std::string> files = {}, std::shared_ptr<distributed::Group> group = {});

  /// Resumes from a checkpoint folder. Throws InputError if it is damaged or belongs to another model, data or batch
  /// size.
  void resume(const std::string& checkpoint);
  /// Resumes from the newest good checkpoint of the run folder; returns false if there is none.
  bool resume_latest();

  /// One optimizer step, without logging or saving. Throws NotFinite that names step, learning rate and last
  /// checkpoint if the loss or a gradient is not finite; the weights are then unchanged.
  StepOutcome step();

  /// Trains until options.steps are done, the metric has reached options.stop_at, options.patience has run out or
  /// hooks.should_stop says so, with evaluations, logs and checkpoints according to the options. A finished run returns
  /// immediately. Throws InputError if the run folder contains checkpoints that were not resumed from.
  TrainReport run(const RunHooks& hooks = {});

  /// Writes a checkpoint of the current state; returns its path.
  std::string save();

  /// With ema_decay, permanently replaces the model's weights by the average; no step may follow. No effect otherwise.
  void take_average();

  /// With LoRA, writes the trained factors and parameters as a file of their own (weights/lora.h). No effect otherwise.
  void write_lora(const std::string& path) const;

  /// After a run that patience has ended: loads the weights of the best checkpoint; no step may follow. Throws
  /// InputError if that checkpoint is gone. Returns the evaluation that they had; without patience the last one, or
  /// null.
  const EvaluationPoint* take_best();

  int64_t steps_done() const { return steps_; }
  /// Whether run() has nothing left to do: all steps, stop_at or patience.
  bool done() const { return steps_ >= options_.steps || reached() || out_of_patience(); }
  /// Seconds of its steps, before and after a resume; evaluations and checkpoints do not count.
  double seconds() const { return seconds_; }
  const History& history() const { return history_; }

 private:
  /// Sums since the last point of the loss curve.
  struct Running {
    double loss = 0, gradient_norm = 0;
    int64_t steps = 0;
    std::vector<double> parts = {};
  };

  /// This rank's rows of one accumulation step.
  struct Share {
    int64_t part_rows = 0, first = 0, rows = 0;  ///< first: in the whole batch
    int64_t offset = 0;                          ///< of first in the part
  };
  Share share_of(int64_t batch_rows, int64_t part) const;
  void reduce(StepOutcome& outcome);
  at::Tensor sum_over_ranks(const at::Tensor& value);
  void share_generators();
  /// Random generators the model uses: the trainer's own and its device's.
  std::vector<at::Generator> generators() const;
  void require_equal_ranks();
  /// Path of the checkpoint of `best`, with whose weights a run with patience ends. Throws InputError, in the name of
  /// `where`, if it is gone.
  std::string best_checkpoint(const std::string& where, const EvaluationPoint& best) const;
  void choose_parameters();
  weights::NamedTensors lora_tensors() const;
  bool writes() const { return !run_folder_.empty() && (group_ == nullptr || group_->rank() == 0); }
  weights::NamedTensors carried_state();
  /// The optimizer's and the schedule's, of whole parameters. All ranks call it.
  weights::NamedTensors whole_optimiser_state();
  void load_optimiser(const weights::TensorFile& file, const std::string& where);
  std::string write_checkpoint(const weights::NamedTensors& optimiser, const weights::NamedTensors& carried);
  BpttResult differentiate(const std::vector<data::Batch>& segments, int64_t part, int64_t targets,
                           StepOutcome& outcome);
  /// `real`: of each of several parts with rows, its sequences with a real token.
  void commit(std::vector<core::State> states, const std::vector<double>& real);
  void require_finite(const StepOutcome& outcome) const;
  void require_finite_weights() const;
  std::string last_checkpoint() const;  ///< in words
  LossPoint loss_point(double lr);
  void evaluate(const RunHooks& hooks, RunLog* log);
  /// Whether the last evaluation has reached options.stop_at.
  bool reached() const;
  /// The best of all evaluations, the first of equals; null if there is none.
  const EvaluationPoint* best_evaluation() const;
  /// Whether options.patience has run out. It depends on the history alone, so a resumed run stops where it would have.
  bool out_of_patience() const;
  void keep_step();
  bool owes_evaluation() const;
  TrainReport report(int stopped) const;
  void load(const weights::CheckpointReader& reader);
  void load_weights(const weights::CheckpointReader& reader);
  void load_states(const weights::CheckpointReader& reader, int64_t parts);

  core::Model& model_;
  tasks::Task& task_;
  TrainOptions options_;
  std::string run_folder_;
  std::map<std::string, std::string> files_;
  bool per_model_state_;                    ///< the model's state has fields that belong to it, not to a sequence
  bool carries_;                            ///< a step begins with the states that the one before left
  std::unique_ptr<LowRank> lora_;           ///< null without LoRA
  std::vector<layers::Parameter> trained_;  ///< updated by the optimizer
  std::unique_ptr<Optimiser> optimiser_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<WeightAverage> average_;  ///< null without ema_decay
  at::Generator generator_;                 ///< for what the model draws on the CPU
  bool average_taken_ = false;

  std::shared_ptr<distributed::Group> group_;      ///< null: one process
  std::unique_ptr<distributed::Reducer> reducer_;  ///< with a group
  std::unique_ptr<OptimiserShards> shards_;        ///< with a group and shard_optimiser

  int64_t steps_ = 0, tokens_ = 0;
  int64_t saved_ = -1;  ///< the step of checkpoint_
  double seconds_ = 0, waited_ = 0;
  std::vector<core::State> states_;  ///< one per part; empty: the next step starts with a fresh state
  Running running_;
  History history_;
  std::optional<double> best_;  ///< best value of the task's metric, negated if more is better
  bool is_best_ = false;        ///< the current model has reached it
  std::string checkpoint_;
  GradientWatch watch_;
};

}  // namespace mnemo::train
