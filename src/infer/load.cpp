#include "infer/load.h"

#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "base/options.h"
#include "weights/model_folder.h"
#include "weights/model_tensors.h"

namespace mnemo::infer {
namespace {

/// A configuration must not make the program allocate what the weights file does not hold: its largest parameters are
/// counted before any is made.
void require_plausible(const models::ModelOptions& config, const weights::TensorFile& weights, const std::string& where) {
  const auto& backbone = config.backbone;
  const double dim = static_cast<double>(backbone.dim);
  const double joined = static_cast<double>(backbone.num_heads * backbone.head_width());
  const double layer = 4.0 * dim * joined + 2.0 * dim * static_cast<double>(backbone.ffn_dim);
  const double positions = backbone.position.type == "learned" ? static_cast<double>(backbone.position.max_len) : 0.0;
  const double needed = dim * (static_cast<double>(config.embedding.vocab_size) + positions) +
                        static_cast<double>(backbone.num_layers) * layer;
  double found = 0.0;
  for (const auto& [name, tensor] : weights.tensors) found += static_cast<double>(tensor.numel());
  base::require(needed <= found, "{}: describes a model of at least {:.0f} parameters, but model.safetensors holds {:.0f} numbers",
                where, needed, found);
}

}  // namespace

LoadedModel load_model(const std::string& folder, const LoadModelOptions& options) {
  base::require(options.dtype == at::kFloat || options.dtype == at::kDouble,
                "load_model: expected float32 or float64, found {}", c10::toString(options.dtype));
  const std::string config_path = base::join_path(folder, "config.json");
  const auto config = base::read_options<models::ModelOptions>(
      base::parse_json(weights::read_model_config(folder), config_path));
  base::require(config.kind == "model", "{}: expected kind \"model\", found \"{}\"; a layer_stack makes no text", config_path,
                config.kind);
  const weights::ModelFolder content = weights::read_model_folder(folder, {std::string(data::Tokenizer::kFile)});

  require_plausible(config, content.weights, config_path);
  LoadedModel loaded;
  loaded.tokenizer = data::Tokenizer::load(content.vocabulary, folder);
  base::require(loaded.tokenizer->size() == config.embedding.vocab_size,
                "{}: expected embedding.vocab_size = {}, the size of the vocabulary beside it, found {}", config_path,
                loaded.tokenizer->size(), config.embedding.vocab_size);
  loaded.model = models::build(config, 0, options.dtype);
  weights::load_model_tensors(content.weights, *loaded.model, base::join_path(folder, "model.safetensors"));
  if (!options.device.is_cpu()) loaded.model->parameters().to(options.dtype, options.device);
  return loaded;
}

}  // namespace mnemo::infer
