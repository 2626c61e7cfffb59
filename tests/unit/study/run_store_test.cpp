#include "study/run_store.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::study {
namespace {

CompareJob job(const std::string& variant, int64_t steps = 5) {
  CompareJob made{.study = "Held-out text", .variant = variant, .point = "num_segments 3", .folder = {}, .recipe = {}};
  made.recipe.name = variant;
  made.recipe.train.steps = steps;
  made.recipe = recipes::read_recipe(base::write_options(made.recipe));  // with every default
  return made;
}

class RunStores : public testing::Test {
 protected:
  /// Prepares the job and records a result.
  void finish(CompareJob made) {
    RunStore store(folder_.path());
    store.place(made);
    store.prepare(made, false);
    write_result(result_file(made), {.study = made.study, .variant = made.variant, .value = 0.5});
  }
  std::string folder_of(CompareJob made) {
    RunStore store(folder_.path());
    store.place(made);
    return made.folder.substr(made.folder.rfind('/') + 1);
  }
  bool is_finished(CompareJob made) {
    RunStore store(folder_.path());
    store.place(made);
    return store.finished(made).has_value();
  }
  test::TemporaryFolder folder_;
};

TEST_F(RunStores, FoldersHaveLegibleNames) {
  EXPECT_EQ(folder_of(job("RMT + Transformer-XL cache")),
            "held-out-text-rmt-transformer-xl-cache-num-segments-3-seed0");
  EXPECT_EQ(slug("σ(λ)"), "variant");
  EXPECT_LE(slug(std::string(300, 'x')).size(), 60u);
}

TEST_F(RunStores, ATrainingIsKnownByItsRecipe) {
  finish(job("RMT"));
  EXPECT_TRUE(is_finished(job("RMT")));
  EXPECT_TRUE(is_finished(job("renamed"))) << "a name is no part of a training";
  EXPECT_FALSE(is_finished(job("RMT", 6)));
  EXPECT_EQ(folder_of(job("RMT", 6)), "held-out-text-rmt-num-segments-3-seed0-2");
  CompareJob limited = job("RMT");
  limited.max_seconds = 3;
  EXPECT_FALSE(is_finished(limited));
  CompareJob other_seed = job("RMT");
  other_seed.seed = other_seed.recipe.train.seed = 1;
  EXPECT_FALSE(is_finished(other_seed));
}

TEST_F(RunStores, AChangedTrainingNamesTheKey) {
  finish(job("RMT"));
  const auto change = [&](CompareJob made) {
    RunStore store(folder_.path());
    store.place(made);
    return store.change_of(made);
  };
  EXPECT_EQ(change(job("RMT")), std::nullopt);
  EXPECT_EQ(change(job("GRC")), std::nullopt) << "none of that name was there";
  EXPECT_EQ(change(job("RMT", 6)), fmt::format("train.steps: {} before, 6 now", job("RMT").recipe.train.steps));
}

TEST_F(RunStores, KeysThatALaterVersionAddsDoNoHarm) {
  finish(job("RMT"));
  CompareJob made = job("RMT");
  {
    RunStore store(folder_.path());
    store.place(made);
  }
  const std::string path = base::join_path(made.folder, "job.json");
  base::Node node = base::parse_json(base::read_file(path), path);
  ASSERT_TRUE(node.find("recipe")->find("train")->erase("stop_at"));
  base::write_file_atomic(path, base::to_json(node));
  EXPECT_TRUE(is_finished(job("RMT")));
  node.find("recipe")->find("train")->set("no_longer_there", 3);
  base::write_file_atomic(path, base::to_json(node));
  EXPECT_FALSE(is_finished(job("RMT")));
  EXPECT_EQ(folder_of(job("RMT")), "held-out-text-rmt-num-segments-3-seed0-2") << "an unknown run keeps its folder";
}

TEST_F(RunStores, DamagedResultsAreDoneAgain) {
  finish(job("RMT"));
  CompareJob made = job("RMT");
  RunStore store(folder_.path());
  store.place(made);
  base::write_file_atomic(result_file(made), "{\"value\": ");
  EXPECT_FALSE(store.finished(made).has_value());
}

TEST_F(RunStores, AFolderHasOneComparisonAtATime) {
  const RunStore store(folder_.path());
  try {
    const RunStore second(folder_.path());
    FAIL() << "two at a time";
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("another process is writing in this folder"), std::string::npos)
        << error.what();
  }
}

TEST_F(RunStores, PreparedFoldersHoldTheRecipe) {
  CompareJob made = job("RMT");
  RunStore store(folder_.path());
  store.place(made);
  store.prepare(made, false);
  EXPECT_EQ(training_text(read_job(made.folder)), training_text(made));
  EXPECT_EQ(base::write_options(
                recipes::read_recipe(recipes::RecipeFile::read(base::join_path(made.folder, "recipe.toml")).recipe())),
            base::write_options(made.recipe));
  base::make_folders(base::join_path(made.folder, "step-00000003"));
  store.prepare(made, false);
  EXPECT_TRUE(base::is_folder(base::join_path(made.folder, "step-00000003")));
  store.prepare(made, true);
  EXPECT_FALSE(base::path_exists(base::join_path(made.folder, "step-00000003")));
}

}  // namespace
}  // namespace mnemo::study
