#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/answers/samples.h"

namespace mnemo::core {
class Model;
}

namespace mnemo::tasks {

/// Predictions of a model that reads its own symbols back: predictions [B,L] int64 at the positions of the answer, -1
/// elsewhere and where a logit is NaN. An answer symbol is the argmax of the logits and becomes the input at the next
/// position, as in generation; all other inputs are unchanged. Segments have `segment_size` tokens; a segment that
/// contains answers runs in parts, symbol by symbol.
at::Tensor greedy_predictions(const core::Model& model, const data::SampleBatch& batch, int64_t segment_size);

}  // namespace mnemo::tasks
