#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace mnemo::cli {

/// The folder of the recipes that come with a program in `folder`: an installed tree's share/mnemo/recipes, or the
/// recipes/ of a clone it was built in. Empty if there is none.
inline std::filesystem::path recipe_folder_beside(const std::filesystem::path& folder) {
  std::error_code error;
  for (const std::filesystem::path& candidate : {folder / MNEMO_RECIPES, folder / ".." / ".." / "recipes"}) {
    if (std::filesystem::is_directory(candidate, error)) return candidate.lexically_normal();
  }
  return {};
}

/// A number that differs where names or contents of the files in a folder do (FNV-1a).
inline std::string mark_of_files(const std::filesystem::path& folder) {
  uint64_t mark = 0xCBF29CE484222325;
  const auto add = [&](const std::string& text) {
    for (const char c : text + '\n') mark = (mark ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  };
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    add(path.filename().string());
    add({std::istreambuf_iterator<char>(file), {}});
  }
  return std::to_string(mark);
}

// The file of answers that the whole program writes for the one that users start: records of "WORDS\nLENGTH\nTEXT".

/// The words of the record with mark_of_files() of the recipes, which the answers about them hold for.
inline constexpr const char* kMarkOfRecipes = "(recipes)";
/// The words of the record that `--version` is made from: LibTorch's version and, in a second line, its CUDA. Only in
/// builds without CUDA: a device can be counted by LibTorch alone.
inline constexpr const char* kOfBuild = "(build)";
/// Stands in an answer for the folder of the recipes.
inline constexpr char kFolderHere = '\x01';

}  // namespace mnemo::cli
