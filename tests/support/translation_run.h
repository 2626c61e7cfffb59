#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/support/command_line.h"

namespace mnemo::test {

inline constexpr const char* kPairRecipe = R"(
name = "tiny translation"
[data]
type = "pairs"
train = "pairs.tsv"
valid_fraction = 0.2
test_fraction = 0.1
max_length = 12
batch_tokens = 64
translated = 8
search = { beam_size = 2, max_len_b = 8 }
[model]
embedding = { shared = "all" }
head = { bias = false }
[model.backbone]
type = "encoder_decoder"
dim = 16
num_heads = 2
ffn_dim = 16
dropout = 0.1
encoder = { num_layers = 1, memory = [{ type = "grc", cache_len = 4 }] }
decoder = { num_layers = 1 }
[train]
steps = 6
batch_size = 8
shuffle = true
save_every = 3
log_every = 1
eval_every = 3
)";

/// Trains small translation models on pairs.tsv and runs `mnemo translate`.
class TranslationRun : public CommandLine {
 protected:
  TranslationRun() {
    std::string pairs;
    for (int i = 0; i < 120; ++i) {
      const std::string number = std::to_string(i % 10), other = std::to_string(i / 10);
      pairs += "number " + number + " of " + other + "\tZahl " + number + " von " + other + "\n";
    }
    write(folder_ / "pairs.tsv", pairs);
    write(pair_recipe_, kPairRecipe);
  }
  /// Runs `mnemo translate` with that input.
  Finished translate(const std::string& input, const std::string& arguments) {
    write(folder_ / "in", input);
    const std::string command = fmt::format("{} translate {} < {} > {} 2> {}", kBinary, arguments, folder_ / "in",
                                            folder_ / "out", folder_ / "err");
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), content(folder_ / "out"), content(folder_ / "err")};
  }
  std::string pair_recipe_ = folder_ / "pairs.toml";
};

}  // namespace mnemo::test
