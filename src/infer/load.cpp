#include "infer/load.h"

#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "models/presets.h"
#include "weights/model_folder.h"
#include "weights/model_tensors.h"

namespace mnemo::infer {

std::unique_ptr<models::Model> model_from(const models::ModelOptions& config, const weights::TensorFile& weights,
                                          const std::string& folder, at::ScalarType dtype) {
  const std::string weights_path = base::join_path(folder, "model.safetensors");
  std::unique_ptr<models::Model> model;
  try {
    model = models::build(config, 0, dtype, weights::budget_of(weights, weights_path));
  } catch (const base::InputError& error) {
    base::input_error("{}: {}", base::join_path(folder, "config.json"), error.what());
  }
  weights::load_model_tensors(weights, *model, weights_path);
  return model;
}

LoadedModel load_model(const std::string& folder, const LoadModelOptions& options) {
  base::require(options.dtype == at::kFloat || options.dtype == at::kDouble,
                "load_model: expected float32 or float64, found {}", c10::toString(options.dtype));
  const std::string config_path = base::join_path(folder, "config.json");
  const auto config = models::read_model_options(base::parse_json(weights::read_model_config(folder), config_path));
  base::require(config.kind == "model", "{}: expected kind \"model\", found \"{}\"; a layer_stack makes no text", config_path,
                config.kind);
  const weights::ModelFolder content = weights::read_model_folder(folder, {std::string(data::Tokenizer::kFile)});

  LoadedModel loaded;
  loaded.tokenizer = data::Tokenizer::load(content.vocabulary, folder);
  base::require(loaded.tokenizer->size() == config.embedding.vocab_size,
                "{}: expected embedding.vocab_size = {}, the size of the vocabulary beside it, found {}", config_path,
                loaded.tokenizer->size(), config.embedding.vocab_size);
  loaded.model = model_from(config, content.weights, folder, options.dtype);
  if (!options.device.is_cpu()) loaded.model->parameters().to(options.dtype, options.device);
  return loaded;
}

}  // namespace mnemo::infer
