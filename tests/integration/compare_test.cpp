#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/node.h"
#include "tests/support/command_line.h"

// Runs `mnemo compare` on tiny models.
namespace mnemo {
namespace {

using namespace test;

const char* kStudies = R"(
base = "tiny.toml"
name = "tiny <comparison>"
[[study]]
name = "Text"
data.train = "text.txt"
generate = { prompt = "line ", tokens = 10 }
[[study.variant]]
name = "no memory"
model.memory = []
[[study.variant]]
name = "GRC & more"
model.memory = [{ type = "grc", cache_len = 4, lifetime = "sequence" }]
[[study]]
name = "Copy"
data = { type = "algorithmic", num_symbols = 4 }
model.segment_size = 4
train.eval_samples = 8
[[study.variant]]
name = "no memory"
model.memory = []
)";

TEST_F(CommandLine, CompareGivesTablesAndAReport) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  const std::vector<std::string> command = {
      "compare", folder_ / "studies.toml", "--out", out, "--seeds", "2", "--jobs", "2", "--json"};
  const Finished outcome = run(command);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, base::to_json(json(outcome.out)) + "\n");
  const base::Node results = json(content(out + "/results.json"));
  EXPECT_EQ(results.at("studies").size(), 2u);
  for (const base::Node& study : results.at("studies").items()) {
    for (const base::Node& variant : study.at("variants").items()) {
      ASSERT_EQ(variant.at("runs").size(), 2u);
      for (const base::Node& one : variant.at("runs").items()) {
        EXPECT_EQ(one.at("error").as_string(), "");
        EXPECT_TRUE(std::isfinite(one.at("value").as_double()));
        EXPECT_GT(one.at("train_tokens_per_second").as_double(), 0);
        EXPECT_GT(one.at("peak_memory").as_int(), 1 << 20);
        EXPECT_EQ(one.at("curve").size(), 6u);
        EXPECT_TRUE(one.at("masks").items()[0].at("svg").as_string().starts_with("<svg"));
        EXPECT_TRUE(std::filesystem::exists(out + "/" + one.at("page").as_string())) << one.at("page").as_string();
      }
    }
  }
  const base::Node& grc = results.at("studies").items()[0].at("variants").items()[1].at("runs").items()[0];
  EXPECT_EQ(grc.at("cache_share").items()[0].at("heads").size(), 2u);
  EXPECT_GT(grc.at("tokens_per_second_64").as_double(), 0);
  EXPECT_GT(grc.at("tokens_per_second_4096").as_double(), 0);
  EXPECT_EQ(grc.at("state_bytes").as_int(), 4 * 8 * 4);
  EXPECT_TRUE(results.at("studies")
                  .items()[1]
                  .at("variants")
                  .items()[0]
                  .at("runs")
                  .items()[0]
                  .at("tokens_per_second_64")
                  .is_null());
  const std::string page = content(out + "/report.html");
  EXPECT_TRUE(holds(page, "tiny &lt;comparison&gt;"));
  EXPECT_TRUE(holds(page, "GRC &amp; more"));
  EXPECT_TRUE(holds(content(out + "/results.md"), "| variant |"));

  // A trained model of the comparison is a model like any other.
  const Finished text = run({"generate", out + "/runs/text-grc-more-seed0", "--tokens", "5", "--quiet"});
  EXPECT_EQ(text.status, 0) << text.err;
  const Finished few = run({"generate", out + "/runs/text-grc-more-seed0", "--tokens", "5", "--precision", "int8"});
  EXPECT_EQ(few.status, 0) << few.err;
  const Finished wrong = run({"generate", out + "/runs/text-no-memory-seed0", "--precision", "fp8"});
  EXPECT_TRUE(holds(wrong.err,
                    "generate: --precision: expected one of float32, bf16, int8, w8a8, int4, int4_offset, found 'fp8'"))
      << wrong.err;
  const Finished keys = run({"generate", out + "/runs/text-grc-more-seed0", "--kv-precision", "int8"});
  EXPECT_EQ(keys.status, 2);
  EXPECT_TRUE(holds(keys.err, "generate: --kv-precision int8: the decoding engine cannot run this model so: "))
      << keys.err;

  // It is in a run's folder with its recipe, so its data is known; nothing else of the run is left.
  const Finished measured = run({"eval", out + "/runs/text-no-memory-seed1", "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  const base::Node& recorded = results.at("studies").items()[0].at("variants").items()[0].at("runs").items()[1];
  EXPECT_NEAR(json(measured.out).at("bits_per_character").as_double(), recorded.at("value").as_double(), 0.05);
  for (const auto& entry : std::filesystem::directory_iterator(out + "/runs/text-no-memory-seed1")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("step-")) << entry.path();
  }

  // The command that its page and its model name repeats the training alone.
  const std::string job = out + "/runs/text-grc-more-seed0", alone = "mnemo train " + job + "/recipe.toml";
  EXPECT_TRUE(holds(content(job + "/report.html"), alone));
  EXPECT_TRUE(holds(content(job + "/model/README.md"), alone));
  const Finished repeated = run({"train", job + "/recipe.toml", "--out", folder_ / "repeated"});
  ASSERT_EQ(repeated.status, 0) << repeated.err;
  EXPECT_EQ(content(folder_ / "repeated/model/model.safetensors"), content(job + "/model/model.safetensors"));

  const Finished resumed = run(command);
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(holds(resumed.err, "6 of 6 trainings are already done")) << resumed.err;
  const base::Node same = json(resumed.out);
  EXPECT_EQ(same.at("studies"), results.at("studies"));
  // Another recipe of the same name neither trains nor replaces the report without a word.
  std::vector<std::string> longer = command;
  longer.insert(longer.end(), {"--set", "train.steps=7"});
  const std::string report = content(out + "/report.html");
  const Finished changed = run(longer);
  EXPECT_EQ(changed.status, 2) << changed.err;
  EXPECT_TRUE(holds(changed.err, "(train.steps: 6 before, 7 now); none of them belongs to this recipe")) << changed.err;
  EXPECT_TRUE(content(out + "/report.html") == report);
  std::vector<std::string> one = command;
  one.insert(one.end(), {"--set", "study[1].train.steps=7"});
  const Finished partly = run(one);
  EXPECT_EQ(partly.status, 0) << partly.err;
  EXPECT_TRUE(
      holds(partly.err, "2 of 6 trainings have changed settings (train.steps: 6 before, 7 now) and are trained again"))
      << partly.err;
  write(folder_ / "other.toml", "base = \"studies.toml\"\nname = \"Another\"\n");
  const Finished other = run({"compare", folder_ / "other.toml", "--out", out});
  EXPECT_EQ(other.status, 2) << other.out;
  EXPECT_TRUE(holds(other.err, "out: holds the comparison '")) << other.err;
}

TEST_F(CommandLine, CompareWithoutDataIsRefusedBeforeTheFirstTraining) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  for (const auto& [path, said] : {std::pair("", "data.train: expected data of type \"text\""),
                                   {"none.txt", "none.txt: no such file or folder"}}) {
    const Finished outcome = run(
        {"compare", folder_ / "studies.toml", "--out", out, "--set", std::string("study[0].data.train=") + path});
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, said) && holds(outcome.err, "use --set data.train=PATH")) << outcome.err;
    EXPECT_FALSE(holds(outcome.err, "failed")) << outcome.err;
  }
}

TEST_F(CommandLine, CompareMeasuresWhatTheTimeAllowed) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  const Finished outcome = run({"compare", folder_ / "studies.toml", "--out", out, "--json", "--set",
                                "study[0].max_seconds=0.5", "--set", "study[0].train.steps=1000000"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const base::Node results = json(outcome.out);
  for (const base::Node& variant : results.at("studies").items()[0].at("variants").items()) {
    const base::Node& one = variant.at("runs").items()[0];
    EXPECT_GT(one.at("steps").as_int(), 0);
    EXPECT_LT(one.at("steps").as_int(), 1000000);
    EXPECT_TRUE(std::isfinite(one.at("value").as_double()));
  }
}

TEST_F(CommandLine, CompareGoesOnWhenAVariantFails) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  const Finished outcome = run({"compare", folder_ / "studies.toml", "--out", out, "--set",
                                "study[0].variant[1].train.optimiser={type=\"sgd\", lr=1e30}", "--set",
                                "study[0].variant[1].train.clip_norm=\"unset\""});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "GRC & more, seed 0: failed: training: step")) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "Failed: GRC & more.")) << outcome.out;
  EXPECT_TRUE(holds(content(out + "/report.html"), "verdict failed"));
}

TEST_F(CommandLine, ATrainingThatIsStoppedFromOutsideIsNamed) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  Process process(folder_, {"compare", folder_ / "studies.toml", "--out", out, "--jobs", "1", "--set",
                            "study[0].variant[1].train.steps=1000000"});
  const std::string log = out + "/runs/text-grc-more-seed0/log.jsonl";
  pid_t child = 0;
  ASSERT_TRUE(wait_for([&] {
    std::ifstream file("/proc/" + std::to_string(process.pid()) + "/task/" + std::to_string(process.pid()) +
                       "/children");
    return file >> child && std::filesystem::exists(log);
  }));
  ASSERT_EQ(kill(child, SIGTERM), 0);
  const Finished outcome = process.finish();
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "GRC & more, seed 0: failed: stopped by a signal from outside")) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "Failed: GRC & more.")) << outcome.out;
  EXPECT_TRUE(std::filesystem::exists(out + "/report.html"));
}

TEST_F(CommandLine, CompareEndsWhereTheDiskIsFull) {
  write(folder_ / "full.toml",
        "base = \"tiny.toml\"\ndata.train = \"text.txt\"\nmodel.backbone.ffn_dim = 4096\n[[study]]\nname = \"a\"\n"
        "[[study.variant]]\nname = \"x\"\n[[study.variant]]\nname = \"y\"\nmodel.memory = []\n");
  const std::string out = folder_ / "full", told = folder_ / "told";
  // Blocks of 512 bytes or of 1024: room for the recipes, none for the models.
  const std::string command = "(ulimit -f 80; exec '" + std::string(kBinary) + "' compare '" +
                              std::string(folder_ / "full.toml") + "' --jobs 1 --out '" + out + "') 2> '" + told + "'";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_TRUE(holds(content(told), out + "/runs/a-x-seed0/")) << content(told);
  EXPECT_TRUE(holds(content(told), "free some space and run the command again")) << content(told);
  EXPECT_FALSE(holds(content(told), "[1/2]")) << content(told);
  EXPECT_FALSE(std::filesystem::exists(out + "/runs/a-y-seed0/log.jsonl"));
  const Finished again = run({"compare", folder_ / "full.toml", "--jobs", "1", "--out", out});
  EXPECT_EQ(again.status, 0) << again.err;
}

TEST_F(CommandLine, CompareTrainsTheVariantsThatAreNamed) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  const auto compare = [&](std::vector<std::string> only) {
    only.insert(only.begin(), {"compare", folder_ / "studies.toml", "--out", out, "--jobs", "1", "--json"});
    return run(only);
  };
  const Finished one = compare({"--only", "GRC & more"});
  ASSERT_EQ(one.status, 0) << one.err;
  ASSERT_EQ(json(one.out).at("studies").size(), 1u);
  EXPECT_EQ(json(one.out).at("studies").items()[0].at("variants").size(), 1u);
  const Finished other = compare({"--only", "Copy/no memory"});
  ASSERT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(json(other.out).at("studies").items()[0].at("name").as_string(), "Copy");
  EXPECT_EQ(compare({"--only", "no memory"}).status, 0);
  const auto runs = std::filesystem::directory_iterator(out + "/runs");
  EXPECT_EQ(std::distance(begin(runs), end(runs)), 3) << "none is trained twice";
  const Finished unknown = compare({"--only", "Text/no memry"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(holds(unknown.err, "no variant 'Text/no memry'; did you mean 'Text/no memory'?")) << unknown.err;
}

// A recipe's own number counts where no other is asked for.
TEST_F(CommandLine, CompareSaysHowManyThreadsTrained) {
  write(folder_ / "studies.toml", kStudies);
  const auto threads = [&](const std::string& own, const std::vector<std::string>& more, const std::string& out) {
    std::vector<std::string> words = {
        "compare", folder_ / "studies.toml", "--out", out, "--jobs", "1", "--only", "Copy/no memory",
        "--set",   "train.threads=" + own};
    words.insert(words.end(), more.begin(), more.end());
    const Finished outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const std::string page = content(out + "/runs/copy-no-memory-seed0/report.html");
    const int64_t said = json(content(out + "/results.json")).at("threads").as_int();
    EXPECT_TRUE(holds(page, said == 1 ? "1 thread" : std::to_string(said) + " threads")) << own;
    return said;
  };
  EXPECT_EQ(threads("1", {}, folder_ / "own"), 1);
  EXPECT_EQ(threads("3", {}, folder_ / "many"), 3);
  EXPECT_EQ(threads("2", {"--threads", "1"}, folder_ / "asked"), 1);
  EXPECT_EQ(threads("1", {"--threads", "2"}, folder_ / "more"), 2);
}

TEST_F(CommandLine, CompareWithoutHeldOutDataTrainsNothing) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  const auto compare = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"compare", folder_ / "studies.toml", "--out", out, "--only", "Text/no memory"};
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  };
  const Finished none = compare({"--set", "study[0].data.valid_fraction=0"});
  EXPECT_EQ(none.status, 2) << none.out;
  EXPECT_TRUE(holds(none.err, "the data has no held-out part")) << none.err;
  ASSERT_TRUE(std::filesystem::exists(out));
  for (const auto& found : std::filesystem::recursive_directory_iterator(out))
    EXPECT_FALSE(found.path().filename().string().starts_with("step-")) << found.path();
  const Finished seeds = compare({"--set", "train.seed=9223372036854775807", "--seeds", "2"});
  EXPECT_EQ(seeds.status, 2) << seeds.out;
  EXPECT_TRUE(holds(seeds.err, "compare: --seeds: expected seeds below 2^63")) << seeds.err;
}

TEST_F(CommandLine, ComparisonsHaveOneMetric) {
  write(folder_ / "studies.toml", kStudies);
  const Finished outcome = run(
      {"compare", folder_ / "studies.toml", "--out", folder_ / "out", "--set", "study[0].variant[1].data.unit=words"});
  EXPECT_EQ(outcome.status, 2) << outcome.out;
  EXPECT_TRUE(holds(outcome.err,
                    "variant 'GRC & more' is measured by perplexity, the first one by bits_per_character; expected one "
                    "metric"))
      << outcome.err;
}

TEST_F(CommandLine, CompareStopsItsChildren) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  Process process(folder_,
                  {"compare", folder_ / "studies.toml", "--out", out, "--jobs", "2", "--set", "train.steps=1000000"});
  const auto children = [&] {
    std::ifstream file("/proc/" + std::to_string(process.pid()) + "/task/" + std::to_string(process.pid()) +
                       "/children");
    std::vector<pid_t> found;
    for (pid_t pid; file >> pid;) found.push_back(pid);
    return found;
  };
  ASSERT_TRUE(wait_for([&] { return children().size() == 2; }));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const std::vector<pid_t> seen = children();
  process.signal(SIGINT);
  const Finished outcome = process.finish();
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "To resume: mnemo compare")) << outcome.err;
  for (const pid_t pid : seen) EXPECT_NE(kill(pid, 0), 0) << "child " << pid << " is still there";
  EXPECT_FALSE(std::filesystem::exists(out + "/report.html"));
}

const char* kSweep = R"(
base = "tiny.toml"
name = "tiny sweep"
[train]
steps = 12
save_every = 2
eval_every = 4
[[study]]
name = "Copy"
data = { type = "algorithmic", num_symbols = 4 }
model.segment_size = 32
train.eval_samples = 8
[study.sweep]
data.num_segments = [2, 3]
seeds = [0, 4]
[[study.variant]]
name = "no memory"
model.memory = []
[[study.variant]]
name = "cache"
model.memory = [{ type = "segment_cache" }]
tied = { "model.memory[0].mem_len" = "model.segment_size" }
[[study.paper]]
variant = "cache"
point = { "data.num_segments" = 3 }
value = 0.5
source = "nowhere"
)";

TEST_F(CommandLine, CompareKilledAtAnyMomentGoesOnWithWhatIsMissing) {
  write(folder_ / "sweep.toml", kSweep);
  const std::string out = folder_ / "out", whole = folder_ / "whole";
  const auto command = [&](const std::string& to) {
    return std::vector<std::string>{"compare", folder_ / "sweep.toml", "--out", to, "--jobs", "2", "--json"};
  };
  const Finished uninterrupted = run(command(whole));
  ASSERT_EQ(uninterrupted.status, 0) << uninterrupted.err;
  const base::Node expected = json(uninterrupted.out);
  ASSERT_EQ(expected.at("studies").items()[0].at("points").size(), 2u);

  // Modification times of the results; once written, none is written again.
  const auto results = [&] {
    std::vector<std::pair<std::string, std::filesystem::file_time_type>> found;
    if (!std::filesystem::exists(out + "/runs")) return found;
    for (const auto& entry : std::filesystem::directory_iterator(out + "/runs")) {
      const std::filesystem::path file = entry.path() / "result.json";
      if (std::filesystem::exists(file)) found.emplace_back(file.string(), std::filesystem::last_write_time(file));
    }
    return found;
  };
  std::vector<std::pair<std::string, std::filesystem::file_time_type>> seen;
  int kills = 0;
  for (int delay = 300; kills < 8 && seen.size() < 8; delay += 250, ++kills) {
    Process process(folder_, command(out));
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    process.signal(SIGKILL);
    process.finish();
    for (const auto& [file, time] : results()) EXPECT_NO_THROW(json(content(file))) << file;
    for (const auto& [file, time] : seen)
      EXPECT_EQ(std::filesystem::last_write_time(file), time) << file << " was repeated";
    seen = results();
  }
  const Finished last = run(command(out));
  ASSERT_EQ(last.status, 0) << last.err;
  EXPECT_EQ(results().size(), 8u);
  for (const auto& [file, time] : seen)
    EXPECT_EQ(std::filesystem::last_write_time(file), time) << file << " was repeated";
  const base::Node found = json(last.out);
  for (size_t p = 0; p < 2; ++p) {
    for (size_t v = 0; v < 2; ++v) {
      const auto value = [&](const base::Node& node, size_t run) {
        return node.at("studies")
            .items()[0]
            .at("points")
            .items()[p]
            .at("variants")
            .items()[v]
            .at("runs")
            .items()[run]
            .at("loss")
            .as_double();
      };
      for (size_t run = 0; run < 2; ++run)
        EXPECT_EQ(value(found, run), value(expected, run)) << "a resumed training ends elsewhere";
    }
  }

  // A different recipe is a different training, and the old one is found again.
  std::vector<std::string> longer = command(out);
  longer.insert(longer.end(), {"--set", "train.steps=14"});
  EXPECT_EQ(run(longer).status, 2) << "no training there belongs to it";
  longer.emplace_back("--again");
  const Finished changed = run(longer);
  ASSERT_EQ(changed.status, 0) << changed.err;
  EXPECT_EQ(json(changed.out)
                .at("studies")
                .items()[0]
                .at("points")
                .items()[0]
                .at("variants")
                .items()[0]
                .at("runs")
                .items()[0]
                .at("steps")
                .as_int(),
            14);
  EXPECT_TRUE(holds(run(command(out)).err, "8 of 8 trainings are already done"));
  EXPECT_EQ(results().size(), 16u);
}

TEST_F(CommandLine, SweepMistakesAreNamed) {
  std::string text = kSweep;
  text.replace(text.find("seeds = [0, 4]"), 14, "seedz = [0, 4]");
  write(folder_ / "sweep.toml", text);
  const Finished outcome = run({"compare", folder_ / "sweep.toml", "--out", folder_ / "out"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(holds(outcome.err, "sweep.toml:15: unknown key 'study[0].sweep.seedz'; did you mean 'seeds'?"))
      << outcome.err;
}

}  // namespace
}  // namespace mnemo
