#pragma once

#include <cstdint>

#include "bundle/model_folder.h"

namespace mnemo::bundle {

/// A model folder whose weights are the mean of a run's latest checkpoints, w = (w_1 + .. + w_n) / n, summed in
/// float64 (the averaging of Vaswani et al. 2017, section 6.1). If the training keeps a moving average of the weights,
/// the moving averages are averaged. Other files, and tensors that are not floating point, come from the newest
/// checkpoint. The card is left empty.
///   run    a run's folder
///   count  how many checkpoints, at least 1
/// Throws InputError if the run has fewer good checkpoints, or if they are not of one model.
ModelFolder average_of(const std::string& run, int64_t count);

}  // namespace mnemo::bundle
