#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "base/file_io.h"
#include "infer/text_session.h"
#include "mnemo.h"
#include "tests/support/command_line.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"

// Runs without a model, checkpoints, numbers that are not finite, models that write no text, and where results go.
namespace mnemo {
namespace {

using namespace test;
namespace fs = std::filesystem;

class RunUse : public CommandLine {
 protected:
  /// Stopped by a kill, as it seems: checkpoints 3 and 6, of which 3 is the best, and no model.
  std::string interrupted(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"--set", "train.save_every=3"};
    all.insert(all.end(), more.begin(), more.end());
    const std::string folder = trained(name, all);
    fs::rename(folder + "/model", folder_ / (name + "-model"));
    return folder;
  }
  std::string written(const std::string& model, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"generate", model, "--tokens", "30", "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  }
};

TEST_F(RunUse, ARunWithoutAModelIsUsedByItsCheckpoints) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--set", "train.ema_decay=0.5"}}) {
    const std::string name = more.empty() ? "run" : "averaged", folder = interrupted(name, more);
    const std::string model = folder_ / (name + "-model"), expected = written(model);
    EXPECT_EQ(written(folder, {"--checkpoint", "latest"}), expected);
    EXPECT_EQ(written(folder, {"--checkpoint", "6"}), expected);
    EXPECT_EQ(written(folder + "/step-00000006"), expected);
    const std::string third = written(folder + "/step-00000003");
    EXPECT_NE(third, expected);
    EXPECT_EQ(written(folder, {"--checkpoint", "3"}), third);
    EXPECT_EQ(load(folder, {.checkpoint = "latest"}).generate("\n", {.max_tokens = 30}), expected.substr(1));
  }
}

TEST_F(RunUse, EveryCommandTakesACheckpointAndSaysWhich) {
  const std::string folder = interrupted("run");
  const Finished best = run({"eval", folder});
  EXPECT_EQ(best.status, 0) << best.err;
  const bool third = holds(best.err, "step-00000003, the best checkpoint; the run has no model yet");
  EXPECT_TRUE(third || holds(best.err, "step-00000006, the best checkpoint")) << best.err;
  const Finished latest = run({"eval", folder, "--checkpoint", "latest"});
  EXPECT_TRUE(holds(latest.err, "model: " + folder + "/step-00000006, of step 6")) << latest.err;
  EXPECT_EQ(json(run({"eval", folder + "/step-00000006", "--json"}).out).at("nll").as_double(),
            json(run({"eval", folder, "--checkpoint", "6", "--json"}).out).at("nll").as_double());
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"inspect", folder},
                                             {"inspect", folder, "--sample", "0"},
                                             {"inspect", folder, "--checkpoint", "3"},
                                             {"inspect", folder + "/step-00000003"}}) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(holds(outcome.out, "layer")) << outcome.out;
  }
  const std::string made = folder_ / "made";
  EXPECT_EQ(run({"convert", folder, "--checkpoint", "latest", "--to", "mnemo", "--out", made}).status, 0);
  EXPECT_EQ(base::list_folder(made), base::list_folder(folder_ / "run-model"));
  EXPECT_EQ(content(made + "/model.safetensors"), content(folder_ / "run-model/model.safetensors"));

  const std::string whole = folder_ / "run-model";
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"generate", folder, "--checkpoint", "4"}, "no checkpoint of step 4; expected one of 3, 6"},
      {{"generate", folder, "--checkpoint", "last"}, "--checkpoint: expected latest, best or a step, found 'last'"},
      {{"generate", whole, "--checkpoint", "best"}, "--checkpoint chooses from a run; this is a model folder"},
      {{"eval", folder + "/step-00000003", "--checkpoint", "best"}, "this is a checkpoint"},
      {{"inspect", recipe_, "--checkpoint", "best"}, "--checkpoint goes with a run"},
      {{"generate", folder_ / "none", "--checkpoint", "best"}, "has no good checkpoint"}};
  for (const auto& [arguments, words] : wrong) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
  }
  // A damaged checkpoint is refused by name, and passed over in a run.
  fs::resize_file(folder + "/step-00000006/state.safetensors", 10);
  EXPECT_EQ(run({"generate", folder + "/step-00000006", "-q"}).status, 2);
  EXPECT_EQ(written(folder, {"--checkpoint", "latest"}), written(folder + "/step-00000003"));
  fs::rename(folder_ / "run-model", folder + "/model");
  EXPECT_TRUE(holds(run({"eval", folder}).err, "model: " + folder + "/model\n"));
}

TEST_F(RunUse, ATrainingInProgressIsSampledFrom) {
  const TemporaryFolder apart;
  const std::string folder = folder_ / "run";
  Process training(apart, {"train", recipe_, "--data", text_, "--out", folder, "--set", "train.steps=1000000", "--set",
                           "train.save_every=1", "--set", "train.keep_last=1", "--set", "train.eval_every=0"});
  ASSERT_TRUE(wait_for([&] { return weights::has_checkpoints(folder); }));
  for (int i = 0; i < 5; ++i) {
    const Finished outcome = run({"generate", folder, "--checkpoint", "latest", "--tokens", "5"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
  training.signal(SIGINT);
  EXPECT_EQ(training.finish().status, 130);
}

TEST_F(RunUse, WeightsThatAreNotFiniteAreFoundByName) {
  const std::string model = trained("run") + "/model", weights = model + "/model.safetensors";
  weights::TensorFile file = weights::read_safetensors(weights);
  for (auto& [name, tensor] : file.tensors)
    if (name == "backbone.layers.0.attn.q.weight") tensor[0][0] = NAN;
  weights::write_safetensors(weights, file.tensors, file.metadata);
  for (const char* command : {"eval", "generate", "inspect"}) {
    const Finished outcome = run({command, model + "/.."});
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_EQ(outcome.out, "") << command;
    EXPECT_TRUE(holds(outcome.err, "model.safetensors") &&
                holds(outcome.err, "'backbone.layers.0.attn.q.weight' expected finite numbers"))
        << outcome.err;
  }
}

TEST_F(RunUse, WhatGoesByHeldOutDataNeedsSome) {
  for (const std::string rule : {"patience", "stop_at", "schedule"}) {
    const Finished training = run({"train", recipe_, "--data", text_, "--out", folder_ / "none", "--quiet", "--set",
                                   "data.valid_fraction=0", "--set", "train.eval_every=1", "--set",
                                   "train." + rule + (rule == "schedule" ? "=plateau" : "=1")});
    EXPECT_EQ(training.status, 2) << rule;
    EXPECT_TRUE(holds(training.err, "'train." + rule + "' goes by held-out data")) << training.err;
  }
}

TEST_F(RunUse, NothingIsLeftOfAFinishedRunWithoutHeldOutData) {
  const std::string folder = trained("run", {"--set", "data.valid_fraction=0", "--set", "train.tensorboard=true"});
  const std::string log = content(folder + "/log.jsonl");
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  const auto before = files();
  const Finished again = run({"train", "--resume", folder});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(files(), before);
  EXPECT_EQ(content(folder + "/log.jsonl"), log);
}

TEST_F(RunUse, ResultsThatAreNotFiniteHaveStatusOne) {
  const Finished training = run({"train", recipe_, "--data", text_, "--out", folder_ / "diverged", "--quiet", "--set",
                                 "train.optimiser.lr=1e30"});
  EXPECT_EQ(training.status, 1) << training.err;
  EXPECT_TRUE(holds(training.err, "training: step 2: the loss is nan at learning rate 1e+30")) << training.err;
  // Weights that are not finite are not written, not even by the last step.
  const Finished last = run({"train", recipe_, "--data", text_, "--out", folder_ / "last", "--quiet", "--set",
                             "train.optimiser.lr=1e60", "--set", "train.steps=1"});
  EXPECT_EQ(last.status, 1) << last.err;
  EXPECT_TRUE(holds(last.err, "is not finite after the update, so it is not saved")) << last.err;
  for (const char* made : {"/model", "/step-00000001"})
    EXPECT_FALSE(std::filesystem::exists(folder_ / (std::string("last") + made))) << made;
  const std::string model = trained("run") + "/model", weights = model + "/model.safetensors";
  weights::TensorFile file = weights::read_safetensors(weights);
  for (auto& [name, tensor] : file.tensors) {
    if (tensor.is_floating_point()) tensor.fill_(3e38);
  }
  weights::write_safetensors(weights, file.tensors, file.metadata);
  for (const char* command : {"eval", "generate"}) {
    const Finished outcome = run({command, model + "/.."});
    EXPECT_EQ(outcome.status, 1) << command << outcome.err;
    EXPECT_EQ(outcome.out, "") << command;
    EXPECT_TRUE(holds(outcome.err, "finite")) << outcome.err;
  }
  const Finished look = run({"inspect", model, "--text", "line"});
  EXPECT_EQ(look.status, 1) << look.err;
  EXPECT_TRUE(holds(look.err, "the attention weights of layer 0 are not finite")) << look.err;
  EXPECT_EQ(look.out, "");
}

TEST_F(RunUse, WhatTheVocabularyLacksIsCountedOrRefused) {
  const std::string model = trained("run") + "/model", other = folder_ / "other.txt";
  write(other, "line \xD0\xBC\xD0\xB8\xD1\x80\n");
  const std::string counted = ": 3 of 9 characters are not in the model's vocabulary";
  const Finished found = run({"eval", model, "--data", other, "--json"});
  EXPECT_EQ(found.status, 0);
  EXPECT_TRUE(holds(found.err, "warning: " + other + counted + " and are read as <unk>\n")) << found.err;
  EXPECT_EQ(json(found.out).at("unknown").as_int(), 3);
  const Finished prompted = run({"generate", model, "--prompt", content(other), "-n", "5"});
  EXPECT_EQ(prompted.status, 0);
  EXPECT_TRUE(holds(prompted.err, "warning: prompt" + counted)) << prompted.err;
  EXPECT_TRUE(holds(run({"inspect", model, "--text", content(other)}).err, "warning: inspect: --text" + counted));
  const std::vector<std::string> refused[] = {{"eval", model, "--data", other, "--strict"},
                                              {"generate", model, "--prompt", content(other), "--strict"}};
  for (const auto& arguments : refused) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(holds(outcome.err, "error: ") && holds(outcome.err, counted + "\n")) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(run({"eval", model, "--strict"}).status, 0) << "all of its own text is known";
  const Finished training = run({"train", recipe_, "--data", text_, "--out", folder_ / "held", "--set",
                                 "data.valid=" + other, "--set", "train.steps=1"});
  EXPECT_EQ(training.status, 0);
  EXPECT_TRUE(holds(training.err, "warning: " + other + counted)) << training.err;
}

TEST_F(RunUse, ASessionGoesOnWithItsOwnSampling) {
  const std::string model = trained("run") + "/model", saved = folder_ / "session";
  ASSERT_EQ(run({"generate", model, "-n", "4", "--temperature", "0", "--seed", "7", "--save", saved}).status, 0);
  const auto go_on = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"generate", model, "--session", saved, "-n", "20", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  const Finished same = go_on({});
  const base::Node sampling = json(same.out).at("sampling");
  EXPECT_EQ(sampling.at("temperature").as_double(), 0.0);
  EXPECT_EQ(sampling.at("seed").as_int(), 7);
  EXPECT_FALSE(holds(same.err, "sampling")) << same.err;
  EXPECT_EQ(json(go_on({"--temperature", "0"}).out).at("text"), json(same.out).at("text"));
  const Finished other = go_on({"--temperature", "0.5", "--top-k", "3"});
  EXPECT_TRUE(holds(other.err, "sampling of the session changes: temperature 0.0 -> 0.5, top_k 0 -> 3\n")) << other.err;
  EXPECT_EQ(json(other.out).at("sampling").at("seed").as_int(), 7);
  EXPECT_EQ(go_on({"--top-k", "3"}).status, 2) << "has no effect at temperature 0";
  EXPECT_EQ(load(model).resume_text(saved).session().sampling().seed, 7);
}

TEST_F(RunUse, NumbersAreReadAsInARecipe) {
  const std::string model = trained("run") + "/model", huge = "99999999999999999999";
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"generate", model, "-n", huge}, "generate: --tokens: expected a whole number of 64 bits, found '" + huge + "'"},
      {{"generate", model, "--seed", huge}, "generate: --seed: expected a whole number of 64 bits"},
      {{"generate", model, "-n", "0"}, "tokens': expected 1 to 16777216, found integer 0"},
      {{"generate", model, "-n", "16777217"}, "tokens': expected 1 to 16777216, found integer 16777217"},
      {{"generate", model, "--threads", "0"}, "generate: --threads: expected 1 to 1024, found 0"},
      {{"generate", model, "--temperature", "inf"}, "generate: --temperature: expected a number, found 'inf'"},
      {{"generate", model, "--top-p", "1e999"}, "generate: --top-p: expected a number"},
      {{"data", "copy", "--count", "1.5"}, "data: --count: expected a whole number, found '1.5'"},
      {{"train", recipe_, "--data", text_, "--set", "train.steps=" + huge}, "does not fit in 64 bits"},
      {{"train", recipe_, "--data", text_, "--out", ""}, "train: --out: expected a path, found ''"},
      {{"compare", recipe_, "--out", ""}, "compare: --out: expected a path, found ''"},
      {{"generate", model, "--json=perhaps"}, "generate: --json: expected no value, found 'perhaps'"}};
  for (const auto& [arguments, words] : wrong) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(run({"generate", model, "-n", "1_0", "--seed", "3", "-q"}).status, 0);
}

TEST_F(RunUse, OutputsReplaceNoDeviceNoPipeAndNoLink) {
  const std::string model = trained("run") + "/model", link = folder_ / "link", pipe = folder_ / "pipe";
  fs::create_symlink("/dev/null", link);
  EXPECT_EQ(run({"generate", model, "--tokens", "2", "-q", "--save", link}).status, 0);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = content(pipe); });
  EXPECT_EQ(run({"generate", model, "--tokens", "2", "-q", "--save", pipe}).status, 0);
  reader.join();
  write(folder_ / "session", read);
  EXPECT_EQ(run({"generate", model, "--tokens", "2", "-q", "--session", folder_ / "session"}).status, 0);
  EXPECT_TRUE(fs::is_fifo(pipe));
  fs::create_symlink("there.svg", folder_ / "picture");
  EXPECT_EQ(run({"inspect", model, "--svg", folder_ / "picture", "-q"}).status, 0);
  EXPECT_TRUE(fs::is_symlink(folder_ / "picture"));
  EXPECT_TRUE(content(folder_ / "there.svg").starts_with("<svg"));
}

TEST_F(RunUse, AModelThatSeesAheadIsNotToldToWrite) {
  const std::string folder = folder_ / "run", notice = "its perplexity is not that of a language model";
  const Finished done = run({"train", recipe_, "--data", text_, "--out", folder, "--set",
                             "model.memory=[{ type = \"grc\", cache_len = 4, sees_segment = true, attend = "
                             "\"sample\", eval_read = \"updated\" }]"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_FALSE(holds(done.out, "mnemo generate")) << done.out;
  EXPECT_TRUE(holds(done.err, notice)) << done.err;
  const std::string card = content(folder + "/model/README.md");
  EXPECT_TRUE(holds(card, notice)) << card;
  EXPECT_FALSE(holds(card, "mnemo generate")) << card;
  const Finished measured = run({"eval", folder});
  EXPECT_EQ(measured.status, 0) << measured.err;
  EXPECT_TRUE(holds(measured.err, notice)) << measured.err;
  const Finished shown = run({"inspect", folder});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_TRUE(holds(shown.out, notice)) << shown.out;
  EXPECT_EQ(run({"generate", folder, "--prompt", "line"}).status, 2);
  const Finished samples = run({"train", recipe_, "--data", text_, "--out", folder_ / "samples", "--set",
                                "model.memory=[{ type = \"grc\", cache_len = 4, sees_segment = true, eval_read = "
                                "\"updated\" }]",
                                "--set", "generate.sample_every=2"});
  EXPECT_EQ(samples.status, 2);
  EXPECT_TRUE(holds(samples.err, "'generate.sample_every'")) << samples.err;

  // Seen ahead in training alone: what it has learned reads and writes like any language model.
  const std::string printed = folder_ / "printed";
  const Finished trained = run({"train", recipe_, "--data", text_, "--out", printed, "--set",
                                "model.memory=[{ type = \"grc\", cache_len = 4, sees_segment = true }]"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_FALSE(holds(trained.err, notice)) << trained.err;
  const std::vector<std::string> write = {"generate", printed, "--prompt", "line", "--tokens", "5"};
  const Finished text = run(write);
  ASSERT_EQ(text.status, 0) << text.err;
  std::vector<std::string> engine = write;
  engine.insert(engine.end(), {"--precision", "float32"});
  EXPECT_EQ(run(engine).out, text.out);
}

}  // namespace
}  // namespace mnemo
