#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "tests/support/command_line.h"

// Scripts and installation.
namespace mnemo {
namespace {

using test::CommandLine;
using test::content;
using test::holds;

namespace fs = std::filesystem;

/// The value of an entry "NAME:TYPE=VALUE" of CMake's cache.
std::string cached(const std::string& name) {
  const std::string cache = "\n" + content(MNEMO_BINARY_DIR "/CMakeCache.txt");
  const size_t entry = cache.find("\n" + name + ":");
  if (entry == std::string::npos) return {};
  const size_t start = cache.find('=', entry) + 1;
  return cache.substr(start, cache.find('\n', start) - start);
}

/// Such a folder that holds the right one makes `cd` print where it goes.
TEST_F(CommandLine, ScriptsRunWhereCdSearchesFolders) {
  const std::string command = fmt::format(
      "cd '{}' && CDPATH=. bash -c 'source scripts/common.sh && printf %s \"$root\"' > '{}' 2>&1", MNEMO_SOURCE_DIR,
      folder_ / "root.txt");
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(content(folder_ / "root.txt"), MNEMO_SOURCE_DIR);
}

/// The script that `cmake --install` runs, for a small library of LibTorch in place of the program.
TEST_F(CommandLine, LibTorchBehindALinkIsInstalled) {
  const std::string cmake = cached("CMAKE_COMMAND"), torch = cached("MNEMO_TORCH_DIR");
  const std::string library = "/lib/libtorch_global_deps.so";
  if (cmake.empty() || !fs::exists(torch + library)) GTEST_SKIP() << "no wheel of PyTorch: " << torch;
  const auto install = [&](const std::string& torch_dir, const std::string& program, const std::string& into) {
    const std::string command = fmt::format(
        "'{}' '-DCMAKE_INSTALL_PREFIX={}' '-Dtorch_lib={}/lib' -Dtorch_dir=lib/mnemo/libtorch '-Dprogram={}' -P "
        "'{}/cmake/InstallLibTorch.cmake' > '{}' 2>&1",
        cmake, folder_ / into, torch_dir, program, MNEMO_SOURCE_DIR, folder_ / "log.txt");
    return std::system(command.c_str());
  };
  const auto files = [&](const std::string& where) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / (where + "/lib/mnemo/libtorch")))
      names.insert(entry.path().filename().string());
    return names;
  };
  ASSERT_EQ(install(torch, torch + library, "plain"), 0) << content(folder_ / "log.txt");
  fs::create_directory_symlink(torch, folder_ / "link");
  ASSERT_EQ(install(folder_ / "link", (folder_ / "link") + library, "linked"), 0) << content(folder_ / "log.txt");
  EXPECT_FALSE(files("plain").empty());
  EXPECT_EQ(files("linked"), files("plain"));
  EXPECT_NE(install(torch, "/bin/sh", "none"), 0) << "a program without LibTorch";
  EXPECT_TRUE(holds(content(folder_ / "log.txt"), "LibTorch was not installed")) << content(folder_ / "log.txt");
}

}  // namespace
}  // namespace mnemo
