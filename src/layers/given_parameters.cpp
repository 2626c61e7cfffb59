#include "layers/given_parameters.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <utility>

#include "base/error.h"

namespace mnemo::layers {
namespace {

thread_local const GivenParameters* current = nullptr;

}  // namespace

GivenParameters::GivenParameters(std::map<std::string, at::Tensor> tensors)
    : tensors_(std::move(tensors)), before_(std::exchange(current, this)) {}

GivenParameters::~GivenParameters() { current = before_; }

at::Tensor GivenParameters::find(const std::string& name, at::IntArrayRef shape) {
  if (current == nullptr) return {};
  const auto found = current->tensors_.find(name);
  if (found == current->tensors_.end()) return {};
  const at::Tensor& tensor = found->second;
  if (tensor.sizes() != shape) {
    throw base::ShapeError(fmt::format("parameter '{}': expected [{}], found [{}]", name, fmt::join(shape, ","),
                                       fmt::join(tensor.sizes(), ",")));
  }
  return tensor;
}

}  // namespace mnemo::layers
