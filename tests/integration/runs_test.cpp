#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/folder_lock.h"
#include "tests/support/command_line.h"

namespace mnemo::test {
namespace {

namespace fs = std::filesystem;

/// `mnemo runs`.
class Runs : public CommandLine {
 protected:
  /// The run of that name in `mnemo runs FOLDER --json`.
  base::Node listed(const std::string& name) {
    const base::Node rows = json(run({"runs", folder_ / "runs", "--json"}).out);
    for (const base::Node& row : rows.items()) {
      if (row.at("folder").as_string() == folder_ / ("runs/" + name)) return row;
    }
    return {};
  }
};

TEST_F(Runs, AreListedWithTheirState) {
  const std::string done = trained("runs/done"), part = trained("runs/part", {"--set", "train.save_every=3"});
  fs::remove_all(part + "/model");
  fs::create_directory(folder_ / "runs/no_run");
  write(folder_ / "runs/file.txt", "no run");
  EXPECT_EQ(listed("done").at("state").as_string(), "finished");
  EXPECT_EQ(listed("done").at("step").as_int(), 6);
  EXPECT_EQ(listed("done").at("metric").as_string(), "bits_per_character");
  const std::string log = content(done + "/log.jsonl");
  const base::Node last = json(log.substr(log.rfind('\n', log.size() - 2) + 1)).at("valid");
  EXPECT_EQ(listed("done").at("value").as_double(), last.at("bits_per_character").as_double());
  EXPECT_EQ(listed("done").at("last").at("valid.nll").as_double(), last.at("nll").as_double());
  EXPECT_GT(listed("done").at("bytes").as_int(), 10'000);
  EXPECT_EQ(listed("part").at("state").as_string(), "interrupted");
  EXPECT_EQ(listed("part").at("checkpoint").as_int(), 6);
  EXPECT_TRUE(listed("no_run").is_null());
  {
    const base::FolderLock lock(part);
    EXPECT_EQ(listed("part").at("state").as_string(), "training");
    EXPECT_TRUE(base::FolderLock::is_held(part));
  }
  EXPECT_EQ(listed("part").at("state").as_string(), "interrupted");
  // Killed after its last checkpoint: the step is the one that it goes on from.
  fs::remove_all(part + "/step-00000006");
  EXPECT_EQ(listed("part").at("checkpoint").as_int(), 3);
  EXPECT_EQ(listed("part").at("step").as_int(), 3) << "the log says 6";
  const std::string whole_log = content(part + "/log.jsonl");
  write(part + "/log.jsonl",
        "{\"step\":3,\"tokens\":30,\"loss\":3}\n{\"step\":3,\"valid\":{\"nll\":0.5}}\n"
        "{\"step\":5,\"tokens\":50,\"loss\":2}\n{\"step\":6,\"valid\":{\"nll\":0.25}}\n");
  EXPECT_EQ(listed("part").at("last").at("tokens").as_double(), 30) << "what was lost is not shown";
  EXPECT_EQ(listed("part").at("last").at("valid.nll").as_double(), 0.5);
  EXPECT_EQ(listed("part").at("metric").as_string(), "nll") << "a log that names no metric";
  write(part + "/log.jsonl", whole_log);
  EXPECT_TRUE(holds(run({"runs", folder_ / "runs"}).out, "interrupted at step 3  3 of 6"))
      << run({"runs", folder_ / "runs"}).out;
  write(part + "/.lock", "999999999 host boot\n");
  write(done + "/.lock", content("/proc/sys/kernel/random/boot_id"));
  EXPECT_EQ(listed("done").at("state").as_string(), "finished") << "a file that names no process";

  fs::remove(part + "/.lock");
  const Finished table = run({"runs", folder_ / "runs"});
  EXPECT_EQ(table.status, 0) << table.err;
  for (const char* text : {"runs/done", "finished", "6 of 6", "bits_per_character ", "interrupted at step 3", " kB"})
    EXPECT_TRUE(holds(table.out, text)) << table.out;
  EXPECT_TRUE(holds(run({"runs", done}).out, "finished")) << "the folder of one run";

  // The run continues past its first end; its model is still that of the first end.
  ASSERT_EQ(run({"train", "--resume", done, "--set", "train.steps=9", "-q"}).status, 0);
  fs::last_write_time(done + "/model/config.json", fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(listed("done").at("state").as_string(), "finished") << "all steps are done";
  write(done + "/log.jsonl", log + "{\"step\":7,\"tok");
  EXPECT_EQ(listed("done").at("state").as_string(), "interrupted");
  EXPECT_EQ(listed("done").at("step").as_int(), 9) << "of its checkpoint";
}

TEST_F(Runs, OfComparisonsAreFoundAndUnreadableOnesLeftOut) {
  fs::create_directories(folder_ / "runs/comparison/runs");
  fs::rename(trained("moved"), folder_ / "runs/comparison/runs/one");
  fs::create_directories(folder_ / "runs/broken");
  write(folder_ / "runs/broken/recipe.toml", "[model\n");
  const Finished table = run({"runs", folder_ / "runs"});
  EXPECT_EQ(table.status, 0);
  EXPECT_TRUE(holds(table.out, "runs/comparison/runs/one")) << table.out;
  EXPECT_TRUE(holds(table.err, "left out: ") && holds(table.err, "runs/broken/recipe.toml")) << table.err;
  EXPECT_TRUE(holds(run({"runs", folder_ / "none"}).err, "none: no such folder"));
  fs::create_directory(folder_ / "empty");
  EXPECT_TRUE(holds(run({"runs", folder_ / "empty"}).out, "empty: no runs"));
}

TEST_F(Runs, ADamagedLineOfALogIsNamed) {
  const std::string folder = trained("runs/damaged"), log = content(folder + "/log.jsonl");
  const auto lines = std::count(log.begin(), log.end(), '\n');
  ASSERT_GT(lines, 1);
  write(folder + "/log.jsonl", log + "{\"step\": x\n");
  const std::string place = folder + "/log.jsonl:" + std::to_string(lines + 1) + ":";
  const Finished listed = run({"runs", folder_ / "runs"});
  EXPECT_TRUE(holds(listed.err, place)) << listed.err;
  const Finished look = run({"inspect", folder, "--text", "line"});
  EXPECT_EQ(look.status, 2);
  EXPECT_TRUE(holds(look.err, place)) << look.err;
  // A line in front of more than is read at once; and an evaluation there is found.
  const std::string point = "{\"step\": 1, \"loss\": 1.5}\n";
  std::string many;
  int64_t points = 0;
  for (; many.size() < (size_t{5} << 19); ++points) many += point;
  for (const char* bad : {"{\"step\": x\n", "{\"loss\": 1}\n"}) {
    write(folder + "/log.jsonl", log + many + bad + many);
    const std::string there = folder + "/log.jsonl:" + std::to_string(lines + points + 1) + ":";
    const Finished found = run({"runs", folder_ / "runs"});
    EXPECT_TRUE(holds(found.err, there)) << found.err << there;
  }
  write(folder + "/log.jsonl", log + many);
  EXPECT_TRUE(holds(run({"runs", folder_ / "runs"}).out, "bits_per_character"));
}

TEST_F(Runs, TwoAreCompared) {
  const std::string a = trained("a"),
                    b = trained("b", {"--set", "train.optimiser.lr=0.01", "--set", "model.memory=[]"});
  const Finished table = run({"runs", a, b});
  EXPECT_EQ(table.status, 0) << table.err;
  for (const char* text : {"train.optimiser.lr", "0.01", "model.memory", "segment_cache", "valid.nll", "loss"})
    EXPECT_TRUE(holds(table.out, text)) << table.out;
  EXPECT_FALSE(holds(table.out, "model.backbone.dim"));
  fs::copy(a, folder_ / "c", fs::copy_options::recursive);
  write(folder_ / "c/log.jsonl", content(a + "/log.jsonl") + "{\"step\": 6, \"tokens\": 7654321, \"loss\": 1}\n");
  const std::string whole = run({"runs", folder_ / "c", a}).out;
  EXPECT_TRUE(holds(whole, " 7654321 ") && holds(whole, " -76")) << whole;
  const base::Node node = json(run({"runs", a, b, "--json"}).out);
  EXPECT_EQ(node.at("recipe").size(), 2u);
  EXPECT_EQ(node.at("a").at("folder").as_string(), a);
  for (const base::Node& value : node.at("last").items()) {
    if (value.at("name").as_string() != "valid.nll") continue;
    EXPECT_EQ(value.at("b"), node.at("b").at("last").at("valid.nll"));
  }
  EXPECT_TRUE(holds(run({"runs", a, a}).out, "The recipes do not differ."));
  EXPECT_TRUE(holds(run({"runs", a, text_}).err, "text.txt: expected the folder of a run"));
  EXPECT_EQ(run({"runs", a, b, a}).status, 2);
}

}  // namespace
}  // namespace mnemo::test
