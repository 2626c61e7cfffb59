#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weights/safetensors.h"

namespace mnemo::bundle {

/// A model as a folder in the style of Hugging Face: config.json, model.safetensors, vocabulary files, README.md (the
/// model card).
struct ModelFolder {
  std::string config;                             // config.json, JSON text
  weights::TensorFile weights;                    // parameters and buffers
  std::map<std::string, std::string> vocabulary;  // file name -> content
  std::string card;                               // README.md, Markdown
};

inline constexpr const char* kConfigFile = "config.json";

/// The weights of a model folder; of a checkpoint with an average of the weights, that.
std::string weights_file(const std::string& folder);

/// Writes the folder atomically: it appears under `path` complete and durable, or the old content stays. An existing
/// folder is only replaced if it contains nothing but files with these names; other files in it are an error, because
/// they would be lost.
void write_model_folder(const std::string& path, const ModelFolder& model);

/// README.md; empty if there is none.
std::string read_card(const std::string& path);

/// Reads the folder. Throws InputError that names the file that is missing, too long or malformed.
///   vocabulary: names of the required vocabulary files.
ModelFolder read_model_folder(const std::string& path, const std::vector<std::string>& vocabulary,
                              const weights::ReadOptions& options = {});

/// The size of the safetensors files of a folder.
uint64_t weights_bytes(const std::string& folder);

/// Reads only config.json (at most 16 MB), to find out what else to read.
std::string read_model_config(const std::string& path);

}  // namespace mnemo::bundle
