#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/node.h"
#include "base/option_poly.h"
#include "base/options.h"
#include "weights/safetensors.h"

namespace mnemo::train {

/// Options of all schedules: in the first `warmup_steps` steps the learning rate rises linearly, (step + 1) /
/// warmup_steps.
struct WarmUpOptions {
  int64_t warmup_steps = 0;
  template <class V>
  void visit(V&& v) {
    v("warmup_steps", warmup_steps, "warm-up steps, in which the learning rate rises in equal parts to its full value",
      base::at_least(0));
  }
};

struct ConstantOptions : WarmUpOptions {};

/// 1 / sqrt(n): factor sqrt(max(warmup_steps, 1)) / sqrt(step + 1) (Vaswani et al. 2017, eq. 3, up to a constant).
struct InverseSqrtOptions : WarmUpOptions {};

/// From 1 to `final_factor` between the end of the warm-up and step `decay_steps`, then constant.
struct DecayOptions : WarmUpOptions {
  double final_factor = 0.0;
  int64_t decay_steps = 0;
  template <class V>
  void visit(V&& v) {
    WarmUpOptions::visit(v);
    v("final_factor", final_factor, "fraction of the learning rate that remains at the end", base::range(0, 1));
    v("decay_steps", decay_steps, "step at which final_factor is reached; 0: train.steps, so just after the last step",
      base::at_least(0));
  }
};
struct LinearOptions : DecayOptions {};
struct CosineOptions : DecayOptions {};

/// Multiplies the rate by `decay` after more than `patience` evaluations in a row without an improvement of more than
/// `threshold`.
struct PlateauOptions : WarmUpOptions {
  double decay = 0.5;
  int64_t patience = 3;
  double threshold = 1e-4;
  double final_factor = 0.0;
  template <class V>
  void visit(V&& v) {
    WarmUpOptions::visit(v);
    v("decay", decay, "factor by which the learning rate is reduced", base::open_range(0, 1));
    v("patience", patience,
      "evaluations in a row without improvement that do not lower the rate yet; the next one does", base::at_least(0));
    v("threshold", threshold, "a smaller change of the metric does not count as an improvement", base::at_least(0));
    v("final_factor", final_factor, "lower limit of the learning rate factor", base::range(0, 1));
  }
};

/// Multiplies the rate by `decay` from each step of `milestones` on, counted from 0: the 1x schedule of detectors has
/// them after 8 and 11 of 12 epochs.
struct StepOptions : WarmUpOptions {
  std::vector<int64_t> milestones;
  double decay = 0.1;
  template <class V>
  void visit(V&& v) {
    WarmUpOptions::visit(v);
    v("milestones", milestones, "steps at which the learning rate is reduced", base::at_least(1));
    v("decay", decay, "factor by which the learning rate is reduced", base::open_range(0, 1));
  }
};

/// The schedules available in recipes: constant, linear, cosine, inverse_sqrt, step, plateau.
const base::OptionTypes& schedule_types();

/// The factor of the learning rate at each step.
class Schedule {
 public:
  virtual ~Schedule() = default;
  /// The factor of step `step`, counted from 0.
  double factor(int64_t step) const;
  /// Reports the result of an evaluation; lower is better.
  virtual void observe(double /*metric*/) {}
  /// Whether it changes by evaluations alone.
  virtual bool needs_evaluations() const { return false; }
  /// The state derived from evaluations, as handles: copying into them restores it.
  weights::NamedTensors state() const { return state_; }

 protected:
  explicit Schedule(int64_t warmup) : warmup_(warmup) {}
  /// The factor after the warm-up.
  virtual double decayed(int64_t step) const = 0;
  int64_t warmup() const { return warmup_; }
  weights::NamedTensors state_;

 private:
  int64_t warmup_;
};

/// From a table with the key `type`; `steps` is the length of the run. Throws InputError for an unknown type or key.
std::unique_ptr<Schedule> make_schedule(const base::Node& options, int64_t steps);

}  // namespace mnemo::train
