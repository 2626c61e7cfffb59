#include "bundle/load.h"

#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "base/printable.h"
#include "bundle/mapped.h"
#include "bundle/model_folder.h"
#include "layers/uninitialised.h"
#include "models/model.h"
#include "models/presets.h"
#include "weights/map_safetensors.h"
#include "weights/model_tensors.h"
#include "weights/sharded.h"

namespace mnemo::bundle {

namespace {

/// The model that the configuration describes, if the file stands for as much; on the meta device its shapes alone.
std::unique_ptr<models::Model> fresh_model(const models::ModelOptions& config, const weights::TensorFile& weights,
                                           const std::string& folder, at::ScalarType dtype, uint64_t seed = 0,
                                           at::Device device = at::kCPU) {
  const std::string path = base::join_path(folder, "config.json");
  try {
    return models::build(config, seed, dtype, weights::budget_of(weights, weights_file(folder)), device);
  } catch (const base::InputError& error) {
    if (std::string_view(error.what()).starts_with(path)) throw;  // with line and key
    base::input_error("{}: {}", path, error.what());
  }
}

/// A fresh model whose parameters are all read from the file next.
std::unique_ptr<models::Model> unfilled_model(const models::ModelOptions& config, const weights::TensorFile& weights,
                                              const std::string& folder, at::ScalarType dtype) {
  const layers::Uninitialised uninitialised;
  return fresh_model(config, weights, folder, dtype);
}

/// Throws InputError for a configuration that asks for more than its file holds, before anything of that size is
/// allocated. A difference of up to 1 MB is left to the comparison of tensors, which names them.
void require_held(const models::ModelOptions& config, const weights::TensorFile& file, const std::string& config_path,
                  const std::string& weights_path) {
  constexpr int64_t kLeft = int64_t{1} << 18;
  // Fewer than any layer has. Counting the parameters of a layer takes memory, too.
  constexpr int64_t kTensorsOfLayer = 4;
  const int64_t layers = config.backbone.num_layers().value_or(1);
  const auto tensors = static_cast<int64_t>(file.tensors.size());
  base::require(layers * kTensorsOfLayer <= tensors, "{}: expected at most {} layers, as {} has {} tensors, found {}",
                config_path, tensors / kTensorsOfLayer, weights_path, tensors, layers);
  int64_t held = 0;
  for (const auto& [name, tensor] : file.tensors) held += tensor.numel();
  const int64_t asked = models::count_parameters(config);
  base::require(asked <= held + kLeft, "{}: expected a model of at most {} parameters, as {} holds, found one of {}",
                config_path, held, weights_path, asked);
}

/// Throws InputError for weights of a text model whose numbers alone do not say what they are.
void require_plain_weights(const base::Node& said, const weights::TensorFile& file, const std::string& config_path,
                           const std::string& weights_path) {
  const base::Node* quantised = said.find("quantization_config");
  base::require(quantised == nullptr || quantised->is_null(),
                "{}: 'quantization_config': unsupported: expected weights in float32, bf16 or float16, found {}",
                config_path, quantised == nullptr ? "none" : quantised->found());
  for (const auto& [name, tensor] : file.tensors)
    base::require(!c10::isFloatingType(tensor.scalar_type()) || tensor.element_size() > 1,
                  "{}: '{}': unsupported: expected float32, bf16 or float16, found {}", weights_path,
                  base::printable(name), c10::toString(tensor.scalar_type()));
}

/// Throws InputError naming a pickle file, if there is one.
void refuse_pickle(const std::string& folder) {
  for (const std::string& name : base::list_folder(folder)) {
    if (name != "pytorch_model.bin" && !name.ends_with(".pth") && !name.ends_with(".pt")) continue;
    base::input_error(
        "{}: expected model.safetensors in the same folder; pickle files can run code, so they are not read. Convert "
        "it with the library that wrote it: transformers' model.save_pretrained(FOLDER), or "
        "safetensors.torch.save_file(model.state_dict(), \"model.safetensors\")",
        base::join_path(folder, name));
  }
}

ModelFolder content_of(const std::string& folder, const std::vector<std::string>& vocabulary, bool mapped) {
  return mapped ? map_model_folder(folder, vocabulary) : read_model_folder(folder, vocabulary);
}

weights::TensorFile file_of(const std::string& path, bool sharded, bool mapped) {
  if (sharded) return mapped ? weights::map_sharded(path) : weights::read_sharded(path);
  return mapped ? weights::map_safetensors(path) : weights::read_safetensors(path);
}

LoadedModel load_text(const std::string& folder, const LoadModelOptions& options, bool mapped) {
  base::require(options.dtype == at::kFloat || options.dtype == at::kDouble,
                "load_model: expected float32 or float64, found {}", c10::toString(options.dtype));
  const std::string config_path = base::join_path(folder, "config.json");
  const auto config = models::read_model_options(
      weights::parse_model_config(bundle::read_model_config(folder), config_path, weights_bytes(folder)));
  base::require(config.backbone.input() == core::InputKind::tokens,
                "{}: expected a language model, found backbone.type = \"{}\", which is of images", config_path,
                config.backbone.type);
  base::require(config.kind == models::ModelOptions::Kind::model,
                "{}: expected kind \"model\", found \"layer_stack\", which generates no text", config_path);
  const bundle::ModelFolder content = content_of(folder, {std::string(text::Tokenizer::kFile)}, mapped);

  LoadedModel loaded;
  loaded.tokenizer = text::Tokenizer::load(content.vocabulary, folder);
  base::require(loaded.tokenizer->size() == config.embedding.vocab_size,
                "{}: expected embedding.vocab_size = {}, the size of the vocabulary in the same folder, found {}",
                config_path, loaded.tokenizer->size(), config.embedding.vocab_size);
  loaded.conventions = TextConventions::read(folder);
  loaded.model = model_from(config, content.weights, folder, options.dtype);
  if (!options.device.is_cpu()) loaded.model->parameters().to(options.dtype, options.device);
  return loaded;
}

AnyModel load_one(const std::string& folder, const LoadModelOptions& options, bool mapped) {
  const std::string config_path = base::join_path(folder, "config.json");
  AnyModel loaded;
  loaded.config = bundle::read_model_config(folder);
  base::Node config = weights::parse_model_config(loaded.config, config_path, weights_bytes(folder));
  loaded.format = weights::foreign_format_of(config);
  if (loaded.format == nullptr) {
    loaded.model = model_from(models::read_model_options(config), content_of(folder, {}, mapped).weights, folder,
                              options.dtype);
  } else {
    const base::Place place = config.place();
    const base::Node said = std::move(config);
    config = loaded.format->options(said);
    config.set_place_deep(place);
    const std::string index = base::join_path(folder, weights::kIndexFile), whole = weights_file(folder);
    const bool sharded = !base::path_exists(whole) && base::path_exists(index);
    const std::string& weights_path = sharded ? index : whole;
    if (!base::path_exists(weights_path)) refuse_pickle(folder);
    const weights::TensorFile file = file_of(sharded ? index : whole, sharded, mapped);
    if (loaded.format->variants) require_plain_weights(said, file, config_path, weights_path);
    if (loaded.format->fit) loaded.format->fit(*loaded.format, config, said, file);
    // Checked before options.change, which may add tensors that the file does not have.
    if (loaded.format->variants) require_held(models::read_model_options(config), file, config_path, weights_path);
    if (options.change) options.change(config);
    const models::ModelOptions model = models::read_model_options(config);
    const weights::Unnamed unnamed = options.change ? weights::Unnamed::keep : weights::Unnamed::refuse;
    const auto shapes = fresh_model(model, file, folder, options.dtype, 0, at::kMeta);
    const auto named = [&](const models::Model& one) {
      return weights::named_model(*loaded.format, one.parameters(), one.initial_state(1));
    };
    weights::require_theirs(*loaded.format, file, named(*shapes).tensors, weights_path, model.backbone.num_heads(),
                            unnamed);
    loaded.model = options.change ? fresh_model(model, file, folder, options.dtype, options.seed)
                                  : unfilled_model(model, file, folder, options.dtype);
    const weights::NamedModel filled = named(*loaded.model);
    loaded.fresh = weights::load_theirs(*loaded.format, file, filled.tensors, weights_path, model.backbone.num_heads(),
                                        unnamed);
    if (filled.tensors.size() > loaded.model->parameters().all().size()) loaded.model->commit(filled.state);
  }
  if (!options.device.is_cpu()) loaded.model->parameters().to(options.dtype, options.device);
  return loaded;
}

}  // namespace

std::unique_ptr<models::Model> model_from(const models::ModelOptions& config, const weights::TensorFile& weights,
                                          const std::string& folder, at::ScalarType dtype) {
  std::unique_ptr<models::Model> model = unfilled_model(config, weights, folder, dtype);
  weights::load_model_tensors(weights, *model, weights_file(folder));
  return model;
}

LoadedModel load_model(const std::string& folder, const LoadModelOptions& options) {
  return load_text(folder, options, false);
}
LoadedModel map_model(const std::string& folder) { return load_text(folder, {}, true); }

AnyModel load_any(const std::string& folder, const LoadModelOptions& options) {
  return load_one(folder, options, false);
}
AnyModel map_any(const std::string& folder) { return load_one(folder, {}, true); }

}  // namespace mnemo::bundle
