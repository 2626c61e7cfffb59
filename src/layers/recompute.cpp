#include "layers/recompute.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include "ops/batch_rows.h"
#include "ops/linear/linear.h"

namespace mnemo::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Everything but the inputs that a second run needs. It keeps the thread's settings, since on a device the backward
/// pass runs in another thread.
struct SecondRun final : torch::CustomClassHolder {
  SecondRun(std::function<variable_list(const variable_list&)> r, variable_list p, at::Device where)
      : run(std::move(r)), parameters(std::move(p)), device(where), random(where) {}

  std::function<variable_list(const variable_list&)> run;
  variable_list parameters;
  at::Device device;
  RandomState random;
  ops::ProductPrecision precision = ops::product_precision_now();
  ops::BatchRows rows = ops::batch_rows_now();
};

/// Leaves with the values of these tensors.
variable_list leaves_of(const variable_list& tensors, const std::function<bool(size_t)>& wanted) {
  variable_list leaves;
  for (size_t i = 0; i < tensors.size(); ++i) leaves.push_back(tensors[i].detach().set_requires_grad(wanted(i)));
  return leaves;
}

struct Recompute : torch::autograd::Function<Recompute> {
  static variable_list forward(AutogradContext* ctx, const c10::intrusive_ptr<SecondRun>& second, at::TensorList given,
                               at::TensorList /*parameters*/) {
    const variable_list inputs = given.vec();
    ctx->set_materialize_grads(false);
    ctx->save_for_backward(inputs);
    ctx->saved_data["run"] = c10::IValue::make_capsule(second);
    // With a graph, which is dropped at once: it shows which outputs depend on trained parameters.
    const c10::AutoGradMode with_graph(true);
    const variable_list made = second->run(leaves_of(inputs, [&](size_t i) { return inputs[i].requires_grad(); }));
    variable_list outputs, constant;
    for (const at::Tensor& output : made) {
      outputs.push_back(output.detach());
      if (!output.requires_grad()) constant.push_back(outputs.back());
    }
    ctx->mark_non_differentiable(constant);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto second = c10::static_intrusive_pointer_cast<SecondRun>(ctx->saved_data["run"].toCapsule());
    const variable_list inputs = ctx->get_saved_variables();
    const size_t count = inputs.size(), all = count + second->parameters.size();
    const auto wanted = [&](size_t i) { return ctx->needs_input_grad(i); };
    const RandomReplay replay(second->random, second->device);
    const ops::ProductPrecisionGuard precision(second->precision);
    const ops::BatchRowsGuard rows(second->rows);
    const c10::AutoGradMode with_graph(true);
    const variable_list leaves = leaves_of(inputs, wanted), outputs = second->run(leaves);
    variable_list roots, weights, from;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      weights.push_back(gradients[i]);
    }
    for (size_t i = 0; i < all; ++i)
      if (wanted(i)) from.push_back(i < count ? leaves[i] : second->parameters[i - count]);
    variable_list found(all + 1);  // the first argument has none
    if (roots.empty() || from.empty()) return found;
    const variable_list computed = torch::autograd::grad(roots, from, weights, false, false, true);
    for (size_t i = 0, next = 0; i < all; ++i)
      if (wanted(i)) found[i + 1] = computed[next++];
    return found;
  }
};

}  // namespace

RandomState::RandomState(at::Device device) {
  const auto add = [&](const at::Device& where) {
    const at::Generator& generator = at::globalContext().defaultGenerator(where);
    generators_.emplace_back(generator, generator.get_state());
  };
  add(at::kCPU);
  if (!device.is_cpu()) add(device);
}

void RandomState::restore() const {
  for (auto [generator, state] : generators_) generator.set_state(state);
}

void RandomState::share(const RandomState& other) {
  for (size_t i = 0; i < generators_.size(); ++i) {
    if (at::equal(generators_[i].second, other.generators_[i].second))
      generators_[i].second = other.generators_[i].second;
  }
}

std::vector<at::Tensor> recomputed(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& run,
                                   const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& parameters) {
  variable_list trained;
  for (const at::Tensor& parameter : parameters)
    if (parameter.requires_grad()) trained.push_back(parameter);
  const at::Device device = inputs.empty() ? at::Device(at::kCPU) : inputs.front().device();
  return Recompute::apply(c10::make_intrusive<SecondRun>(run, trained, device), at::TensorList(inputs),
                          at::TensorList(trained));
}

}  // namespace mnemo::layers
