// Every golden file in tests/golden/data, and every model folder with an expect.safetensors: outputs, states, gradients
// and optimiser steps within the file's tolerance.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "verify/golden.h"
#include "weights/safetensors.h"

namespace mnemo {
namespace {

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MNEMO_SOURCE_DIR "/tests/golden/data")) {
    if (entry.path().filename() == "model.safetensors")
      continue;  // part of a model folder, which is checked as a
                 // whole
    const bool expects = entry.path().filename() == "expect.safetensors";
    if (entry.path().extension() == ".safetensors")
      files.push_back((expects ? entry.path().parent_path() : entry.path()).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, WithinTolerance) {
  const verify::GoldenReport report = verify::verify_golden(GetParam());
  ASSERT_FALSE(report.groups.empty());
  for (const auto& group : report.groups) {
    EXPECT_LE(group.error, group.tolerance) << report.what << ": " << group.name << ", worst " << group.worst;
  }
}

// A file whose config needs far more than its tensors: rejected before anything is allocated.
TEST(GoldenFile, AConfigBeyondItsTensorsIsRefused) {
  const test::TemporaryFolder folder;
  const auto expect_refused = [&](const std::string& name, const std::string& from, const std::string& to,
                                  const std::string& what) {
    weights::TensorFile file = weights::read_safetensors(MNEMO_SOURCE_DIR "/tests/golden/data/" + name);
    std::string& config = file.metadata["config"];
    ASSERT_NE(config.find(from), std::string::npos);
    config.replace(config.find(from), from.size(), to);
    const std::string path = folder / "large.safetensors";
    weights::write_safetensors(path, file.tensors, file.metadata);
    test::expect_error<base::InputError>([&] { verify::verify_golden(path); },
                                         {what, "numbers, expected at most", path + " holds"});
  };
  expect_refused("recurrent/mt.safetensors", "\"vocab_size\": 17", "\"vocab_size\": 16777216",
                 "parameter 'embed.weight'");
  expect_refused("recurrent/mt.safetensors", "\"ffn_dim\": 11", "\"ffn_dim\": 1048576", "ffn.0.weight'");
  expect_refused("abc/exp_one_token.safetensors", "\"dim\": 8", "\"dim\": 4096", "of [4096,4096]");
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(golden_files()), [](const auto& info) {
  const std::filesystem::path path(info.param);
  std::string name = path.parent_path().filename().string() + "_" + path.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace mnemo
