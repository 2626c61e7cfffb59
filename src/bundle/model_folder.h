#pragma once

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

/// Writes the folder whole: it appears under `path` complete and durable, or what stood there stays. An existing folder
/// is replaced only when it holds nothing but files of these names; anything else in it is an error, since it would be
/// lost.
void write_model_folder(const std::string& path, const ModelFolder& model);

/// Reads the folder. Throws InputError naming the file that is missing, too long or ill-formed.
///   vocabulary: names of the vocabulary files that must be there.
ModelFolder read_model_folder(const std::string& path, const std::vector<std::string>& vocabulary,
                              const weights::ReadOptions& options = {});

/// config.json alone (at most 16 MB), to learn what else to ask for.
std::string read_model_config(const std::string& path);

}  // namespace mnemo::bundle
