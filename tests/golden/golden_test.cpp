// Every golden file in tests/golden/data: outputs, states, gradients and optimiser steps within the file's tolerance.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/golden.h"

namespace mnemo {
namespace {

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MNEMO_SOURCE_DIR "/tests/golden/data")) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, WithinTolerance) {
  const cli::GoldenReport report = cli::verify_golden(GetParam());
  ASSERT_FALSE(report.groups.empty());
  for (const auto& group : report.groups) {
    EXPECT_LE(group.error, report.tolerance) << report.what << ": " << group.name << ", worst " << group.worst;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(golden_files()), [](const auto& info) {
  const std::filesystem::path path(info.param);
  std::string name = path.parent_path().filename().string() + "_" + path.stem().string();
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace mnemo
