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
  if (slots == 0) return {name};
  return {"abc", "sdpa"};
}

double KernelCase::products(bool backward) const {
  if (slots > 0) return 0;
  const bool relative = name == "relative";
  const double t = static_cast<double>(time), pairs = t * (t + 1) / 2 + (name == "causal" ? 0 : t * t);
  const int forward = relative ? 3 : 2, back = relative ? 8 : 5;
  return 2.0 * kHeadWidth * kHeads * static_cast<double>(batch) * pairs * (backward ? forward + back : forward);
}

KernelSubject::KernelSubject(const KernelCase& kernel_case) : case_(kernel_case) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  auto draw = [&](at::IntArrayRef shape) { return at::randn(shape, generator).to(case_.device, case_.dtype); };
  auto add = [&](const char* name, at::IntArrayRef shape) {
    tensors_.emplace_back(name, draw(shape).set_requires_grad(true));
  };
  const bool cache = case_.name == "cached" || case_.name == "relative";
  const int64_t batch = case_.batch, time = case_.time, keys = cache ? 2 * time : time;
  add("q", {batch, kHeads, time, kHeadWidth});
  add("k", {batch, kHeads, keys, kHeadWidth});
  add("v", {batch, kHeads, keys, kHeadWidth});
  if (case_.slots > 0) add("s", {batch, kHeads, time, case_.slots});
  if (case_.name == "relative") {
    add("r", {keys, kHeads, kHeadWidth});
    add("u", {kHeads, kHeadWidth});
    add("bias", {kHeads, kHeadWidth});
  }
  weight_ = draw({batch, kHeads, time, kHeadWidth});
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
    const ops::AbcMemory empty = ops::abc_empty(case_.batch, kHeads, case_.slots, kHeadWidth, ops::AbcActivation::exp,
                                                weight_.options().dtype(at::kFloat));
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
  return case_.batch * case_.slots * chunks * kHeads * (2 * kHeadWidth + 1) * static_cast<int64_t>(sizeof(float));
}

}  // namespace mnemo::bench
