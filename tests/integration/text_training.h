#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command_line.h"

namespace mnemo::test {

inline const std::string kFolders = MNEMO_SOURCE_DIR "/tests/golden/data/text_import/";

struct TextTraining : CommandLine {
  /// A golden folder with a tokenizer: "good" and "bad" among the words of a vocabulary of 67.
  std::string published(const std::string& name) const {
    const std::string copy = folder_ / name;
    std::filesystem::create_directories(copy);
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(kFolders + name + "/" + file, copy + "/" + file);
    std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nfilm\nthe\na\nwas\n##ly\n.\n";
    for (int i = 13; i < 67; ++i) vocabulary += "w" + std::to_string(i) + "\n";
    write(copy + "/vocab.txt", vocabulary);
    return copy;
  }
  /// Texts whose label is the word in their middle, or at their start for a memory to keep.
  std::string table(const std::string& name, bool long_texts) const {
    std::string text = "sentence\tlabel\n";
    for (int i = 0; i < 64; ++i) {
      const std::string word = i % 2 == 1 ? "good" : "bad", filler = "w" + std::to_string(13 + i % 50);
      text += long_texts ? word + " " + filler + " the a was film the a was .\t"
                         : "the film was " + word + " " + filler + "\t";
      text += std::to_string(i % 2) + "\n";
    }
    write(folder_ / name, text);
    return folder_ / name;
  }
  base::Node metrics_of(const std::string& run_folder, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"eval", run_folder, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished found = run(words);
    EXPECT_EQ(found.status, 0) << found.err;
    return base::parse_json(found.out, "json");
  }
  /// The classes that `classify` gives to lines of text.
  std::vector<std::string> classes_of(const std::string& model, const std::string& lines) {
    write(folder_ / "lines.txt", lines);
    const Finished found = run({"classify", model, folder_ / "lines.txt"});
    EXPECT_EQ(found.status, 0) << found.err;
    std::vector<std::string> classes;
    std::istringstream rows(found.out);
    for (std::string row; std::getline(rows, row);) classes.push_back(row.substr(0, row.find('\t')));
    return classes;
  }
  Finished train(const std::string& recipe, const std::vector<std::string>& settings, const std::string& out) {
    write(folder_ / "recipe.toml", recipe);
    std::vector<std::string> words = {"train", folder_ / "recipe.toml", "--out", out};
    for (const std::string& setting : settings) {
      words.push_back("--set");
      words.push_back(setting);
    }
    return run(words);
  }
};

/// [train] of these recipes.
inline std::string train_table(int steps, int batch_size, double lr) {
  return fmt::format(
      "[train]\nsteps = {}\nbatch_size = {}\nshuffle = true\noptimiser = {{ type = \"adamw\", lr = {} }}\n", steps,
      batch_size, lr);
}

}  // namespace mnemo::test
