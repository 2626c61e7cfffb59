#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace mnemo::test {

/// Golden files of tests/golden/data, and the folders of models with an expect.safetensors.
inline std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MNEMO_SOURCE_DIR "/tests/golden/data")) {
    if (entry.path().extension() != ".safetensors" || entry.path().filename() == "model.safetensors") continue;
    const bool expects = entry.path().filename() == "expect.safetensors";
    files.push_back((expects ? entry.path().parent_path() : entry.path()).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace mnemo::test
