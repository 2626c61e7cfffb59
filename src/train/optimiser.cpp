#include "train/optimiser.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/glob.h"

namespace mnemo::train {
namespace {

std::vector<at::Tensor> gradients_of(const std::vector<layers::Parameter>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const layers::Parameter& parameter : parameters) {
    if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad());
  }
  return gradients;
}

class Adam final : public Optimiser {
 public:
  Adam(const AdamOptions& options, bool decoupled, const std::vector<layers::Parameter>& parameters)
      : Optimiser(parameters, options.lr, options.head_lr, options.param_groups, options.weight_decay),
        options_(options),
        decoupled_(decoupled),
        mean_(add_state("exp_avg")),
        square_(add_state("exp_avg_sq")) {}

 private:
  void step_group(const Group& group, double factor) override {
    auto means = pick(mean_, group.indices), squares = pick(square_, group.indices);
    // The kernel reads the number of this step, from a tensor for each parameter; they may be one and the same.
    const at::Tensor number = at::full({}, static_cast<double>(group.steps_done + 1),
                                       at::TensorOptions().dtype(at::kFloat).device(means.front().device()));
    const std::vector<at::Tensor> numbers(group.indices.size(), number);
    auto parameters = group.parameters, gradients = group.gradients;
    const auto kernel = decoupled_ ? static_cast<Kernel>(at::_fused_adamw_) : static_cast<Kernel>(at::_fused_adam_);
    kernel(parameters, gradients, means, squares, {}, numbers, group.lr * factor, options_.betas[0], options_.betas[1],
           group.weight_decay, options_.eps, false, false, {}, {});
  }

  using Kernel = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                          at::TensorList, double, double, double, double, double, bool, bool,
                          const std::optional<at::Tensor>&, const std::optional<at::Tensor>&);

  AdamOptions options_;
  bool decoupled_;
  std::vector<at::Tensor> mean_, square_;
};

class Sgd final : public Optimiser {
 public:
  Sgd(const SgdOptions& options, const std::vector<layers::Parameter>& parameters)
      : Optimiser(parameters, options.lr, options.head_lr, options.param_groups, options.weight_decay),
        options_(options) {
    if (options.momentum > 0) momentum_ = add_state("momentum");
  }

 private:
  void step_group(const Group& group, double factor) override {
    std::vector<at::Tensor> buffers;
    if (!momentum_.empty()) buffers = pick(momentum_, group.indices);
    auto parameters = group.parameters, gradients = group.gradients;
    at::_fused_sgd_(parameters, gradients, buffers, group.weight_decay, options_.momentum, group.lr * factor, 0.0,
                    options_.nesterov, false, group.steps_done == 0);
  }

  SgdOptions options_;
  std::vector<at::Tensor> momentum_;
};

}  // namespace

const base::OptionTypes& optimiser_types() {
  static const base::OptionTypes types = [] {
    base::OptionTypes made("optimiser");
    made.add<AdamWOptions>("adamw", "Adam with decoupled weight decay");
    made.add<AdamOptions>("adam", "Adam; weight decay is added to the gradient");
    made.add<SgdOptions>("sgd", "stochastic gradient descent, with or without momentum");
    return made;
  }();
  return types;
}

Optimiser::Optimiser(std::vector<layers::Parameter> parameters, double lr, std::optional<double> head_lr,
                     const std::vector<ParameterGroup>& groups, double weight_decay)
    : parameters_(std::move(parameters)),
      lr_(parameters_.size(), lr),
      base_lr_(lr),
      weight_decay_(weight_decay),
      steps_(at::zeros({static_cast<int64_t>(parameters_.size())}, at::kLong)) {
  state_.emplace_back("steps", steps_);
  std::vector<bool> grouped(parameters_.size(), false);
  /// Whether some parameter is in the group.
  const auto apply = [&](const ParameterGroup& group) {
    bool found = false;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string& name = parameters_[i].name;
      if (!base::matches_any(group.params, name)) continue;
      base::require(!grouped[i], "train.optimiser.param_groups: expected one learning rate for '{}', found two", name);
      lr_[i] = group.lr;
      grouped[i] = found = true;
    }
    return found;
  };
  base::require(!head_lr || apply({{"head.*", "task.*.head.*"}, *head_lr}),
                "train.optimiser.head_lr: expected a model whose head has parameters, found none; leave it out");
  for (const ParameterGroup& group : groups) {
    base::require(apply(group), "train.optimiser.param_groups: no trained parameter's name matches {}",
                  base::listed(group.params, 4));
  }
}

std::vector<at::Tensor> Optimiser::add_state(const std::string& name) {
  std::vector<at::Tensor> tensors;
  for (const layers::Parameter& parameter : parameters_) {
    tensors.push_back(at::zeros_like(parameter.tensor, at::MemoryFormat::Preserve).detach());
    state_.emplace_back(name + "." + parameter.name, tensors.back());
  }
  return tensors;
}

std::vector<at::Tensor> Optimiser::pick(const std::vector<at::Tensor>& all, const std::vector<size_t>& indices) {
  std::vector<at::Tensor> picked;
  picked.reserve(indices.size());
  for (const size_t index : indices) picked.push_back(all[index]);
  return picked;
}

void Optimiser::step(double factor) {
  const at::NoGradGuard no_grad;
  auto* steps = steps_.mutable_data_ptr<int64_t>();
  std::vector<Group> groups;  // as a rule two: with and without decay
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const layers::Parameter& parameter = parameters_[i];
    const at::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined()) continue;
    const double decay = parameter.kind == layers::ParameterKind::weight ? weight_decay_ : 0.0;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.steps_done == steps[i] && g.lr == lr_[i] && g.weight_decay == decay;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{steps[i], lr_[i], decay, {}, {}, {}});
    group->parameters.push_back(parameter.tensor);
    group->gradients.push_back(gradient);
    group->indices.push_back(i);
    ++steps[i];
  }
  for (const Group& group : groups) step_group(group, factor);
}

std::unique_ptr<Optimiser> make_optimiser(const base::Node& options, const std::vector<layers::Parameter>& parameters) {
  const base::Node complete = optimiser_types().complete(options.is_string() ? base::Node::table({{"type", options}})
                                                                             : options);
  const std::string& type = complete.at("type").as_string();
  if (type == "sgd") return std::make_unique<Sgd>(base::read_typed_options<SgdOptions>(complete), parameters);
  const bool decoupled = type == "adamw";
  base::ensure(decoupled || type == "adam", "optimizer '{}' is registered but cannot be created", type);
  const AdamOptions adam = decoupled ? base::read_typed_options<AdamWOptions>(complete)
                                     : base::read_typed_options<AdamOptions>(complete);
  return std::make_unique<Adam>(adam, decoupled, parameters);
}

int64_t num_moments(const base::Node& optimiser) {
  const base::Node complete = optimiser_types().complete(optimiser);
  if (base::type_of(complete) != "sgd") return 2;
  return base::read_typed_options<SgdOptions>(complete).momentum > 0 ? 1 : 0;
}

double gradient_norm(const std::vector<layers::Parameter>& parameters) {
  const at::NoGradGuard no_grad;
  const auto gradients = gradients_of(parameters);
  if (gradients.empty()) return 0.0;
  return at::stack(at::_foreach_norm(gradients)).norm().item<double>();
}

void clip_gradients(const std::vector<layers::Parameter>& parameters, double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor < 1.0)) return;
  const at::NoGradGuard no_grad;
  auto gradients = gradients_of(parameters);
  at::_foreach_mul_(gradients, factor);
}

}  // namespace mnemo::train
