#pragma once

#include <string>

#include "core/model.h"
#include "layers/parameters.h"
#include "weights/load_into.h"
#include "weights/safetensors.h"

namespace mnemo::weights {

/// The tensors stored in a model's file: parameters by name, then state that belongs to the model (the GRC cache) by
/// its path in the state. These are the model's tensors, not copies.
NamedTensors model_tensors(const core::Model& model);

/// Limits the memory of a configuration by its weights file: twice the number of values in the file plus one million,
/// so that an ordinary mismatch is still reported tensor by tensor. The state of a sequence, which is not in the file,
/// may be sixteen times as large.
layers::Budget budget_of(const TensorFile& file, const std::string& where);

/// Loads a model from such a file, in place: parameters and the committed per-model state. Throws InputError that lists
/// what is missing, unexpected or wrongly shaped; the model is then unchanged.
///   where: the file's name, for messages.
void load_model_tensors(const TensorFile& file, core::Model& model, const std::string& where);

}  // namespace mnemo::weights
