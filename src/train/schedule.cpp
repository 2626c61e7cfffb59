#include "train/schedule.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"

namespace mnemo::train {
namespace {

class Constant final : public Schedule {
 public:
  explicit Constant(const ConstantOptions& options) : Schedule(options.warmup_steps) {}

 private:
  double decayed(int64_t) const override { return 1.0; }
};

class InverseSqrt final : public Schedule {
 public:
  explicit InverseSqrt(const InverseSqrtOptions& options) : Schedule(options.warmup_steps) {}

 private:
  double decayed(int64_t step) const override {
    return std::sqrt(static_cast<double>(std::max<int64_t>(warmup(), 1)) / static_cast<double>(step + 1));
  }
};

class Decay final : public Schedule {
 public:
  Decay(const DecayOptions& options, int64_t steps, bool cosine)
      : Schedule(options.warmup_steps),
        final_(options.final_factor),
        end_(options.decay_steps > 0 ? options.decay_steps : steps),
        cosine_(cosine) {}

 private:
  double decayed(int64_t step) const override {
    const auto length = static_cast<double>(std::max<int64_t>(end_ - warmup(), 1));
    const double done = std::clamp(static_cast<double>(step - warmup()) / length, 0.0, 1.0);
    const double left = cosine_ ? 0.5 * (1.0 + std::cos(std::numbers::pi * done)) : 1.0 - done;
    return final_ + (1.0 - final_) * left;
  }

  double final_;
  int64_t end_;
  bool cosine_;
};

class Step final : public Schedule {
 public:
  explicit Step(const StepOptions& options) : Schedule(options.warmup_steps), options_(options) {}

 private:
  double decayed(int64_t step) const override {
    const auto& at = options_.milestones;
    return std::pow(options_.decay, std::count_if(at.begin(), at.end(), [&](int64_t one) { return one <= step; }));
  }

  StepOptions options_;
};

class Plateau final : public Schedule {
 public:
  explicit Plateau(const PlateauOptions& options)
      : Schedule(options.warmup_steps), options_(options), values_(at::zeros({3}, at::kDouble)) {
    values_[0] = std::numeric_limits<double>::infinity();
    values_[1] = 1.0;
    state_.emplace_back("plateau", values_);
  }

  bool needs_evaluations() const override { return true; }
  void observe(double metric) override {
    auto* values = values_.mutable_data_ptr<double>();
    double &best = values[0], &factor = values[1], &without_gain = values[2];
    if (metric < best - options_.threshold) {
      best = metric;
      without_gain = 0;
    } else if (++without_gain > static_cast<double>(options_.patience)) {
      factor = std::max(factor * options_.decay, options_.final_factor);
      without_gain = 0;
    }
  }

 private:
  double decayed(int64_t) const override { return values_.const_data_ptr<double>()[1]; }

  PlateauOptions options_;
  at::Tensor values_;  // best metric, factor, evaluations without gain
};

}  // namespace

const base::OptionTypes& schedule_types() {
  static const base::OptionTypes types = [] {
    base::OptionTypes made("schedule");
    made.add<ConstantOptions>("constant", "constant learning rate");
    made.add<LinearOptions>("linear", "linear decay");
    made.add<CosineOptions>("cosine", "cosine decay");
    made.add<InverseSqrtOptions>("inverse_sqrt", "decay with the inverse square root of the step");
    made.add<StepOptions>("step", "reduced at given steps");
    made.add<PlateauOptions>("plateau", "decay when evaluations stop improving");
    return made;
  }();
  return types;
}

double Schedule::factor(int64_t step) const {
  if (step < warmup_) return static_cast<double>(step + 1) / static_cast<double>(warmup_);
  return decayed(step);
}

std::unique_ptr<Schedule> make_schedule(const base::Node& options, int64_t steps) {
  const base::Node complete = schedule_types().complete(options.is_string() ? base::Node::table({{"type", options}})
                                                                            : options);
  const std::string& type = complete.at("type").as_string();
  if (type == "constant") return std::make_unique<Constant>(base::read_typed_options<ConstantOptions>(complete));
  if (type == "inverse_sqrt")
    return std::make_unique<InverseSqrt>(base::read_typed_options<InverseSqrtOptions>(complete));
  if (type == "linear") return std::make_unique<Decay>(base::read_typed_options<LinearOptions>(complete), steps, false);
  if (type == "cosine") return std::make_unique<Decay>(base::read_typed_options<CosineOptions>(complete), steps, true);
  if (type == "step") return std::make_unique<Step>(base::read_typed_options<StepOptions>(complete));
  base::ensure(type == "plateau", "schedule '{}' is registered but cannot be created", type);
  return std::make_unique<Plateau>(base::read_typed_options<PlateauOptions>(complete));
}

}  // namespace mnemo::train
