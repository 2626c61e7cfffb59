#include "weights/checkpoint.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ops/full.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::weights {
namespace {

using base::InputError;
using test::expect_error;
using test::TemporaryFolder;
using Names = std::vector<std::string>;

CheckpointContent content_of(int64_t step) {
  CheckpointContent content;
  content.tensors["model.safetensors"].tensors = {{"w", at::full({64, 64}, static_cast<double>(step), at::kFloat)},
                                                  {"step", at::full({}, step, at::kLong)}};
  content.tensors["optimiser.safetensors"].tensors = {
      {"w.m", at::full({1000}, static_cast<double>(step), at::kDouble)}};
  content.files["trainer.json"] = "{\"step\": " + std::to_string(step) + "}";
  content.metrics["loss"] = 1.0 / static_cast<double>(step + 1);
  return content;
}

std::string save(const std::string& run, int64_t step, const KeepOptions& keep = {.keep_last = 0}) {
  return save_checkpoint(run, step, content_of(step), keep);
}

// All files of a checkpoint belong to the same step.
void expect_consistent(const CheckpointInfo& info) {
  const CheckpointReader reader(info.path);
  const auto step = static_cast<double>(info.step);
  EXPECT_TRUE(reader.tensors("model.safetensors").at("w", "").eq(step).all().item<bool>());
  EXPECT_EQ(reader.tensors("model.safetensors").at("step", "").item<int64_t>(), info.step);
  EXPECT_TRUE(reader.tensors("optimiser.safetensors").at("w.m", "").eq(step).all().item<bool>());
  EXPECT_EQ(reader.file("trainer.json"), content_of(info.step).files["trainer.json"]);
}

void damage(const std::string& path) {
  std::string content = base::read_file(path);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  base::write_file_atomic(path, content);
}

struct Warnings {
  Names lines;
  WarnFunction function() {
    return [this](const std::string& line) { lines.push_back(line); };
  }
};

TEST(Checkpoint, RoundTrip) {
  const TemporaryFolder folder;
  CheckpointContent content = content_of(42);
  content.metrics["nan"] = std::nan("");
  content.metrics["inf"] = -std::numeric_limits<double>::infinity();
  content.metrics["tenth"] = 0.1;
  const std::string path = save_checkpoint(folder / "run", 42, content, {.keep_last = 3, .is_best = true});
  EXPECT_EQ(path, folder / "run/step-00000042");
  EXPECT_EQ(base::list_folder(path),
            (Names{"manifest.json", "model.safetensors", "optimiser.safetensors", "trainer.json"}));
  const auto info = latest_checkpoint(folder / "run");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->path, path);
  EXPECT_EQ(info->step, 42);
  EXPECT_TRUE(info->best);
  EXPECT_EQ(info->metrics.at("tenth"), 0.1);
  EXPECT_TRUE(std::isnan(info->metrics.at("nan")));
  EXPECT_EQ(info->metrics.at("inf"), -std::numeric_limits<double>::infinity());
  expect_consistent(*info);
  const CheckpointReader reader(path);
  EXPECT_TRUE(reader.has("trainer.json"));
  EXPECT_FALSE(reader.has("manifest.json"));
  expect_error<InputError>([&] { reader.file("none"); }, {path, "'none'"});
  expect_error<InputError>([&] { reader.file("../../x"); }, {path, "no file"});
}

TEST(Checkpoint, NothingThereIsNothing) {
  const TemporaryFolder folder;
  EXPECT_FALSE(latest_checkpoint(folder / "none"));
  EXPECT_FALSE(latest_checkpoint(folder.path()));
}

TEST(Checkpoint, KeepsTheLastAndTheBest) {
  const TemporaryFolder folder;
  for (int64_t step = 1; step <= 7; ++step)
    save(folder.path(), step, {.keep_last = 2, .is_best = step == 1 || step == 3});
  EXPECT_EQ(base::list_folder(folder.path()), (Names{"step-00000003", "step-00000006", "step-00000007"}));
  EXPECT_EQ(find_checkpoint(folder.path(), "best")->step, 3);
  EXPECT_EQ(latest_checkpoint(folder.path())->step, 7);
  // Going back to an earlier step: the checkpoint just written is kept, whatever else is.
  save(folder.path(), 4, {.keep_last = 1});
  EXPECT_EQ(base::list_folder(folder.path()), (Names{"step-00000003", "step-00000004"}));
}

TEST(Checkpoint, IsFoundByWhatItIsCalled) {
  const TemporaryFolder folder;
  EXPECT_FALSE(find_checkpoint(folder.path(), "best"));
  for (int64_t step = 1; step <= 3; ++step) save(folder.path(), step, {.is_best = step == 2});
  for (const auto& [which, step] : {std::pair("latest", 3), std::pair("best", 2), std::pair("1", 1)})
    EXPECT_EQ(find_checkpoint(folder.path(), which)->step, step) << which;
  base::remove_tree(folder / "step-00000002/manifest.json");
  EXPECT_EQ(find_checkpoint(folder.path(), "best", [](const std::string&) {})->step, 3) << "the latest otherwise";
  expect_error<base::InputError>([&] { find_checkpoint(folder.path(), "2"); }, {"step-00000002/manifest.json"});
  expect_error<base::InputError>([&] { find_checkpoint(folder.path(), "7"); },
                                 {folder.path(), "no checkpoint of step 7; expected one of 1, 2, 3"});
  expect_error<base::InputError>([&] { find_checkpoint(folder.path(), "last"); },
                                 {"--checkpoint: expected latest, best or a step, found 'last'"});
}

TEST(Checkpoint, LookingForOneChangesNothing) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  ASSERT_EQ(::rename((folder / "step-00000001").c_str(), (folder / "step-00000001.old-1-2-3").c_str()), 0);
  EXPECT_FALSE(find_checkpoint(folder.path(), "latest"));
  EXPECT_EQ(latest_checkpoint(folder.path())->step, 1) << "a training puts it back";
}

TEST(Checkpoint, TheSameStepTwiceIsReplaced) {
  const TemporaryFolder folder;
  save(folder.path(), 5);
  CheckpointContent other;
  other.files["other.txt"] = "2";
  save_checkpoint(folder.path(), 5, other);
  EXPECT_EQ(base::list_folder(folder / "step-00000005"), (Names{"manifest.json", "other.txt"}));
  EXPECT_EQ(base::list_folder(folder.path()), Names{"step-00000005"});
}

TEST(Checkpoint, StepsSortAsNumbers) {
  const TemporaryFolder folder;
  for (const int64_t step : {99'999'999LL, 100'000'000LL}) save(folder.path(), step);
  EXPECT_EQ(latest_checkpoint(folder.path())->step, 100'000'000);
}

TEST(Checkpoint, UnderTheNameOfAnotherStepIsDamaged) {
  const TemporaryFolder folder;
  std::filesystem::rename(save(folder.path(), 3), folder / "step-00000004");
  test::expect_error<base::InputError>([&] { read_manifest(folder / "step-00000004"); },
                                       {"step-00000004/manifest.json", "expected step 4", "found 3"});
}

TEST(Checkpoint, DamageIsFoundAndSkipped) {
  const TemporaryFolder folder;
  const auto expect_skipped = [&](const std::string& part) {
    Warnings warnings;
    const auto info = latest_checkpoint(folder.path(), warnings.function());
    ASSERT_TRUE(info);
    EXPECT_EQ(info->step, 1);
    expect_consistent(*info);
    ASSERT_EQ(warnings.lines.size(), 1U);
    EXPECT_NE(warnings.lines[0].find(part), std::string::npos) << warnings.lines[0];
    EXPECT_NE(warnings.lines[0].find("step-00000002"), std::string::npos) << warnings.lines[0];
    save(folder.path(), 2);
  };
  save(folder.path(), 1);
  const std::string second = save(folder.path(), 2);
  for (const std::string name : {"model.safetensors", "optimiser.safetensors", "trainer.json"}) {
    damage(second + "/" + name);
    expect_skipped(name + ": damaged: the manifest lists SHA-256");
    base::write_file_atomic(second + "/" + name, base::read_file(second + "/" + name) + "x");
    expect_skipped(name + ": expected ");
    base::remove_tree(second + "/" + name);
    expect_skipped(name + ": listed in the manifest, but missing");
  }
  base::remove_tree(second + "/manifest.json");
  expect_skipped("incomplete");
  for (const std::string manifest : {"", "{", "[]", "{\"format\": \"mnemo-checkpoint/2\"}", "{\"format\": 1}"}) {
    base::write_file_atomic(second + "/manifest.json", manifest);
    expect_skipped("manifest.json");
  }
}

TEST(Checkpoint, ManifestCannotNameFilesElsewhere) {
  const TemporaryFolder folder;
  const std::string path = save(folder.path(), 1);
  const std::string manifest = base::read_file(path + "/manifest.json");
  for (const std::string name : {"../x", "/etc/passwd", "a\\u0000b", "manifest.json", ""}) {
    std::string changed = manifest;
    changed.replace(changed.find("trainer.json"), 12, name);
    base::write_file_atomic(path + "/manifest.json", changed);
    expect_error<InputError>([&] { verify_checkpoint(path); }, {"manifest.json", "not a plain file name"});
  }
}

// Reading a manifest has a bounded cost, and nothing is written that could not be read.
TEST(Checkpoint, ManifestsAreShortAndFlat) {
  const TemporaryFolder folder;
  const std::string path = save(folder.path(), 1);
  const std::string manifest = base::read_file(path + "/manifest.json");
  const auto expect_refused = [&](const std::string& changed, const std::string& reason) {
    base::write_file_atomic(path + "/manifest.json", changed);
    expect_error<InputError>([&] { verify_checkpoint(path); }, {"manifest.json", reason});
  };
  const auto with_metric = [&](const std::string& value) {
    std::string changed = manifest;
    return changed.insert(changed.find("\"loss\""), "\"x\": " + value + ", ");
  };
  expect_refused(with_metric("[[1]]"), "expected number, found list");
  expect_refused(with_metric("[[[1]]]"), "nested deeper than 4 levels");
  expect_refused("{\"files\":" + std::string(30'000, '['), "nested deeper than 4 levels");
  expect_refused(manifest + std::string(32 << 10, ' '), "expected at most 32768");
  expect_refused(manifest.substr(0, manifest.rfind('}')) + ", \"step\": 1}", "duplicate key 'step'");
  expect_refused(with_metric("\"high\""), "the metric 'x' is 'high'");

  CheckpointContent many;
  for (int i = 0; i < 100; ++i) many.files["shard-" + std::to_string(i) + "-of-00100.safetensors"] = "";
  EXPECT_EQ(verify_checkpoint(save_checkpoint(folder.path(), 2, many)).files.size(), 100U);
  for (int i = 0; i < 100; ++i) many.files[std::to_string(i) + std::string(150, 'x')] = "";
  expect_error<InputError>([&] { save_checkpoint(folder.path(), 3, many); },
                           {"step-00000003/manifest.json", "200 files", "at most 32768"});
  EXPECT_EQ(latest_checkpoint(folder.path())->step, 2);
}

TEST(Checkpoint, NamesAreChecked) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 1);
  expect_error<InputError>([&] { writer.add_file("../x", ""); }, {"'../x'"});
  expect_error<InputError>([&] { writer.add_file("manifest.json", ""); }, {"'manifest.json' is taken"});
  writer.add_file("a", "1");
  expect_error<InputError>([&] { writer.add_file("a", "2"); }, {"'a' is taken"});
  expect_error<InputError>([&] { CheckpointWriter negative(folder.path(), -1); }, {"-1"});
}

TEST(Checkpoint, AnUnfinishedOneIsNotThere) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  {
    CheckpointWriter writer(folder.path(), 2);
    writer.add_file("a", "1");
    EXPECT_EQ(latest_checkpoint(folder.path())->step, 1);
  }
  EXPECT_EQ(base::list_folder(folder.path()), Names{"step-00000001"});
}

// A process that saves in a loop is killed at 50 random moments; its successor continues from the newest checkpoint.
TEST(Checkpoint, KilledAtFiftyRandomMoments) {
  const TemporaryFolder folder;
  std::mt19937_64 random(11);
  // Up to three saves per round, however fast the disk is.
  const auto start = std::chrono::steady_clock::now();
  save(folder / "trial", 0);
  save(folder / "trial", 1);
  auto longest = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start)
                     .count() *
                 3 / 2;
  base::remove_tree(folder / "trial");
  int64_t last = -1;
  int torn = 0;
  // More rounds if the machine is busy: the kills must have hit half-written checkpoints, and there must have been
  // progress.
  for (int round = 0; round < 50 || ((torn < 5 || last < 10) && round < 1000); ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int64_t step = last + 1;; ++step) save(folder.path(), step, {.keep_last = 2, .is_best = step % 5 == 0});
      } catch (...) {
        ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(1'000 + random() % static_cast<uint64_t>(longest)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself in round " << round;

    for (const std::string& name : base::list_folder(folder.path())) torn += name.find(".tmp-") != std::string::npos;
    Warnings warnings;
    const auto info = latest_checkpoint(folder.path(), warnings.function());
    EXPECT_TRUE(warnings.lines.empty()) << warnings.lines.front();
    if (!info) {
      ASSERT_EQ(last, -1) << "the newest checkpoint is gone in round " << round;
      if (round >= 50) longest = longest * 5 / 4;
      continue;
    }
    EXPECT_GE(info->step, last);
    // The disk may have become slower since the trial: then the kills must come later.
    if (info->step == last && round >= 50) longest = longest * 5 / 4;
    last = info->step;
    expect_consistent(*info);
  }
  EXPECT_GE(torn, 5);
  EXPECT_GE(last, 10);
  save(folder.path(), last + 1, {.keep_last = 2});
  EXPECT_LE(base::list_folder(folder.path()).size(), 3U);
  for (const std::string& name : base::list_folder(folder.path()))
    EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
}

}  // namespace
}  // namespace mnemo::weights
