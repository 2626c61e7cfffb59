#include "layers/parameters.h"

#include <torch/types.h>
#include <ATen/CPUGeneratorImpl.h>

#include <set>

#include "base/error.h"

namespace mnemo::layers {

Initialiser normal(double std) {
  return [std](at::Tensor& tensor, at::Generator& generator) { tensor.normal_(0.0, std, generator); };
}

Initialiser constant(double value) {
  return [value](at::Tensor& tensor, at::Generator&) { tensor.fill_(value); };
}

ParameterSet::ParameterSet(uint64_t seed, at::ScalarType dtype)
    : parameters_(std::make_shared<std::vector<Parameter>>()),
      generator_(at::detail::createCPUGenerator(seed)),
      dtype_(dtype) {}

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
  base::ensure(!set_->find(full(name)).defined(), "parameter '{}' is made twice", full(name));
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(set_->dtype_));
  initialiser(tensor, set_->generator_);
  tensor.set_requires_grad(true);
  set_->parameters_->push_back({full(name), tensor, kind});
  return tensor;
}

at::Tensor Scope::share(const std::string& name, at::IntArrayRef shape, const Initialiser& initialiser,
                        ParameterKind kind) const {
  at::Tensor existing = set_->find(full(name));
  return existing.defined() ? existing : add(name, shape, initialiser, kind);
}

}  // namespace mnemo::layers
