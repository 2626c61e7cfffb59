#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "data/tokenizer.h"
#include "models/model.h"
#include "weights/safetensors.h"

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

/// The model that a folder's config.json describes, with the tensors of its model.safetensors. A configuration that asks for
/// more than the file stands for is refused before anything of that size is allocated.
/// Throws InputError naming the file and what is missing, unexpected or wrong.
std::unique_ptr<models::Model> model_from(const models::ModelOptions& config, const weights::TensorFile& weights,
                                          const std::string& folder, at::ScalarType dtype = at::kFloat);

}  // namespace mnemo::infer
