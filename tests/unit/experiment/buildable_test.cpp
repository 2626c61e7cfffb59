// Errors for a recipe whose model cannot be built, reported before data is read: file, line and key.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "experiment/experiment.h"
#include "models/model.h"
#include "study/compare_job.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::experiment {
namespace {

using test::expect_error;

class Buildable : public testing::Test {
 protected:
  recipes::Recipe read(const std::string& text) {
    std::ofstream(folder_ / "a.toml") << text;
    return recipes::read_recipe(recipes::RecipeFile::read(folder_ / "a.toml").recipe());
  }
  /// `data` is the lines of [data], `attention` line 6 of the file.
  recipes::Recipe with(const std::string& attention, const std::string& type = "decoder",
                       const std::string& data = "type = \"algorithmic\"\nnum_symbols = 6",
                       const std::string& more = "") {
    return read("[model]\nsegment_size = 8\n[model.backbone]\ndim = 16\nnum_heads = 2\nattention = " + attention +
                "\nnum_layers = 2\nffn_dim = 16\ntype = \"" + type + "\"\n" + more + "[data]\n" + data + "\n");
  }
  void expect_refused(const std::function<void()>& action, const std::string& message) {
    expect_error<base::InputError>(action, {"a.toml:", message});
  }
  test::TemporaryFolder folder_;
};

TEST_F(Buildable, ErrorsOfConstructionNameFileLineAndKey) {
  const std::string where = "a.toml:6: 'model.backbone.attention': ";
  const auto refused = [&](const std::string& attention, const std::string& message,
                           const std::string& type = "decoder") {
    expect_refused([&] { require_buildable(with(attention, type)); }, where + message);
  };
  refused("{ type = \"abc\", num_slots = 4, control = { type = \"local_to_global\" } }",
          "ABC: control 'local_to_global' expected as many global_positions as num_slots = 4");
  refused("{ type = \"abc\", control = { type = \"luna\" } }", "ABC: control 'luna'");
  refused("{ type = \"abc\", control = { type = \"mlp\", tied_kv = false } }", "ABC: expected control.tied_kv = true");
  refused("{ type = \"bigbird\" }", "bigbird: every row");
  refused("{ type = \"linformer\" }", "linformer: a projected key");
  refused("{ type = \"linear\", gate = true }", "linear: a gate", "encoder");
  expect_refused(
      [&] {
        require_buildable(
            with("\"linear\"", "decoder", "type = \"algorithmic\"", "[[model.memory]]\ntype = \"segment_cache\"\n"));
      },
      where + "model: attention 'linear' reads only its own rows");
  expect_refused([&] { with("\"softmax\"", "decoder", "type = \"algorithmic\"\nnum_symbols = 6\nnum_segments = 100"); },
                 "a.toml:13: 'data.num_segments': a sample of 18 tokens cannot be cut into 100 equal segments");
  require_buildable(with("\"relative\""));
}

TEST_F(Buildable, ASegmentOfAnEncoderNeedsAPlaceForEachRow) {
  const auto refused = [&](const std::string& attention, const std::string& message) {
    expect_refused(
        [&] { with(attention, "encoder", "type = \"listops\"", "[model.head]\ntype = \"classification\"\n"); },
        message);
  };
  refused("{ type = \"linformer\", max_len = 8 }",
          "a.toml:6: 'model.backbone.attention.max_len': allows only 8 rows, expected at least 9: a segment has "
          "segment_size = 8 tokens and 1 rows beside them");
  refused("{ type = \"abc\", control = { type = \"linformer\", max_len = 8 } }",
          "'model.backbone.attention.control.max_len': allows only 8 rows, expected at least 9");
  refused("{ type = \"abc\", num_slots = 2, control = { type = \"compressive\", compression = 4 } }",
          "'model.backbone.attention.num_slots': allows only 8 rows");
  refused("{ type = \"abc\", num_slots = 8, control = \"identity\" }",
          "'model.backbone.attention.num_slots': allows only 8 rows");
  with("{ type = \"linformer\", max_len = 9 }", "encoder", "type = \"listops\"",
       "[model.head]\ntype = \"classification\"\n");
}

TEST_F(Buildable, ASequenceOfADecoderNeedsAPlaceForEachToken) {
  const auto linformer = [](int64_t places) {
    return "{ type = \"abc\", control = { type = \"linformer\", max_len = " + std::to_string(places) + " } }";
  };
  const std::string key = "a.toml:6: 'model.backbone.attention.control.max_len': ";
  expect_refused([&] { require_buildable(with(linformer(17))); },
                 key + "allows only 17 rows, expected at least 18: the longest sample");
  require_buildable(with(linformer(18)));
  expect_refused([&] { require_buildable(with(linformer(7), "decoder", "train = \"a.txt\"\nreset = \"segments\"")); },
                 key + "allows only 7 rows, expected at least 8");
  require_buildable(with(linformer(8), "decoder", "train = \"a.txt\"\nreset = \"segments\""));
  expect_refused([&] { require_buildable(with(linformer(4000), "decoder", "train = \"a.txt\"")); },
                 "'data.reset': expected \"segments\": the text has no documents");
  require_buildable(with(linformer(4000), "decoder", "train = \"a.txt\"\ndocument_separator = \"blank_line\""));
  // For data from a file, samples are only known after reading it, which happens before anything is written.
  std::ofstream(folder_ / "task.tsv") << "input\ttarget\tanswer\n1 2 3\t2 3 1\t0 0 1\n";
  const std::string file = "type = \"task_file\"\ntrain = \"task.tsv\"";
  expect_refused([&] { make_experiment(with(linformer(2), "decoder", file)); },
                 key + "allows only 2 rows, expected at least 3");
  expect_refused([&] { make_experiment(with("\"softmax\"", "decoder", file + "\nnum_segments = 9")); },
                 "'data.num_segments': a sample of 3 tokens cannot be cut into 9 equal segments");
}

TEST_F(Buildable, AModelThatMemoryCannotHoldIsRefusedBeforeItIsMade) {
  std::ofstream(folder_ / "task.tsv") << "input\ttarget\tanswer\n1 2 3\t2 3 1\t0 0 1\n";
  const std::string text =
      "[model.embedding]\nvocab_size = 16777216\n[model.backbone]\ndim = 65536\n[data]\ntype = \"task_file\"\ntrain = "
      "\"task.tsv\"\n";
  expect_error<base::InputError>(
      [&] { make_experiment(read(text)); },
      {"recipe: 'model': ", "and their gradients need", "embedding.vocab_size is 16777216, backbone.dim 65536"});
  expect_error<base::InputError>([&] { build_model(read(text)); }, {"recipe: 'model': ", " parameters need "});
}

TEST_F(Buildable, TheUnitOfATextNamesTheMetric) {
  EXPECT_EQ(study::metric_of(with("\"relative\"", "decoder", "train = \"a.txt\"\nunit = \"bytes\"")).name,
            "bits per byte");
  EXPECT_EQ(study::metric_of(with("\"relative\"", "decoder", "train = \"a.txt\"")).name, "bits per character");
}

}  // namespace
}  // namespace mnemo::experiment
