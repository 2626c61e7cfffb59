#include "models/replaced_memory.h"

#include <torch/types.h>

#include <algorithm>
#include <string>

#include "base/printable.h"
#include "models/full_state.h"

namespace mnemo::models {
namespace {

ReplacedMemory::With with_named(std::string_view with, std::string_view who) {
  if (with == "zeros") return ReplacedMemory::With::zeros;
  base::require(with == "noise", "{}: expected zeros or noise, found '{}'", who, base::printable(std::string(with)));
  return ReplacedMemory::With::noise;
}

/// Whether the field has channels: contents. A mask, a sum of weights or a number of rows, which has none, says how
/// much was written.
bool is_memory(const core::Field& field, const at::Tensor& tensor) {
  return tensor.is_floating_point() && (field.dim("d") >= 0 || field.dim("D") >= 0 || field.dim("C") >= 0);
}

/// Whether the field of an initial state ever has a number: a memory may be empty at first; one of no rows stays so.
bool holds_memory(const core::Model& model, const core::Field& field, const at::Tensor& tensor) {
  if (!is_memory(field, tensor) || tensor.numel() > 0) return is_memory(field, tensor);
  const auto* built = dynamic_cast<const Model*>(&model);
  return built == nullptr || (field.dim("M") >= 0 && max_rows(*built, field.path, core::Mode::evaluate) > 0);
}

}  // namespace

ReplacedMemory::ReplacedMemory(const core::Model& model, std::string_view with, std::string_view who, uint64_t seed)
    : model_(model), with_(with_named(with, who)), generator_(at::detail::createCPUGenerator(seed)) {
  const auto fields = model.initial_state(1).fields();
  base::require(std::any_of(fields.begin(), fields.end(),
                            [&](const auto& field) { return holds_memory(model, field.first, field.second); }),
                "{}: expected a model with a memory that is carried between segments, found none", who);
}

core::StepResult ReplacedMemory::forward(const core::Segment& segment, const core::State& state) const {
  // A state without a new source has what the encoder made of the last one, which is no memory.
  const bool begins = segment.part.starts && (input_kind() != core::InputKind::pairs || segment.source.defined());
  return model_.forward(segment, begins ? replaced(state) : state);
}

core::State ReplacedMemory::replaced(const core::State& state) const {
  return state.map([&](const core::Field& field, const at::Tensor& tensor) {
    if (!is_memory(field, tensor) || tensor.numel() == 0) return tensor;
    const at::Tensor finite = tensor.isfinite();
    at::Tensor fresh = at::zeros_like(tensor);
    if (with_ == With::noise) {
      const at::Tensor numbers = tensor.masked_select(finite);
      if (numbers.numel() == 0) return tensor;
      const at::Tensor unit = at::randn(tensor.sizes(), generator_, tensor.options().device(at::kCPU));
      fresh = numbers.mean() + numbers.std(/*unbiased=*/false) * unit.to(tensor.device());
    }
    return at::where(finite, fresh, tensor);
  });
}

}  // namespace mnemo::models
