#include "ops/fixed_shapes.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace mnemo::ops {
namespace {

thread_local FixedShapes* work_now = nullptr;

}  // namespace

FixedShapes::Scope::Scope(FixedShapes& work) : before_(std::exchange(work_now, &work)) {}
FixedShapes::Scope::~Scope() { work_now = before_; }

FixedShapes* FixedShapes::now() { return work_now; }

at::Tensor FixedShapes::there(const at::Tensor& host, at::Device device) {
  if (host.device() == device) return kept(host);
  for (const auto& [known, copy] : constants_) {
    if (copy.device() == device && known.scalar_type() == host.scalar_type() && known.sizes() == host.sizes() &&
        at::equal(known, host))
      return copy;
  }
  base::require(!complete_, "a step of fixed shapes: a constant {} changes from call to call", c10::str(host.sizes()));
  return constants_.emplace_back(host, host.to(device)).second;
}

at::Tensor FixedShapes::kept(at::Tensor tensor) {
  const bool known = std::ranges::any_of(kept_, [&](const at::Tensor& one) { return one.is_alias_of(tensor); });
  return known ? tensor : kept_.emplace_back(std::move(tensor));
}

at::Tensor constant_on(const at::Tensor& host, at::Device device) {
  FixedShapes* work = FixedShapes::now();
  return work == nullptr ? host.to(device) : work->there(host, device);
}

}  // namespace mnemo::ops
