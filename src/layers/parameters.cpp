#include "layers/parameters.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <set>

#include "base/error.h"
#include "layers/given_parameters.h"
#include "layers/uninitialised.h"

namespace mnemo::layers {

Initialiser normal(double std) {
  return [std](at::Tensor& tensor, at::Generator& generator) { tensor.normal_(0.0, std, generator); };
}

Initialiser constant(double value) {
  return [value](at::Tensor& tensor, at::Generator&) { tensor.fill_(value); };
}

ParameterSet::ParameterSet(uint64_t seed, at::ScalarType dtype, const Budget& budget, at::Device device)
    : parameters_(std::make_shared<std::vector<Parameter>>()),
      generator_(at::detail::createCPUGenerator(seed)),
      dtype_(dtype),
      device_(device),
      left_(budget) {}

Scope ParameterSet::root() { return Scope(*this, ""); }

at::Tensor ParameterSet::find(const std::string& name) const {
  for (const Parameter& parameter : *parameters_) {
    if (parameter.name == name) return parameter.tensor;
  }
  return {};
}

int64_t ParameterSet::count() const {
  int64_t total = 0;
  for (const Parameter& parameter : *parameters_) total += parameter.tensor.numel();
  return total;
}

void ParameterSet::to(at::ScalarType dtype, at::Device device) const {
  at::NoGradGuard no_grad;
  for (const Parameter& parameter : *parameters_) {
    at::Tensor tensor = parameter.tensor;
    tensor.set_data(tensor.detach().to(device, dtype));
  }
}

void ParameterSet::zero_grad() const {
  for (const Parameter& parameter : *parameters_) parameter.tensor.mutable_grad() = at::Tensor();
}

std::vector<std::pair<std::string, at::Tensor>> ParameterSet::named() const {
  std::vector<std::pair<std::string, at::Tensor>> named;
  named.reserve(parameters_->size());
  for (const Parameter& parameter : *parameters_) named.emplace_back(parameter.name, parameter.tensor);
  return named;
}

Scope Scope::operator/(const std::string& name) const { return Scope(*set_, full(name)); }

at::Tensor Scope::add(const std::string& name, at::IntArrayRef shape, const Initialiser& initialiser,
                      ParameterKind kind) const {
  base::ensure(!set_->find(full(name)).defined(), "parameter '{}' is created twice", full(name));
  spend(set_->left_.parameters, "parameter", name, shape);
  at::Tensor tensor = GivenParameters::find(full(name), shape);
  if (!tensor.defined()) {
    tensor = at::empty(shape, at::TensorOptions().dtype(set_->dtype_).device(set_->device_));
    if (!tensor.is_meta() && !Uninitialised::applies()) initialiser(tensor, set_->generator_);
    tensor.set_requires_grad(true);
  }
  set_->parameters_->push_back({full(name), tensor, kind});
  return tensor;
}

at::Tensor Scope::share(const std::string& name, at::IntArrayRef shape, const Initialiser& initialiser,
                        ParameterKind kind) const {
  at::Tensor existing = set_->find(full(name));
  return existing.defined() ? existing : add(name, shape, initialiser, kind);
}

std::vector<Parameter> Scope::parameters() const {
  std::vector<Parameter> found;
  for (const Parameter& parameter : set_->all()) {
    if (parameter.name.starts_with(full(""))) found.push_back(parameter);
  }
  return found;
}

void Scope::reserve_state(const std::string& name, at::IntArrayRef shape) const {
  spend(set_->left_.state, "state", name, shape);
}

void Scope::spend(int64_t& left, const char* what, const std::string& name, at::IntArrayRef shape) const {
  int64_t numbers = 1;
  bool fits = true;
  for (const int64_t size : shape) fits = !__builtin_mul_overflow(numbers, size, &numbers) && fits;
  base::require(fits && numbers <= left, "{} '{}' of [{}] is {} numbers, expected at most {} more: {}", what,
                full(name), fmt::join(shape, ","), fits ? fmt::format("{}", numbers) : "over 2^63", left,
                set_->left_.reason);
  left -= numbers;
}

}  // namespace mnemo::layers
