#include "bench/kernel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "base/error.h"
#include "ops/abc/abc.h"
#include "ops/attention/attention.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kHeads = 8, kHeadWidth = 64, kChunk = 64;
constexpr double kScale = 0.125;

}  // namespace

std::vector<std::string> KernelCase::peers() const {
  if (name == "causal") return {"sdpa"};
  if (name == "relative") return {"relative"};
  return {"abc", "sdpa"};
}

double KernelCase::products(bool backward) const {
  if (slots > 0) return 0;
  const bool relative = name == "relative";
  const double t = static_cast<double>(time), pairs = t * (t + 1) / 2 + (relative ? t * t : 0);
  const int forward = relative ? 3 : 2, back = relative ? 8 : 5;
  return 2.0 * kHeadWidth * kHeads * pairs * (backward ? forward + back : forward);
}

KernelSubject::KernelSubject(const KernelCase& kernel_case) : case_(kernel_case) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  auto add = [&](const char* name, at::IntArrayRef shape) {
    tensors_.emplace_back(name, at::randn(shape, generator).set_requires_grad(true));
  };
  const int64_t time = case_.time, keys = case_.name == "relative" ? 2 * time : time;
  add("q", {1, kHeads, time, kHeadWidth});
  add("k", {1, kHeads, keys, kHeadWidth});
  add("v", {1, kHeads, keys, kHeadWidth});
  if (case_.slots > 0) add("s", {1, kHeads, time, case_.slots});
  if (case_.name == "relative") {
    add("r", {keys, kHeads, kHeadWidth});
    add("u", {kHeads, kHeadWidth});
    add("bias", {kHeads, kHeadWidth});
  }
  weight_ = at::randn({1, kHeads, time, kHeadWidth}, generator);
  tensors_.emplace_back("weight", weight_);
  ranges_ = ops::KeyRanges::causal(time, keys);
}

const at::Tensor& KernelSubject::operator[](const std::string& name) const {
  for (const auto& [key, tensor] : tensors_) {
    if (key == name) return tensor;
  }
  base::ensure(false, "no input '{}'", name);
  return weight_;
}

at::Tensor KernelSubject::output() const {
  const KernelSubject& in = *this;
  if (case_.slots > 0) {
    const ops::AbcMemory empty = ops::abc_empty(1, kHeads, case_.slots, kHeadWidth, ops::AbcActivation::exp,
                                                weight_.options());
    return ops::abc_causal(in["q"], in["k"], in["v"], in["s"], empty, {}, ops::AbcActivation::exp, 1e-6, kScale).o;
  }
  const ops::Positions positions = case_.name == "relative" ? ops::Positions{in["u"], in["bias"], in["r"], {}}
                                                            : ops::Positions{};
  return ops::attention(in["q"], in["k"], in["v"], positions, ranges_, kScale);
}

std::vector<at::Tensor> KernelSubject::gradients(const at::Tensor& output) const {
  std::vector<at::Tensor> leaves;
  for (const auto& [name, tensor] : tensors_) {
    if (name != "weight") leaves.push_back(tensor);
  }
  return torch::autograd::grad({output}, leaves, {weight_});
}

void KernelSubject::run(bool backward) const {
  const at::AutoGradMode record(backward);
  const at::Tensor o = output();
  if (backward) gradients(o);
}

std::vector<double> KernelSubject::norms() const {
  const at::Tensor o = output();
  std::vector<double> norms = {o.to(at::kDouble).norm().item<double>()};
  for (const at::Tensor& gradient : gradients(o)) norms.push_back(gradient.to(at::kDouble).norm().item<double>());
  return norms;
}

int64_t KernelSubject::bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) bytes += tensor.nbytes();  // the output has the size of its weight
  return bytes;
}

int64_t KernelSubject::chunk_bytes() const {
  const int64_t chunks = (case_.time + kChunk - 1) / kChunk + 1;
  return case_.slots * chunks * kHeads * (2 * kHeadWidth + 1) * static_cast<int64_t>(sizeof(float));
}

}  // namespace mnemo::bench
