#include "bundle/model_folder.h"

#include <gtest/gtest.h>

#include <ATen/ops/ones.h>
#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "bundle/bundle.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/weights/all_dtypes.h"

namespace mnemo::bundle {
namespace {

using base::InputError;
using test::expect_error;
using test::TemporaryFolder;

ModelFolder example() {
  ModelFolder model;
  model.config = "{\"model\": 1}\n";
  model.weights.tensors = {{"w", at::ones({2, 3})}};
  model.weights.metadata = {{"step", "7"}};
  model.vocabulary = {{"vocab.txt", "a\nb\n"}, {"merges.txt", std::string("\0\xff", 2)}};
  model.card = "# A model\n";
  return model;
}

TEST(ModelFolder, RoundTrip) {
  const TemporaryFolder folder;
  const ModelFolder written = example();
  write_model_folder(folder / "m", written);
  EXPECT_EQ(base::list_folder(folder / "m"),
            (std::vector<std::string>{"README.md", "config.json", "merges.txt", "model.safetensors", "vocab.txt"}));
  EXPECT_EQ(base::list_folder(folder.path()), std::vector<std::string>{"m"});
  const ModelFolder read = read_model_folder(folder / "m", {"vocab.txt", "merges.txt"});
  EXPECT_EQ(read.config, written.config);
  EXPECT_EQ(read.vocabulary, written.vocabulary);
  EXPECT_EQ(read.card, written.card);
  EXPECT_EQ(read.weights.metadata, (weights::Metadata{{"format", "pt"}, {"step", "7"}}));
  test::expect_same_bytes(read.weights.tensors, written.weights.tensors);
  EXPECT_EQ(read_model_config(folder / "m"), written.config);
}

TEST(ModelFolder, ReplacesAModelButNothingElse) {
  const TemporaryFolder folder;
  ModelFolder model = example();
  write_model_folder(folder / "m", model);
  model.config = "{}";
  write_model_folder(folder / "m", model);
  EXPECT_EQ(read_model_config(folder / "m"), "{}");
  base::write_file_atomic(folder / "m/thesis.tex", "years of work");
  expect_error<InputError>([&] { write_model_folder(folder / "m", model); },
                           {folder / "m", "'thesis.tex'", "not overwritten"});
  EXPECT_EQ(base::read_file(folder / "m/thesis.tex"), "years of work");
  base::write_file_atomic(folder / "file", "x");
  expect_error<InputError>([&] { write_model_folder(folder / "file", model); }, {folder / "file", "found a file"});
}

TEST(ModelFolder, VocabularyNamesStayInside) {
  const TemporaryFolder folder;
  for (const std::string name : {"../x", "a/b", "config.json", "README.md", "", ".."}) {
    ModelFolder model = example();
    model.vocabulary[name] = "x";
    expect_error<InputError>([&] { write_model_folder(folder / "m", model); }, {folder / "m", "vocabulary"});
    EXPECT_FALSE(base::path_exists(folder / "m"));
  }
  write_model_folder(folder / "m", example());
  expect_error<InputError>([&] { read_model_folder(folder / "m", {"../m/vocab.txt"}); }, {"not a plain file name"});
}

TEST(ModelFolder, WhatIsMissingIsNamed) {
  const TemporaryFolder folder;
  expect_error<InputError>([&] { read_model_folder(folder / "none", {}); }, {folder / "none", "none: no such folder"});
  for (const std::string name : {"config.json", "model.safetensors", "vocab.txt"}) {
    write_model_folder(folder / "m", example());
    base::remove_tree(folder / ("m/" + name));
    expect_error<InputError>([&] { read_model_folder(folder / "m", {"vocab.txt"}); },
                             {folder / ("m/" + name), "missing"});
  }
  write_model_folder(folder / "m", example());
  base::remove_tree(folder / "m/README.md");
  EXPECT_EQ(read_model_folder(folder / "m", {}).card, "");
  base::write_file_atomic(folder / "m/model.safetensors", "damaged");
  expect_error<InputError>([&] { read_model_folder(folder / "m", {}); }, {folder / "m/model.safetensors", "rule 1"});
}

TEST(ModelFolder, ARunsModelIsSaidWhereItIsReadAndNotWhereItIsLookedAt) {
  const TemporaryFolder run;
  std::filesystem::create_directory(run / "model");
  std::string log;
  const base::ConsoleScope scope(std::make_shared<base::Console>([&](std::string_view line) { log += line; }));
  const std::string said = "model: " + (run / "model") + "\n";
  EXPECT_EQ(find_model_folder(run.path()), run / "model");
  EXPECT_EQ(log, "");
  for (int reading = 0; reading < 2; ++reading) EXPECT_EQ(model_folder(run.path()), run / "model");
  EXPECT_EQ(log, said + said) << "each training of a process is told";
}

}  // namespace
}  // namespace mnemo::bundle
