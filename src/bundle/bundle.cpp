#include "bundle/bundle.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/model_folder.h"
#include "models/model.h"
#include "weights/model_tensors.h"

namespace mnemo::bundle {

const models::ModelOptions& Bundle::options() const { return model->options(); }

bool Bundle::is_images() const { return model->input_kind() == core::InputKind::images; }

std::shared_ptr<models::Model> Bundle::text_model(std::string_view who) const {
  models::require_input(*model, core::InputKind::tokens, who);
  return model;
}

std::shared_ptr<models::Model> Bundle::image_model() const {
  models::require_input(*model, core::InputKind::images, folder);
  return model;
}

ImagePreprocessing Bundle::preprocessing() const {
  image_model();
  return ImagePreprocessing::read(folder);
}

std::string model_folder(const std::string& path) {
  const std::string inside = base::join_path(path, "model");
  const bool is_run = !base::path_exists(base::join_path(path, "config.json")) && base::is_folder(inside);
  return is_run ? inside : path;
}

Bundle read_bundle(const std::string& path) {
  Bundle bundle{.folder = model_folder(path)};
  const std::string& folder = bundle.folder;
  base::require(base::is_folder(folder), "{}: expected a model folder, found {}", folder,
                base::path_exists(folder) ? "a file" : "nothing");
  if (base::path_exists(base::join_path(folder, std::string(data::Tokenizer::kFile)))) {
    LoadedModel loaded = load_model(folder);
    bundle.model = loaded.model;
    bundle.tokenizer = loaded.tokenizer;
    bundle.conventions = loaded.conventions;
  } else {
    AnyModel loaded = load_any(folder);
    bundle.model = loaded.model;
    bundle.format = loaded.format;
  }
  return bundle;
}

std::map<std::string, std::string> files_beside(const std::string& folder) {
  constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  std::map<std::string, std::string> files;
  for (const std::string& name : base::list_folder(folder)) {
    const std::string path = base::join_path(folder, name);
    if (name == "config.json" || name == "model.safetensors" || name == "README.md" || base::is_folder(path)) continue;
    files[name] = base::read_file(path, kMaxBytes);
  }
  return files;
}

void write_bundle(const std::string& folder, const BundleContent& content) {
  ModelFolder files;
  files.config = base::to_json(base::write_options(content.options)) + "\n";
  files.weights.tensors = weights::model_tensors(content.model);
  if (content.tokenizer) files.vocabulary = content.tokenizer->save();
  files.vocabulary.insert(content.files.begin(), content.files.end());
  if (!content.classes.empty()) files.vocabulary[kClassesFile] = fmt::format("{}\n", fmt::join(content.classes, "\n"));
  files.card = content.card;
  write_model_folder(folder, files);
}

}  // namespace mnemo::bundle
