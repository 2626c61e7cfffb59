#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/option_poly.h"
#include "base/options.h"
#include "layers/parameters.h"
#include "weights/safetensors.h"

namespace mnemo::train {

/// Parameters with a learning rate of their own.
struct ParameterGroup {
  std::vector<std::string> params;
  double lr = 0;
  template <class V>
  void visit(V&& v) {
    v("params", params, "patterns of names with * and ? (\"*.grc.lambda\")", base::not_empty());
    v("lr", lr, "their learning rate; a schedule multiplies it", base::positive());
  }
  void validate(const base::Where& where) const {
    where.require(!params.empty(), "params", "expected patterns of parameters, found none");
    where.require(lr > 0, "lr", "expected a learning rate above 0, found none");
  }
};

/// Adam (Kingma and Ba 2015): g <- g + weight_decay p;  m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;
///   p <- p - lr (m / (1-b1^n)) / (sqrt(v / (1-b2^n)) + eps), n counts the steps from 1
struct AdamOptions {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.0;
  std::optional<double> head_lr = {};
  std::vector<ParameterGroup> param_groups = {};
  template <class V>
  void visit(V&& v) {
    v("lr", lr, "learning rate; a schedule multiplies it", base::at_least(0));
    v("head_lr", head_lr, "learning rate of the heads, of the model and of tasks; unset: lr", base::at_least(0));
    v("param_groups", param_groups, "parameters with a learning rate of their own");
    v("betas", betas, "decay rates of the first and second moment", base::half_open_range(0, 1));
    v("eps", eps, "added to the denominator", base::positive());
    v("weight_decay", weight_decay,
      "weight decay; not applied to norms, biases, memories, class tokens and positions of images", base::at_least(0));
  }
  void validate(const base::Where& where) const {
    where.require(betas.size() == 2, "betas", "expected 2 numbers, found {}", betas.size());
  }
};

/// AdamW (Loshchilov and Hutter 2019): p <- p (1 - lr weight_decay) in addition to Adam's step, instead of decay in the
/// gradient.
struct AdamWOptions : AdamOptions {
  AdamWOptions() { weight_decay = 0.01; }
};

/// Stochastic gradient descent: g <- g + weight_decay p;  b <- momentum b + g;  p <- p - lr b, with nesterov p - lr (g
/// + momentum b).
struct SgdOptions {
  double lr = 0.1;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
  std::optional<double> head_lr = {};
  std::vector<ParameterGroup> param_groups = {};
  template <class V>
  void visit(V&& v) {
    v("lr", lr, "learning rate; a schedule multiplies it", base::at_least(0));
    v("head_lr", head_lr, "learning rate of the heads, of the model and of tasks; unset: lr", base::at_least(0));
    v("param_groups", param_groups, "parameters with a learning rate of their own");
    v("momentum", momentum, "momentum", base::half_open_range(0, 1));
    v("nesterov", nesterov, "use Nesterov momentum");
    v("weight_decay", weight_decay,
      "weight decay; not applied to norms, biases, memories, class tokens and positions of images", base::at_least(0));
  }
  void validate(const base::Where& where) const {
    where.require(!nesterov || momentum > 0, "nesterov", "needs momentum above 0, found {}", momentum);
  }
};

/// The optimizers available in recipes: adam, adamw, sgd.
const base::OptionTypes& optimiser_types();

/// Numbers that an optimizer keeps of each parameter.
int64_t num_moments(const base::Node& optimiser);

/// Updates parameters with LibTorch's fused kernels, in a few calls per step. A parameter without a
/// gradient is not changed, and its step count does not advance.
class Optimiser {
 public:
  virtual ~Optimiser() = default;
  /// One step in which the schedule's factor multiplies all learning rates. Gradients are kept.
  void step(double factor = 1.0);
  /// The learning rate before any schedule.
  double base_lr() const { return base_lr_; }
  /// Everything that later steps depend on, as handles: copying into them restores it.
  const weights::NamedTensors& state() const { return state_; }

 protected:
  /// head_lr: of parameters named head.* and task.NAME.head.*; unset: lr. Throws InputError if a rate is of no
  /// parameter, and if a parameter has two.
  Optimiser(std::vector<layers::Parameter> parameters, double lr, std::optional<double> head_lr,
            const std::vector<ParameterGroup>& groups, double weight_decay);

  /// Parameters with the same learning rate, decay and number of steps.
  struct Group {
    int64_t steps_done;
    double lr, weight_decay;
    std::vector<at::Tensor> parameters, gradients;
    std::vector<size_t> indices;
  };
  virtual void step_group(const Group& group, double factor) = 0;

  /// Zeros like each parameter, stored in state() as "NAME.PARAMETER".
  std::vector<at::Tensor> add_state(const std::string& name);
  static std::vector<at::Tensor> pick(const std::vector<at::Tensor>& all, const std::vector<size_t>& indices);

 private:
  std::vector<layers::Parameter> parameters_;
  std::vector<double> lr_;  ///< of each parameter, before any schedule
  double base_lr_, weight_decay_;
  at::Tensor steps_;  // [P] int64, steps each parameter has taken
  weights::NamedTensors state_;
};

/// From a table with the key `type`, for these parameters. Throws InputError for an unknown type or key.
std::unique_ptr<Optimiser> make_optimiser(const base::Node& options, const std::vector<layers::Parameter>& parameters);

/// ||g|| over all their gradients, in float64 for float64 parameters; 0 without gradients. Synchronizes with the
/// device once.
double gradient_norm(const std::vector<layers::Parameter>& parameters);
/// g <- g min(1, max_norm / (norm + 1e-6)), with norm = gradient_norm(parameters).
void clip_gradients(const std::vector<layers::Parameter>& parameters, double norm, double max_norm);

}  // namespace mnemo::train
