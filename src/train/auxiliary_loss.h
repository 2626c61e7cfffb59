#pragma once

#include <ATen/core/Tensor.h>

#include "core/model.h"

namespace mnemo::train {

/// A segment's loss with those of the model's memories:
///   loss + share * sum_a weight_a mean(values_a)
/// share: the segment's weight in the means over its step, 1 / segments. Undefined if there is none of the two.
at::Tensor with_auxiliary(at::Tensor loss, const core::Model& model, const core::StepResult& step, double share);

}  // namespace mnemo::train
