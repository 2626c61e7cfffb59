#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/model.h"
#include "data/answers/samples.h"

namespace mnemo::tasks {

/// What a model answers when it reads its own symbols back: predictions [B,L] int64 at the places of the answer, -1
/// elsewhere and where a logit is NaN. An asked symbol is the one of the largest logit, and stands in the input of the
/// next place, as in generation; all else is read as it is. Segments are of `segment_size` tokens; one that holds
/// answers is run in parts, symbol by symbol.
at::Tensor greedy_predictions(const core::Model& model, const data::SampleBatch& batch, int64_t segment_size);

}  // namespace mnemo::tasks
