#pragma once

#include <string>

#include "core/model.h"
#include "layers/parameters.h"
#include "weights/load_into.h"
#include "weights/safetensors.h"

namespace mnemo::weights {

/// What a model's file holds: its parameters by name, then what its state keeps per model (the GRC cache) by path in
/// the state. The tensors are the model's own, not copies.
NamedTensors model_tensors(const core::Model& model);

/// What a configuration beside that file may ask for: twice the numbers that the file holds and a million more, so that
/// an ordinary misfit is still named tensor by tensor; sixteen times that for a sequence's state, which the file need
/// not hold.
layers::Budget budget_of(const TensorFile& file, const std::string& where);

/// Fills a model from such a file, in place: parameters, and the committed per-model state. Throws InputError listing
/// what is missing, unexpected or ill-shaped; the model is as it was then.
///   where: the file's name, for messages.
void load_model_tensors(const TensorFile& file, core::Model& model, const std::string& where);

}  // namespace mnemo::weights
