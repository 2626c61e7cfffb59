#pragma once

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file_io.h"
#include "distributed/group.h"
#include "tests/support/command_line.h"
#include "tests/support/free_port.h"

namespace mnemo {

/// Two layers with dropout, a segment cache and a moving average; eight streams.
inline constexpr const char* kRanksRecipe = R"(
[model]
segment_size = 8
memory = [{ type = "segment_cache", mem_len = 8 }]
[model.backbone]
num_layers = 2
dim = 16
num_heads = 2
ffn_dim = 32
dropout = 0.1
[train]
steps = 12
batch_size = 8
segments_per_step = 2
accumulate = 2
ema_decay = 0.9
threads = 1
log_every = 1
save_every = 4
keep_last = 0
tensorboard = false
[data]
type = "text"
train = "text.txt"
valid_fraction = 0.2
test_fraction = 0.0
)";

/// Sentence pairs in batches of at most so many tokens.
inline void write_pairs(const test::TemporaryFolder& folder, int batch_tokens, const std::string& memory) {
  std::string pairs;
  for (int i = 0; i < 120; ++i)
    pairs += fmt::format("number {0} of {1}{2}\tZahl {0} von {1}\n", i % 10, i / 10, i % 3 == 0 ? " and more" : "");
  test::write(folder / "pairs.tsv", pairs);
  test::write(folder / "recipe.toml", fmt::format(R"(
[data]
type = "pairs"
train = "pairs.tsv"
valid_fraction = 0.2
max_length = 12
batch_tokens = {}
translated = 8
search = {{ beam_size = 2, max_len_b = 8 }}
[model]
embedding = {{ shared = "all" }}
head = {{ bias = false }}
[model.backbone]
type = "encoder_decoder"
dim = 16
num_heads = 2
ffn_dim = 16
dropout = 0.1
encoder = {{ num_layers = 1, memory = [{}] }}
decoder = {{ num_layers = 1 }}
[train]
steps = 8
batch_size = 12
shuffle = true
threads = 1
save_every = 4
log_every = 1
eval_every = 4
tensorboard = false
)",
                                                  batch_tokens, memory));
}

/// Trainings on one process and on several.
class Ranks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!distributed::available()) GTEST_SKIP() << "built without Gloo's headers";
    std::string text;
    for (int64_t i = 0; i < 600; ++i) text += std::to_string(i * 7919 % 1000) + (i % 3 == 0 ? " apples\n" : " pears\n");
    test::write(folder_ / "text.txt", text);
    test::write(folder_ / "recipe.toml", kRanksRecipe);
  }

  test::Finished run(const std::vector<std::string>& arguments) const {
    return test::Process(folder_, arguments).finish();
  }
  test::Finished train(const std::string& run_folder, int64_t processes, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"train", folder_ / "recipe.toml", "--out", folder_ / run_folder};
    return run(with_processes(words, processes, std::move(more)));
  }
  test::Finished resume(const std::string& run_folder, int64_t processes, std::vector<std::string> more = {}) const {
    return run(with_processes({"train", "--resume", folder_ / run_folder}, processes, std::move(more)));
  }
  static std::vector<std::string> with_processes(std::vector<std::string> words, int64_t processes,
                                                 std::vector<std::string> more) {
    if (processes > 1) {
      words.emplace_back("--processes");
      words.push_back(std::to_string(processes));
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  std::string step(const std::string& run_folder, int64_t number) const {
    return folder_ / fmt::format("{}/step-{:08}", run_folder, number);
  }

  /// One rank of two as OpenMPI starts it, with a command line of its own.
  std::unique_ptr<test::Process> start_rank(int rank, const std::string& port,
                                            const std::vector<std::string>& arguments,
                                            const std::string& program = test::kBinary) const {
    const std::map<std::string, std::string> variables = {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                                          {"OMPI_COMM_WORLD_SIZE", "2"},
                                                          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                          {"MASTER_PORT", port}};
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    auto process = std::make_unique<test::Process>(own_folder_[static_cast<size_t>(rank)], arguments, nullptr, program);
    for (const auto& [name, value] : variables) unsetenv(name.c_str());
    return process;
  }

  test::TemporaryFolder folder_;
  std::array<test::TemporaryFolder, 2> own_folder_;
};

}  // namespace mnemo
