#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file_io.h"
#include "base/node.h"
#include "ops/cuda.h"
#include "tests/support/command_line.h"
#include "weights/safetensors.h"

// Runs the program itself on tiny models.
namespace mnemo {
namespace {

using namespace test;

#ifndef __SANITIZE_ADDRESS__  // there the program does not start itself again
TEST_F(CommandLine, ThreadsSpinBrieflyUnlessTheEnvironmentSaysHowLong) {
  const auto version = [&](const std::string& environment) {
    const std::string command = fmt::format("env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY {} '{}' --version > '{}'",
                                            environment, kBinary, folder_ / "version");
    EXPECT_EQ(std::system(command.c_str()), 0);
    return content(folder_ / "version");
  };
  EXPECT_TRUE(holds(version(""), ", GOMP_SPINCOUNT=1000,")) << version("");
  EXPECT_TRUE(holds(version("GOMP_SPINCOUNT=77"), ", GOMP_SPINCOUNT=77,"));
  EXPECT_FALSE(holds(version("OMP_WAIT_POLICY=passive"), "GOMP_SPINCOUNT"));
}
#endif

TEST_F(CommandLine, MistakesAreToldWithStatusTwo) {
  write(folder_ / "tiny.txt", "1\n2\n3\n4\n5\n");
  std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"train", "text", "-q", "--data", folder_ / "tiny.txt", "--set", "train.batch_size=1", "--set",
        "model.segment_size=2"},
       "the validation part has 1 token"},
      {{"trian"}, "unknown subcommand 'trian'; did you mean 'train'?"},
      {{}, "expected a subcommand"},
      {{"train", "--outt", "x"}, "unknown option '--outt'; did you mean '--out'?"},
      {{"train"}, "expected a RECIPE, or --resume DIR"},
      {{"generate", "x", "--tokens", "many"}, "generate: --tokens: expected a whole number, found 'many'"},
      {{"generate", "x", "--top-p", "much"}, "generate: --top-p: expected a number, found 'much'"},
      {{"train", folder_ / "none.toml"}, "none.toml"},
      {{"train", recipe_},
       "data.train: expected data of type \"text\" (your own text, for language modelling), found none; use --set "
       "data.train="},
      {{"train", recipe_, "--data", folder_ / "none.txt"},
       "none.txt: no such file or folder; use --set data.train=PATH, or train's --data PATH"},
      {{"train", "detection_bccd", "--variant", "RetinaNet/with GRC", "--data", folder_ / "none"},
       "none: no such file or folder; use --set data.train=PATH, or train's --data PATH"},
      {{"data", recipe_, "--set", "data.train=none.txt"}, "none.txt: no such file or folder; use --set"},
      {{"train", recipe_, "--data", text_, "--set", "train.stepz=3"}, "did you mean 'steps'?"},
      {{"train", recipe_, "--data", text_, "--set", "train.steps=few"}, "expected integer"},
      {{"train", recipe_, "--data", text_, "--set", "model.memory=[{type=\"grk\"}]"}, "did you mean 'grc'?"},
      {{"train", "--resume", folder_ / "none"}, "none: no such folder"},
      {{"train", recipe_, "--data", text_, "--set", "train.lr=1"}, "did you mean 'train.optimiser.lr'?"},
      {{"train", recipe_, "--data", text_, "--set", "model.memory=[{type=\"rmt\"}]"},
       "did you mean 'recurrent_tokens' (RMT"},
      {{"train", recipe_, "--data", text_, "--set", "train.clip_norm=0"}, "for none write \"unset\""},
      {{"train", recipe_, "--data", text_, "--set", "data.train =" + text_}, "expected --data or --set data.train"},
      {{"train", recipe_, "--batch-size", "8"}, "a key of the recipe is set with --set train.batch_size=VALUE"},
      {{"train", recipe_, text_}, "data are given as --data "},
      {{"generate", "run", "Once upon a time"}, "a text is given as --prompt 'Once upon a time'"},
      {{"eval", "gpt2"}, "`hf download gpt2 --local-dir models/gpt2`"},
      {{"train", recipe_, "--data", text_, "--set", "model.from=some/model"},
       "some/model: no such folder; Mnemo does not download models"},
      {{"train", "finetune_text", "--data", text_}, "'model.from': expected the folder of the model to start from"},
      {{"eval", folder_ / "none"}, "none: no such folder"},
      {{"eval", ""}, "eval: MODEL: expected a path or name, found ''"},
      {{"generate", text_}, "text.txt"},
      {{"inspect", folder_ / "none"},
       "no such file or folder; expected a model folder, a run's folder or a recipe (.toml)"},
      {{"data", folder_ / "none.txt"}, "no such file"},
      {{"compare", recipe_}, "has no [[study]]"},
      {{"compare", recipe_, "--device", "tpu"}, "--device: expected cpu, cuda or cuda:N"},
      {{"compare", recipe_, "--seeds", "0"}, "--seeds: expected 1 to 1000"},
      {{"compare", folder_ / "nosuch.toml"}, "nosuch.toml: no such file"},
      {{"score", folder_ / "nosuch"}, "nosuch: no such file"},
      {{"train", text_}, "expected a recipe (.toml or .json); data are given as --data "},
      {{"train", recipe_, "--data", text_, "--out", folder_ / "run", "--init", "nosuch"},
       "nosuch: no such folder; Mnemo does not download models"},
      {{"train", recipe_, "--data", text_, "--set", "model.rmt=4"},
       "'recurrent_tokens' is a type of 'model.memory' (RMT"},
      {{"train", recipe_, "--data", text_, "--set", "train.batch_size=400", "--set", "model.segment_size=64"},
       "'train.batch_size': expected at most "},
      {{"help", "rmt"}, "unknown subject 'rmt'; keys of a recipe: mnemo help recipe rmt"},
      {{"help", "recpe"}, "did you mean 'recipe'?"},
      {{"help", "presets", "--markdown"}, "help: --markdown goes with: mnemo help recipe"},
      {{"completion", "tcsh"}, "expected bash, zsh or fish"},
      {{"train", "txet", "--data", text_}, "did you mean 'text'?"},
      {{"finetune", "--model", folder_ / "none"}, "finetune: --model needs --data DIR"},
      {{"finetune", "--data", folder_ / "none"}, "finetune: --data needs --model MODEL"},
      {{"eval", folder_ / "none", "--precision", "int8", "--batch", "4"},
       "reads one stream in the model's own segments; leave --batch and --segment-size out"},
      {{"eval", folder_ / "none", "--device", "gpu"}, "--device: expected cpu, cuda or cuda:N, found 'gpu'"},
      {{"train", recipe_, "--device", "cuda:-1"}, "--device: expected cpu, cuda or cuda:N, found 'cuda:-1'"},
  };
  if (!ops::cuda::compiled()) {
    const std::string message = "--device cuda: this build has no CUDA: configure with -DMNEMO_CUDA=ON";
    for (const char* command : {"train", "eval", "generate"})
      cases.push_back({{command, folder_ / "none", "--device", "cuda"}, message});
  }
  for (const auto& [arguments, message] : cases) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << message << "\n" << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("mnemo: error: ")) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, message)) << "expected: " << message << "\nfound: " << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(CommandLine, OutputThatCannotBeWritten) {
  EXPECT_EQ(run_to("/dev/full", {"data", text_}).status, 1) << "a full disk is no wrong input";
  const Finished outcome = run({"train", recipe_, "--data", text_, "--out", text_ + "/inside"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(holds(outcome.err, "text.txt/inside")) << outcome.err;
}

TEST_F(CommandLine, DataDescribesTextsAndMakesSamples) {
  const base::Node text = json(run({"data", text_, "--json"}).out);
  EXPECT_EQ(text.at("unit").as_string(), "characters");
  const base::Node words = json(run({"data", text_, "--unit", "words", "--json"}).out);
  EXPECT_NE(words.at("vocabulary_size").as_int(), text.at("vocabulary_size").as_int());
  const base::Node copy = json(run({"data", "copy", "--count", "3", "--set", "data.num_symbols=4", "--json"}).out);
  EXPECT_EQ(copy.at("samples").size(), 3u);
  EXPECT_EQ(copy.at("length").as_int(), 12);
  EXPECT_EQ(json(run({"data", recipe_, "--set", "data.train=" + text_, "--json"}).out).at("unit").as_string(),
            "characters");
}

TEST_F(CommandLine, TrainingLeavesARunThatEvaluatesAndGenerates) {
  const std::string run_folder = trained("run");
  for (const char* name : {"recipe.toml", "log.jsonl", "model/config.json", "model/model.safetensors",
                           "model/vocabulary.json", "model/README.md"}) {
    EXPECT_TRUE(std::filesystem::exists(run_folder + "/" + name)) << name;
  }
  EXPECT_FALSE(holds(content(run_folder + "/model/README.md"), folder_.path()))
      << "the model card tells a path of this machine";

  const base::Node own = json(run({"eval", run_folder, "--json"}).out);
  const std::string log = content(run_folder + "/log.jsonl");
  const base::Node last = json(log.substr(log.rfind('\n', log.size() - 2) + 1));
  EXPECT_NEAR(own.at("bits_per_character").as_double(), last.at("valid").at("bits_per_character").as_double(), 0.05);
  const base::Node other = json(run({"eval", run_folder + "/model", "--data", text_, "--json"}).out);
  EXPECT_TRUE(std::isfinite(other.at("nll").as_double()));
  EXPECT_NEAR(other.at("bits_per_character").as_double(), other.at("nll").as_double() / std::log(2.0), 1e-9);
  for (const char* instead : {"zeros", "noise"}) {
    const base::Node without = json(run({"eval", run_folder, "--memory", instead, "--json"}).out);
    EXPECT_NE(without.at("nll").as_double(), own.at("nll").as_double()) << instead;
    EXPECT_EQ(without.at("predictions").as_int(), own.at("predictions").as_int()) << instead;
  }
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"--memory", "ones"}, "--memory: expected zeros or noise, found 'ones'"},
      {{"--memory", "zeros", "--precision", "int8"}, "--memory: the decoding engine keeps its own"}};
  for (const auto& [more, words] : wrong) {
    std::vector<std::string> arguments = {"eval", run_folder};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
  }

  const Finished stream = run(
      {"generate", run_folder, "--prompt", "line ", "--tokens", "20", "--seed", "5", "--quiet"});
  EXPECT_EQ(stream.status, 0) << stream.err;
  const base::Node whole = json(
      run({"generate", run_folder, "--prompt", "line ", "--tokens", "20", "--seed", "5", "--json"}).out);
  EXPECT_EQ(stream.out, "line " + whole.at("text").as_string());
  const base::Node else_seed = json(
      run({"generate", run_folder, "--prompt", "line ", "--tokens", "20", "--seed", "6", "--json"}).out);
  EXPECT_NE(else_seed.at("text").as_string(), whole.at("text").as_string());

  // A session that is saved and continued gives the same text as one run in one piece.
  const std::string session = folder_ / "session.safetensors";
  const Finished first = run(
      {"generate", run_folder, "--prompt", "line ", "--tokens", "11", "--seed", "5", "--save", session, "--quiet"});
  const Finished second = run(
      {"generate", run_folder, "--session", session, "--tokens", "9", "--seed", "5", "--quiet"});
  EXPECT_EQ(first.out + second.out, stream.out);

  const Finished nowhere = run({"generate", run_folder, "--tokens", "5", "--save", folder_ / "none/session"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_EQ(nowhere.out, "") << "a text although its session cannot be kept";
  EXPECT_TRUE(holds(nowhere.err, "none/session")) << nowhere.err;

  // Fewer bits: almost the same values.
  const double expected = json(run({"eval", run_folder, "--precision", "float32", "--json"}).out).at("nll").as_double();
  EXPECT_NEAR(expected, own.at("nll").as_double(), 1e-4);
  for (const char* precision : {"bf16", "int8", "w8a8", "int4", "int4_offset"}) {
    const Finished text = run({"generate", run_folder, "--tokens", "12", "--precision", precision, "--quiet"});
    EXPECT_EQ(text.status, 0) << text.err;
    const double nll = json(run({"eval", run_folder, "--precision", precision, "--json"}).out).at("nll").as_double();
    EXPECT_NEAR(nll, expected, 0.01 * expected) << precision;
    EXPECT_NE(nll, expected) << precision;
  }
}

TEST_F(CommandLine, EvalSaysThatTheDecodingEngineCannotRunAModel) {
  const std::string folder = trained("lsh", {"--set", "model.memory=[]", "--set", "model.backbone.attention=lsh"});
  for (const std::vector<std::string>& option :
       {std::vector<std::string>{"--kv-precision", "auto"}, {"--kv-precision", "int8"}, {"--precision", "float32"}}) {
    std::vector<std::string> command = {"eval", folder};
    command.insert(command.end(), option.begin(), option.end());
    const Finished refused = run(command);
    EXPECT_EQ(refused.status, 2) << option[0];
    EXPECT_TRUE(holds(refused.err, "eval: " + option[0]) && holds(refused.err, "attention 'lsh'")) << refused.err;
  }
}

TEST_F(CommandLine, HintsCanBePastedIntoAShell) {
  const std::string folder = folder_ / "my run", quoted = "'" + folder;
  const Finished done = run({"train", recipe_, "--data", text_, "--out", folder});
  EXPECT_TRUE(holds(done.out, "try: mnemo generate " + quoted + "/model' --prompt")) << done.out;
  EXPECT_TRUE(holds(run({"train", recipe_, "--data", text_, "--out", folder}).err,
                    "resume it: mnemo train --resume " + quoted + "', or choose"));
  const Finished other = run({"train", "--resume", folder, "--set", "model.backbone.dim=32"});
  EXPECT_TRUE(holds(other.err, "--init " + quoted + "'")) << other.err;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("step-")) std::filesystem::remove_all(entry.path());
  }
  EXPECT_TRUE(holds(run({"train", "--resume", folder}).err, "mnemo train " + quoted + "/recipe.toml' --out OTHER"));
  write(folder_ / "two studies.toml",
        "base = \"tiny.toml\"\n[[study]]\nname = \"Text\"\ndata.train = \"text.txt\"\n[[study.variant]]\nname = "
        "\"none\"\n");
  const std::string studies = folder_ / "two studies.toml";
  EXPECT_TRUE(holds(run({"inspect", studies}).out, "mnemo inspect '" + studies + "' --variant VARIANT\n"));
}

TEST_F(CommandLine, ALineEndPartsTheTextFromTheSummary) {
  const std::string model = trained("run") + "/model", program = std::string("'") + kBinary + "' generate '" + model;
  ASSERT_EQ(std::system((program + "' --prompt line -n 1 > '" + (folder_ / "both.txt") + "' 2>&1").c_str()), 0);
  const std::string both = content(folder_ / "both.txt");
  EXPECT_TRUE(holds(both, "\n1 token, ")) << both;
  EXPECT_EQ(run({"generate", model, "--prompt", "line", "-n", "1"}).out.size(), 5u) << "alone, the text is as it is";
}

TEST_F(CommandLine, GenerateEndsQuietlyWhenItsReaderGoes) {
  const std::string run_folder = trained("run");
  const std::string command = std::string("bash -c '") + kBinary + " generate " + run_folder +
                              " --tokens 100000 --quiet 2>\"" + (folder_ / "err.txt") +
                              "\" | head -c 20 >/dev/null; exit ${PIPESTATUS[0]}'";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 0);
  EXPECT_EQ(content(folder_ / "err.txt"), "");
}

TEST_F(CommandLine, ResumedTrainingIsTheUninterruptedOne) {
  const std::string whole = trained("whole");
  const std::string half = trained("half", {"--set", "train.steps=3"});
  const Finished again = run({"train", recipe_, "--data", text_, "--out", half});
  EXPECT_EQ(again.status, 2);
  EXPECT_TRUE(holds(again.err, "mnemo train --resume " + half)) << again.err;
  const Finished resumed = run({"train", "--resume", half, "--set", "train.steps=6", "--json"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(json(resumed.out).at("steps").as_int(), 6);
  EXPECT_EQ(content(whole + "/model/model.safetensors"), content(half + "/model/model.safetensors"));
}

TEST_F(CommandLine, ASoftmaxModelIsConvertedAndTrainedOn) {
  const std::vector<std::string> softmax = {"--set", "model.memory=[]", "--set",
                                            "model.backbone.attention={type=\"softmax\"}"};
  const std::vector<std::string> t2r = {
      "--set", "model.memory=[]", "--set",
      "model.backbone.attention={type=\"linear\",feature_map=\"t2r\",num_features=4}"};
  const std::string run_folder = trained("softmax", softmax), made = folder_ / "t2r", relative = trained("relative");
  const base::Node shown = json(
      run({"convert", run_folder, "--to", "t2r", "--features", "4", "--out", folder_ / "shown", "--json"}).out);
  EXPECT_EQ(shown.at("fresh").as_int(), 72);
  EXPECT_EQ(shown.at("model").as_string(), folder_ / "shown");
  const Finished convert = run({"convert", run_folder, "--to", "t2r", "--features", "4", "--out", made});
  EXPECT_EQ(convert.status, 0) << convert.err;
  EXPECT_TRUE(holds(convert.out, "72 of them fresh")) << convert.out;  // 2 heads of 4 by 8 and 4
  EXPECT_EQ(convert.err, "model: " + run_folder + "/model\n");
  EXPECT_EQ(run({"eval", made, "--data", text_}).status, 0);
  EXPECT_EQ(run({"generate", made, "--prompt", "line", "--tokens", "5"}).status, 0);
  std::vector<std::string> on = t2r;
  on.insert(on.end(), {"--init", made, "--set", "train.optimiser.lr=1e-12", "--set", "model.backbone.dropout=0.0"});
  const std::string further = trained("further", on);
  const auto evaluation = [&](const std::string& folder) {
    return json(run({"eval", folder, "--data", text_, "--json"}).out).at("bits_per_character").as_double();
  };
  EXPECT_NEAR(evaluation(further), evaluation(made), 1e-4) << "training did not start from the converted weights";
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"convert", run_folder, "--to", "rfa", "--out", made},
       "convert: --to: unknown kind 'rfa'; known: 't2r', 'average', 'source_encoder', 'mnemo'"},
      {{"convert", run_folder, "--to", "abc", "--out", made},
       "convert: --to: 'abc' is an attention; write --attention abc, with its options"},
      {{"convert", relative, "--to", "t2r", "--out", folder_ / "x"}, "found backbone.attention.type = \"relative\""},
      {{"convert", run_folder, "--to", "t2r", "--out", folder_ / "x", "--features", "0"}, "--features"},
      {{"train", recipe_, "--data", text_, "--out", folder_ / "y", "--init", made}, "attn.feature.weight"},
      {{"train", recipe_, "--data", recipe_, "--out", folder_ / "z", "--init", relative}, "vocabulary"},
      {{"train", "--resume", run_folder, "--init", made}, "--init"}};
  for (const auto& [arguments, words] : mistakes) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
  }
}

TEST_F(CommandLine, AFinishedRunStaysWhatItIs) {
  const std::string folder = trained("finished"), recipe = content(folder + "/recipe.toml");
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"--set", "train.optimiser.lr=123.0"}, "the run is finished, at step"},
      {{"--set", "train.steps=1"}, "expected train.steps above that, or none changed, found 'train.steps'"},
      {{"--set", "init=elsewhere"}, "drop --set init"}};
  for (const auto& [more, words] : mistakes) {
    std::vector<std::string> arguments = {"train", "--resume", folder};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
  }
  EXPECT_EQ(content(folder + "/recipe.toml"), recipe);
  EXPECT_EQ(run({"train", "--resume", folder}).status, 0);
  for (const auto& [option, key] : {std::pair("--data", "data.train"), std::pair("--init", "init")}) {
    const Finished outcome = run(
        {"train", recipe_, option, text_, "--set", std::string(key) + "=x", "--out", folder_ / "twice"});
    EXPECT_EQ(outcome.status, 2) << option;
    EXPECT_TRUE(holds(outcome.err, std::string("expected ") + option + " or --set " + key)) << outcome.err;
  }
  const Finished same = run({"inspect", folder, "--text", "ab", "--svg", folder_ / "o", "--png", folder_ / "o"});
  EXPECT_EQ(same.status, 2);
  EXPECT_TRUE(holds(same.err, "expected different files for --svg, --png and --html")) << same.err;
}

TEST_F(CommandLine, LastCheckpointsAreAveraged) {
  const std::string folder = trained("averaged", {"--set", "train.save_every=1", "--set", "train.keep_last=0"}),
                    made = folder_ / "average";
  const Finished convert = run({"convert", folder, "--to", "average", "--last", "3", "--out", made});
  EXPECT_EQ(convert.status, 0) << convert.err;
  std::vector<std::string> steps;
  for (const std::string& name : base::list_folder(folder))
    if (name.starts_with("step-")) steps.push_back(folder + "/" + name + "/model.safetensors");
  std::sort(steps.rbegin(), steps.rend());
  ASSERT_GT(steps.size(), 3u) << "or the oldest would not be left out";
  const weights::TensorFile mean = weights::read_safetensors(made + "/model.safetensors");
  for (const auto& [name, tensor] : mean.tensors) {
    at::Tensor sum = at::zeros_like(tensor, at::kDouble);
    for (size_t i = 0; i < 3; ++i) sum += weights::read_safetensors(steps[i]).at(name, steps[i]);
    EXPECT_TRUE(at::equal(tensor, (sum / 3.0).to(tensor.scalar_type()))) << name;
  }
  EXPECT_EQ(run({"eval", made, "--data", text_}).status, 0);
  const Finished again = run({"convert", folder, "--to", "average", "--last", "3", "--out", made, "--json"});
  EXPECT_FALSE(json(again.out).contains("first_loss")) << "no tokens have been run";
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"convert", folder, "--to", "average", "--last", "0", "--out", made}, "--last: expected at least 1"},
      {{"convert", folder, "--to", "average", "--last", "999", "--out", made}, "expected 999 good checkpoints"},
      {{"convert", folder, "--to", "mnemo", "--last", "2", "--out", made}, "--last goes with --to average"},
      {{"convert", folder, "--to", "average", "--last", "2", "--out", folder + "/model"}, "which would be replaced"},
      {{"convert", folder, "--to", "average", "--checkpoint", "best", "--out", made},
       "use --last instead of --checkpoint"}};
  for (const auto& [arguments, words] : mistakes) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
  }
}

TEST_F(CommandLine, SignalsStopTrainingAfterSaving) {
  for (const auto& [number, status] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    const std::string folder = folder_ / ("run" + std::to_string(number));
    Process process(folder_, {"train", recipe_, "--data", text_, "--out", folder, "--set", "train.steps=1000000"});
    ASSERT_TRUE(wait_for([&] {
      return holds(content(folder + "/log.jsonl"), "\"step\": 3") ||
             holds(content(folder + "/log.jsonl"), "\"step\":3");
    }));
    process.signal(number);
    const Finished outcome = process.finish();
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, "mnemo train --resume " + folder)) << outcome.err;
    const int64_t done = std::stoll(outcome.err.substr(outcome.err.find("stopped after step ") + 19));
    const Finished resumed = run(
        {"train", "--resume", folder, "--set", "train.steps=" + std::to_string(done + 2), "--json"});
    EXPECT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_EQ(json(resumed.out).at("steps").as_int(), done + 2);
  }
}

TEST_F(CommandLine, ASignalLeavesNoHalfOfAPreparedSet) {
  const std::string out = folder_ / "prepared/set";
  const auto written = [&] {
    std::error_code none;
    const std::filesystem::directory_iterator folder(folder_ / "prepared", none);
    return std::distance(begin(folder), end(folder));
  };
  for (const auto& [number, status] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    Process process(folder_, {"data", "prepare", "listops", "--out", out, "--set", "data.train_samples=1000000"});
    ASSERT_TRUE(wait_for([&] { return written() > 0; }));
    process.signal(number);
    const Finished outcome = process.finish();
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, out + ": stopped; nothing was written")) << outcome.err;
    EXPECT_EQ(written(), 0);
  }
}

TEST_F(CommandLine, NamesOfRunsStayInTheirRow) {
  trained("runs/a\nb\033[31m", {"--set", "train.steps=1"});
  const Finished listed = run({"runs", folder_ / "runs"});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_TRUE(holds(listed.out, "a\\x0ab\\x1b[31m")) << listed.out;
  EXPECT_EQ(listed.out.find('\033'), std::string::npos);
}

TEST_F(CommandLine, SegmentsThatStandAloneDoSoOutsideTrainingToo) {
  write(folder_ / "held_out.txt", content(text_).substr(0, 700));
  // With a table that has one position per token of a segment, nothing can continue past a segment.
  const std::string folder = trained(
      "alone", {"--set", "data.reset=segments", "--set", "data.valid=" + (folder_ / "held_out.txt"), "--set",
                "model.memory=[]", "--set", "train.eval_context=3", "--set",
                "model.backbone.attention={type=\"abc\", num_slots=4, control={type=\"linformer\", max_len=8}}"});
  const auto nll = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "eval");
    arguments.push_back("--json");
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json(outcome.out).at("nll").as_double();
  };
  const std::string held_out = folder_ / "held_out.txt";
  const double own = nll({folder});  // with the context with which the run evaluated
  EXPECT_NE(nll({folder, "--context", "0"}), own);
  EXPECT_NEAR(nll({folder, "--data", held_out}), own, 1e-9);
  EXPECT_NEAR(nll({folder + "/model", "--data", held_out}), own, 1e-9);
  const Finished carried = run({"eval", folder, "--data", held_out, "--reset", "documents"});
  EXPECT_EQ(carried.status, 2);
  EXPECT_TRUE(holds(carried.err, "takes sequences of at most 8 tokens")) << carried.err;
  EXPECT_TRUE(
      holds(run({"eval", folder, "--reset", "never"}).err, "--reset: expected documents or segments, found 'never'"));
  const Finished text = run({"generate", folder, "--prompt", "line 16 of a small text", "--tokens", "40", "--quiet"});
  EXPECT_EQ(text.status, 0) << text.err;
  const base::Node seen = json(run({"inspect", folder, "--text", "line 16 of a small text", "--json"}).out);
  EXPECT_EQ(seen.at("attention").at("num_segments").as_int(), 3);
}

TEST_F(CommandLine, TheDecodingEngineForgetsAtSegmentsToo) {
  const std::string folder = trained("alone", {"--set", "data.reset=segments"});
  const base::Node model = json(run({"eval", folder, "--json"}).out),
                   engine = json(run({"eval", folder, "--precision", "float32", "--json"}).out);
  EXPECT_NEAR(engine.at("nll").as_double(), model.at("nll").as_double(), 1e-4);
  EXPECT_NE(json(run({"eval", folder, "--reset", "documents", "--json"}).out).at("nll").as_double(),
            model.at("nll").as_double());
}

}  // namespace
}  // namespace mnemo
