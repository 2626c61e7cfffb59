#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "data/tokenizer.h"
#include "models/model.h"

namespace mnemo::infer {

/// A model folder, ready to run.
struct LoadedModel {
  std::shared_ptr<models::Model> model;
  std::shared_ptr<const data::Tokenizer> tokenizer;
};

struct LoadModelOptions {
  at::ScalarType dtype = at::kFloat;  ///< float32 or float64; weights of another floating type are converted
  at::Device device = at::kCPU;
};

/// Reads config.json, model.safetensors and the vocabulary of a model folder. Tensors of the file are the parameters by
/// name and what the state keeps per model (the GRC cache) by its path in the state.
/// Throws InputError naming the file and what is missing, unexpected or wrong.
LoadedModel load_model(const std::string& folder, const LoadModelOptions& options = {});

}  // namespace mnemo::infer
