#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "base/file_io.h"
#include "tests/support/command_line.h"
#include "weights/checkpoint.h"

// Resumed runs: settings that they keep or refuse.
namespace mnemo {
namespace {

using namespace test;
namespace fs = std::filesystem;

/// Every file of a folder with its content.
std::map<std::string, std::string> snapshot(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[entry.path().string()] = content(entry.path().string());
  return files;
}

class Resume : public CommandLine {
 protected:
  /// The arguments are refused with the words, and the run stays as it was.
  void expect_refused(const std::string& folder, const std::vector<std::string>& arguments, const std::string& words) {
    const auto before = snapshot(folder);
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << "expected: " << words << "\nfound: " << outcome.err;
    EXPECT_TRUE(snapshot(folder) == before) << words << ": the run has changed";
  }
  static void damage(const std::string& checkpoint) {
    fs::resize_file(checkpoint + "/optimiser.safetensors", fs::file_size(checkpoint + "/optimiser.safetensors") - 1);
  }
  /// A step takes seconds.
  std::vector<std::string> slow(const std::string& folder) {
    return {"train",     recipe_,
            "--data",    text_,
            "--out",     folder,
            "--threads", "1",
            "--set",     "model.segment_size=600",
            "--set",     "model.backbone.dim=768",
            "--set",     "model.backbone.ffn_dim=3072",
            "--set",     "model.backbone.num_layers=4"};
  }
};

TEST_F(Resume, ARefusedOneLeavesTheRunAsItWas) {
  const std::string folder = trained("run", {"--set", "train.steps=3"}), other = folder_ / "other.txt";
  write(other, content(text_) + "one line more, of the same letters\n");
  write(folder_ / "letters.txt", "ABC" + content(text_));
  const std::vector<std::string> go_on = {"train", "--resume", folder};
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--set", "model.backbone.dim=64"},
       "config.json: another model than that of the run: 'model.backbone.dim': expected 16, found 64"},
      {{"--set", "model.memory=[]"}, "another model than that of the run: 'model.memory'"},
      {{"--set", "model.segment_size=16"}, "'model.segment_size': expected 8, found 16"},
      {{"--data", other}, "data.safetensors: data position: it belongs to another training text"},
      {{"--data", folder_ / "letters.txt"},
       "the data of the recipe are not those of the run (data.train): another vocabulary.json"},
      {{"--set", "train.batch_size=2"}, "step-00000003/"},
      {{"--set", "train.seed=1"},
       "train.json: the run has train.seed = 0, and its data can only continue with the same value; found 1"},
      {{"--set", "train.ema_decay=0.9"}, "train.ema_decay is set"},
  };
  for (const auto& [more, words] : cases) {
    std::vector<std::string> arguments = go_on;
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(folder, arguments, words);
  }
  const Finished resumed = run({"train", "--resume", folder, "--set", "train.steps=6"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(content(folder + "/model/model.safetensors"), content(trained("whole") + "/model/model.safetensors"));
}

TEST_F(Resume, WithoutAGoodCheckpointIsRefused) {
  const std::string folder = trained("run", {"--set", "train.save_every=3"});
  const std::string anew = "to start again: mnemo train " + folder + "/recipe.toml --out OTHER";
  for (const char* step : {"/step-00000003", "/step-00000006"}) damage(folder + step);
  expect_refused(folder, {"train", "--resume", folder}, anew);
  expect_refused(folder, {"train", recipe_, "--data", text_, "--out", folder},
                 "without an intact checkpoint; remove it");
  for (const char* step : {"/step-00000003", "/step-00000006"}) fs::remove_all(folder + step);
  expect_refused(folder, {"train", "--resume", folder}, anew);
  expect_refused(folder, {"train", recipe_, "--data", text_, "--out", folder},
                 "without an intact checkpoint; remove it");
  const Finished begun = run({"train", folder + "/recipe.toml", "--out", folder_ / "anew"});
  EXPECT_EQ(begun.status, 0) << begun.err;
  EXPECT_EQ(content(folder_ / "anew/model/model.safetensors"), content(folder + "/model/model.safetensors"));
}

TEST_F(Resume, ADamagedNewestCheckpointCostsItsStepsAlone) {
  const std::string folder = trained("run", {"--set", "train.save_every=3"});
  const std::string model = content(folder + "/model/model.safetensors");
  damage(folder + "/step-00000006");
  const Finished resumed = run({"train", "--resume", folder});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(holds(resumed.err, "resuming after step 3")) << resumed.err;
  EXPECT_EQ(content(folder + "/model/model.safetensors"), model);
}

TEST_F(Resume, TheModelCardKeepsTheCommandThatStartedTheRun) {
  const std::string folder = trained("run", {"--set", "train.steps=3"});
  for (const char* steps : {"train.steps=5", "train.steps=6"}) {
    const Finished resumed = run({"train", "--resume", folder, "--set", steps});
    EXPECT_EQ(resumed.status, 0) << resumed.err;
  }
  const std::string card = content(folder + "/model/README.md");
  EXPECT_TRUE(holds(card,
                    "    mnemo train tiny.toml --data text.txt --set train.steps=3\n"
                    "    mnemo train --resume RUN --set train.steps=5\n"
                    "    mnemo train --resume RUN --set train.steps=6\n\n"))
      << card;
  const Finished finished = run({"train", "--resume", folder});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_TRUE(finished.out.starts_with(folder + ": finished at step 6, nothing left to train")) << finished.out;
  EXPECT_EQ(std::count(finished.out.begin(), finished.out.end(), '\n'), 1) << finished.out;
  EXPECT_EQ(finished.err, "") << "it has not trained";
}

TEST_F(Resume, OneProcessAtATimeWritesInAFolder) {
  const TemporaryFolder apart;
  const std::string folder = folder_ / "run";
  Process first(apart, {"train", recipe_, "--data", text_, "--out", folder, "--set", "train.steps=1000000", "--set",
                        "train.save_every=1"});
  ASSERT_TRUE(wait_for([&] { return weights::has_checkpoints(folder); }));
  const std::string who = "another process is writing in this folder (process " + std::to_string(first.pid());
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"train", "--resume", folder}, {"train", "--resume", folder, "--set", "model.backbone.dropout=0.1"}}) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(holds(outcome.err, who)) << outcome.err;
  }
  first.signal(SIGKILL);
  first.finish();
  EXPECT_TRUE(base::path_exists(folder + "/.lock"));
  const Finished resumed = run({"train", "--resume", folder, "--set", "train.steps=1"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(holds(resumed.err, "takes over from process")) << resumed.err;
  EXPECT_FALSE(base::path_exists(folder + "/.lock"));
}

TEST_F(Resume, AComparisonAndATrainingDoNotShareAFolder) {
  write(folder_ / "study.toml",
        "base = \"tiny.toml\"\n[train]\nsteps = 1\n[[study]]\nname = \"Text\"\ndata.train = \"text.txt\"\n"
        "[[study.variant]]\nname = \"one\"\n");
  const std::string training = trained("run", {"--set", "train.steps=1"}), compared = folder_ / "compared";
  const Finished refused = run({"compare", folder_ / "study.toml", "--out", training});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "already holds a training run; choose another --out")) << refused.err;
  EXPECT_FALSE(base::path_exists(training + "/runs"));
  EXPECT_EQ(run({"compare", folder_ / "study.toml", "--out", compared, "--jobs", "1"}).status, 0);
  for (const char* gone : {"/results.md", "/results.json"}) {
    fs::remove(compared + gone);
    const Finished outcome = run({"train", recipe_, "--data", text_, "--out", compared});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(holds(outcome.err, "already holds a comparison; choose another --out")) << outcome.err;
    EXPECT_FALSE(base::path_exists(compared + "/recipe.toml"));
  }
}

TEST_F(Resume, ASegmentThatNoStreamFillsIsRefused) {
  const Finished outcome = run(
      {"train", recipe_, "--data", text_, "--out", folder_ / "run", "--set", "model.segment_size=100000"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(holds(outcome.err,
                    "'model.segment_size': expected at most 619, the length of a stream (the 2476 training tokens"))
      << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "train.batch_size = 4 streams), found 100000")) << outcome.err;
  EXPECT_FALSE(base::path_exists(folder_ / "run"));
}

TEST_F(Resume, AStepThatTheMachineCannotHoldIsRefused) {
  std::string documents;
  for (int i = 0; i < 200; ++i) documents += "a short document\n\n";
  write(text_, documents);
  const Finished outcome = run({"train", recipe_, "--data", text_, "--out", folder_ / "run", "--set",
                                "data.document_separator=blank_line", "--set", "model.segment_size=1000000", "--set",
                                "train.batch_size=64", "--set", "model.backbone.num_layers=64"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(holds(outcome.err, "a step of 64 sequences of 1000000 tokens needs about")) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "and this machine has")) << outcome.err;
  EXPECT_FALSE(base::path_exists(folder_ / "run"));
}

TEST_F(Resume, MemoriesThatTheMachineCannotHoldAreRefused) {
  const auto with_steps = [&](const char* steps) {
    return run({"train", recipe_, "--data", text_, "--out", folder_ / steps, "-q", "--set",
                "model.memory=[{type=\"segment_cache\",mem_len=16777216}]", "--set", "model.backbone.dim=256", "--set",
                "train.batch_size=128", "--set", "train.eval_every=0", "--set", "train.steps=" + std::string(steps)});
  };
  // 128 sequences of 16,777,216 rows of 256 numbers; seen by so many steps, but not by two.
  const Finished outcome = with_steps("100000000");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(holds(outcome.err, "'model.memory'") && holds(outcome.err, "hold 2,201,170 MB once they are full"))
      << outcome.err;
  EXPECT_EQ(with_steps("2").status, 0);
}

TEST_F(Resume, SignalsAreAnsweredInTheMiddleOfAStep) {
  const std::string folder = folder_ / "run";
  Process process(folder_, slow(folder));
  ASSERT_TRUE(wait_for([&] { return base::path_exists(folder + "/log.jsonl"); }));
  process.signal(SIGTERM);
  const auto said = [&](const std::string& words) {
    return wait_for([&] { return holds(content(folder_ / "stderr.txt"), words); });
  };
  EXPECT_TRUE(said("stopping after this step; again to stop now"));
  // Signals closer than 200 ms count as one.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  process.signal(SIGTERM);
  const Finished outcome = process.finish();
  EXPECT_EQ(outcome.status, 128 + SIGTERM);
  EXPECT_TRUE(holds(outcome.err, "stopped at once; there is no checkpoint\n")) << outcome.err;
}

TEST_F(Resume, ALongSampleOfAComparisonIsStopped) {
  write(folder_ / "study.toml",
        "base = \"tiny.toml\"\n[train]\nsteps = 1\n[generate]\ntokens = 16777216\n[[study]]\nname = \"Text\"\n"
        "data.train = \"text.txt\"\n[[study.variant]]\nname = \"one\"\n");
  const std::string folder = folder_ / "compared", job = folder + "/runs/text-one-seed0";
  Process process(folder_, {"compare", folder_ / "study.toml", "--out", folder, "--jobs", "1"});
  ASSERT_TRUE(wait_for([&] { return base::path_exists(job + "/step-00000001/manifest.json"); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  process.signal(SIGTERM);
  Finished outcome;
  outcome = process.finish();
  EXPECT_EQ(outcome.status, 143) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "stopping 1 training")) << outcome.err;
  EXPECT_TRUE(base::path_exists(job + "/step-00000001/manifest.json")) << "the training is kept";
  EXPECT_FALSE(base::path_exists(job + "/result.json"));
}

TEST_F(Resume, AComparisonSaysHowItWasAskedFor) {
  write(folder_ / "study.toml",
        "base = \"tiny.toml\"\n[train]\nsteps = 1000000\n[[study]]\nname = \"Text\"\ndata.train = \"text.txt\"\n"
        "[[study.variant]]\nname = \"one\"\n");
  const std::string folder = folder_ / "compared";
  Process process(folder_, {"compare", folder_ / "study.toml", "--out", folder, "--jobs", "1", "--threads", "1"});
  ASSERT_TRUE(wait_for([&] { return base::path_exists(folder + "/runs/text-one-seed0/log.jsonl"); }));
  process.signal(SIGINT);
  const Finished outcome = process.finish();
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "--jobs 1 --threads 1")) << outcome.err;
}

}  // namespace
}  // namespace mnemo
