#include "bundle/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/atomic_folder.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "base/require_folder.h"
#include "bundle/mapped.h"
#include "bundle/require_model_folder.h"
#include "weights/checkpoint.h"
#include "weights/map_safetensors.h"

namespace mnemo::bundle {
namespace {

constexpr const char* kWeightsName = "model.safetensors";
constexpr const char* kCardName = "README.md";
constexpr uint64_t kMaxTextBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxVocabularyBytes = uint64_t{256} << 20;

bool reserved(const std::string& name) { return name == kConfigFile || name == kWeightsName || name == kCardName; }

std::string existing(const std::string& path) {
  base::require(base::path_exists(path), "{}: missing; a model folder contains {}, {} and a vocabulary",
                base::printable(path, 400), kConfigFile, kWeightsName);
  return path;
}

void check_folder(const std::string& path) {
  if (!base::path_exists(path)) base::finish_interrupted_replacement(path);
  require_model_folder(path);
}

/// Whether the path may be the name of a model in a hub, "gpt2" or "OWNER/NAME".
bool is_hub_name(const std::string& path) {
  const bool plain = path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") ==
                     std::string::npos;
  const auto slashes = std::count(path.begin(), path.end(), '/');
  return plain && !path.empty() && path.front() != '.' && path.front() != '/' && path.back() != '/' && slashes < 2 &&
         !path.starts_with("runs/") && !path.starts_with("models/");
}

}  // namespace

void require_model_folder(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  base::require_folder(path, "a model folder",
                       is_hub_name(path) ? fmt::format("; Mnemo does not download models: for one of Hugging Face run "
                                                       "`hf download {} --local-dir {}`, then give that folder",
                                                       path, path == name ? "models/" + path : std::string(name))
                                         : "");
}

std::string weights_file(const std::string& folder) {
  const std::string average = base::join_path(folder, weights::kAverageFile);
  return base::path_exists(average) ? average : base::join_path(folder, kWeightsName);
}

void write_model_folder(const std::string& path, const ModelFolder& model) {
  std::vector<std::string> files = {kConfigFile, kWeightsName, kCardName};
  for (const auto& [name, content] : model.vocabulary) {
    base::require(base::is_plain_name(name) && !reserved(name), "{}: '{}' is not a valid name for a vocabulary file",
                  base::printable(path, 400), base::printable(name));
    files.push_back(name);
  }
  base::require_replaceable(path, files);
  base::AtomicFolder folder(path);
  base::write_file_atomic(folder.file(kConfigFile), model.config);
  weights::Metadata metadata = model.weights.metadata;
  // Other readers of such folders ask for this entry.
  metadata.try_emplace("format", "pt");
  weights::write_safetensors(folder.file(kWeightsName), model.weights.tensors, metadata);
  for (const auto& [name, content] : model.vocabulary) base::write_file_atomic(folder.file(name), content);
  base::write_file_atomic(folder.file(kCardName), model.card);
  folder.commit();
}

uint64_t weights_bytes(const std::string& folder) {
  uint64_t sum = 0;
  for (const std::string& name : base::list_folder(folder)) {
    if (!name.ends_with(".safetensors")) continue;
    std::error_code failed;
    const uint64_t bytes = std::filesystem::file_size(base::join_path(folder, name), failed);
    sum += failed ? 0 : bytes;
  }
  return sum;
}

std::string read_model_config(const std::string& path) {
  check_folder(path);
  return base::read_file(existing(base::join_path(path, kConfigFile)), kMaxTextBytes);
}

std::string read_card(const std::string& path) {
  const std::string card = base::join_path(path, kCardName);
  return base::path_exists(card) ? base::read_file(card, kMaxTextBytes) : std::string();
}

namespace {

ModelFolder folder_read_by(const std::string& path, const std::vector<std::string>& vocabulary,
                           const std::function<weights::TensorFile(const std::string& file)>& read) {
  ModelFolder model;
  model.config = read_model_config(path);
  for (const std::string& name : vocabulary) {
    base::require(base::is_plain_name(name), "{}: '{}' is not a plain file name", base::printable(path, 400),
                  base::printable(name));
    model.vocabulary[name] = base::read_file(existing(base::join_path(path, name)), kMaxVocabularyBytes);
  }
  model.card = read_card(path);
  model.weights = read(existing(weights_file(path)));
  return model;
}

}  // namespace

ModelFolder read_model_folder(const std::string& path, const std::vector<std::string>& vocabulary,
                              const weights::ReadOptions& options) {
  return folder_read_by(path, vocabulary,
                        [&](const std::string& file) { return weights::read_safetensors(file, options); });
}

ModelFolder map_model_folder(const std::string& path, const std::vector<std::string>& vocabulary) {
  return folder_read_by(path, vocabulary, weights::map_safetensors);
}

}  // namespace mnemo::bundle
