#include "bundle/bundle.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "bundle/class_names.h"
#include "bundle/mapped.h"
#include "bundle/model_folder.h"
#include "bundle/published_config.h"
#include "bundle/require_model_folder.h"
#include "models/image_model.h"
#include "models/pair_model.h"
#include "models/text_model.h"
#include "text/open_tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/model_tensors.h"

namespace mnemo::bundle {

namespace {

constexpr int kAttempts = 100;

bool is_checkpoint_folder(const std::string& path) { return base::path_exists(base::join_path(path, "manifest.json")); }

/// Files of a checkpoint with the position of its training.
bool is_of_training(const std::string& name) {
  return name == "manifest.json" || name == "train.json" || name.ends_with(".safetensors");
}

/// Throws InputError for a checkpoint without the files of a model folder.
void require_model_files(const std::string& checkpoint) {
  base::require(base::path_exists(base::join_path(checkpoint, kConfigFile)),
                "{}: an earlier version wrote it without {}; resume the run to get a model", checkpoint, kConfigFile);
}

/// The folder that a path stands for, and what to say of the choice; empty: the path itself.
struct FoundFolder {
  std::string path, chosen = {};
};

FoundFolder find_folder(const std::string& path, const std::optional<std::string>& checkpoint) {
  const bool is_checkpoint = is_checkpoint_folder(path);
  if (is_checkpoint || base::path_exists(base::join_path(path, kConfigFile))) {
    base::require(!checkpoint, "{}: --checkpoint chooses from a run; this is a {}", path,
                  is_checkpoint ? "checkpoint" : "model folder");
    if (is_checkpoint) require_model_files(weights::verify_checkpoint(path).path);
    return {path};
  }
  const std::string inside = base::join_path(path, "model");
  if (!checkpoint && base::is_folder(inside)) return {inside, inside};
  const std::string which = checkpoint.value_or("best");
  const auto found = weights::find_checkpoint(path, which);
  const bool is_run = base::path_exists(base::join_path(path, "recipe.toml"));
  base::require(found || !(is_run || checkpoint), "{}: has no {}checkpoint", path,
                checkpoint ? "good " : "model yet and no good ");
  if (!found) return {path};
  require_model_files(found->path);
  return {found->path, fmt::format("{}, {}", found->path,
                                   checkpoint    ? fmt::format("of step {}", found->step)
                                   : found->best ? "the best checkpoint; the run has no model yet"
                                                 : "the latest checkpoint; the run has no model yet")};
}

Bundle read_folder(const std::string& folder, bool mapped) {
  Bundle bundle{.folder = folder};
  require_model_folder(folder);
  // A model that was exported in another library's format has our vocabulary beside it.
  if (base::path_exists(base::join_path(folder, std::string(text::Tokenizer::kFile))) &&
      read_published(folder).format == nullptr) {
    LoadedModel loaded = mapped ? map_model(folder) : load_model(folder);
    bundle.model = loaded.model;
    bundle.tokenizer = loaded.tokenizer;
    bundle.conventions = loaded.conventions;
  } else {
    AnyModel loaded = mapped ? map_any(folder) : load_any(folder);
    bundle.model = loaded.model;
    bundle.format = loaded.format;
    if (!std::holds_alternative<core::TokenInput>(bundle.model->input())) return bundle;
    bundle.conventions = TextConventions::read(folder);
    if (text::has_tokenizer(folder)) bundle.tokenizer = text::open_tokenizer(folder);
  }
  return bundle;
}

}  // namespace

const models::ModelOptions& Bundle::options() const { return model->options(); }

bool Bundle::is_images() const { return std::holds_alternative<core::ImageInput>(model->input()); }

std::shared_ptr<models::TextModel> Bundle::text(std::string_view who) const {
  return models::as<models::TextModel>(model, who);
}

const text::Tokenizer& Bundle::words(std::string_view who) const {
  base::require(
      tokenizer != nullptr,
      "{}: {}: expected a model of texts, found one without a tokenizer; a model of a made task such as copying has "
      "none (measure it with mnemo eval), and one that was converted takes the tokenizer's files (tokenizer.json, "
      "vocab.txt and so on) from the folder that it was made from",
      who, folder);
  return *tokenizer;
}

std::shared_ptr<models::ImageModel> Bundle::images() const { return models::as<models::ImageModel>(model, folder); }

std::shared_ptr<models::PairModel> Bundle::pairs() const { return models::as<models::PairModel>(model, folder); }

std::vector<ModelHead> Bundle::heads() const { return heads_of(*images(), folder); }

ImagePreprocessing Bundle::preprocessing() const {
  require_classifier(*images(), folder);
  base::require(!folder.empty(), "bundle: the model is not in a folder, so its image preprocessing is unknown");
  return ImagePreprocessing::read(folder);
}

std::string find_model_folder(const std::string& path) { return find_folder(path, {}).path; }

std::string model_folder(const std::string& path, const std::optional<std::string>& checkpoint) {
  FoundFolder found = find_folder(path, checkpoint);
  if (!found.chosen.empty()) base::log_info("model: {}", found.chosen);
  return std::move(found.path);
}

namespace {

Bundle read_path(const std::string& path, const std::optional<std::string>& checkpoint, bool mapped) {
  for (int attempt = 1;; ++attempt) {
    const std::string folder = model_folder(path, checkpoint);
    try {
      return read_folder(folder, mapped);
    } catch (const base::InputError&) {
      // A training that goes on removes old checkpoints.
      const bool is_gone = folder != path && !base::path_exists(folder);
      if (!is_gone || attempt == kAttempts) throw;
    }
  }
}

}  // namespace

Bundle read_bundle(const std::string& path, const std::optional<std::string>& checkpoint) {
  return read_path(path, checkpoint, false);
}

Bundle map_bundle(const std::string& path, const std::optional<std::string>& checkpoint) {
  return read_path(path, checkpoint, true);
}

std::map<std::string, std::string> files_beside(const std::string& folder) {
  constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  std::map<std::string, std::string> files;
  for (const std::string& name : base::list_folder(folder)) {
    const std::string path = base::join_path(folder, name);
    // Files of the system or of version control (.DS_Store, .gitattributes) are no part of the model.
    if (!base::is_plain_name(name) || (is_checkpoint_folder(folder) && is_of_training(name))) continue;
    if (name == "config.json" || name == "model.safetensors" || name == "README.md" || base::is_folder(path)) continue;
    files[name] = base::read_file(path, kMaxBytes);
  }
  return files;
}

std::map<std::string, std::string> files_of(const BundleContent& content) {
  std::map<std::string, std::string> files = content.files;
  files[kConfigFile] = base::to_json(base::write_options(content.options)) + "\n";
  if (content.tokenizer) files.merge(content.tokenizer->save());
  if (!content.classes.empty()) files[kClassesFile] = fmt::format("{}\n", fmt::join(content.classes, "\n"));
  return files;
}

void write_bundle(const std::string& folder, const BundleContent& content) {
  ModelFolder files;
  files.vocabulary = files_of(content);
  files.config = std::move(files.vocabulary.extract(kConfigFile).mapped());
  files.weights.tensors = weights::model_tensors(content.model);
  files.card = content.card;
  write_model_folder(folder, files);
}

}  // namespace mnemo::bundle
