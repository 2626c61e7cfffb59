#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/node.h"
#include "bundle/text_conventions.h"
#include "text/tokenizer.h"
#include "weights/foreign.h"
#include "weights/safetensors.h"

namespace mnemo::models {
class Model;
struct ModelOptions;
}  // namespace mnemo::models

namespace mnemo::bundle {

/// A language model loaded from a folder, ready to run.
struct LoadedModel {
  std::shared_ptr<models::Model> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  TextConventions conventions = {};
};

/// Any model loaded from a folder of ours or of another library (weights/foreign.h).
struct AnyModel {
  std::shared_ptr<models::Model> model;
  const weights::ForeignFormat* format = nullptr;  ///< format of the folder; null: ours
  std::string config;                              ///< its config.json
  std::vector<std::string> fresh = {};             ///< parameters that are not in its files
};

struct LoadModelOptions {
  at::ScalarType dtype = at::kFloat;  ///< float32 or float64; weights of another floating type are converted
  at::Device device = at::kCPU;
  /// Changes the [model] table that another library's config.json gives, before the model is built: memories added to a
  /// published model. Parameters that the file has no names for keep their initial values.
  std::function<void(base::Node& model)> change = {};
  uint64_t seed = 0;  ///< of those initial values
};

/// Reads config.json, model.safetensors, the vocabulary and the conventions of a model folder. Tensors of the file are
/// the parameters by name and what the state keeps per model (the GRC cache) by its path in the state. Throws
/// InputError naming the file and what is missing, unexpected or wrong.
LoadedModel load_model(const std::string& folder, const LoadModelOptions& options = {});

/// Reads a folder's config.json and model.safetensors, without vocabulary. Throws InputError that names the file and,
/// in the names of the file, what is missing, unexpected or wrong.
AnyModel load_any(const std::string& folder, const LoadModelOptions& options = {});

/// Builds the text or image model described by a folder's config.json, with the tensors of its model.safetensors. A
/// configuration that needs more memory than the file justifies is rejected before anything of that size is allocated.
/// Throws InputError that names the file and what is missing, unexpected or wrong.
std::unique_ptr<models::Model> model_from(const models::ModelOptions& config, const weights::TensorFile& weights,
                                          const std::string& folder, at::ScalarType dtype = at::kFloat);

}  // namespace mnemo::bundle
