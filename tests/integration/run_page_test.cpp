#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "tests/support/command_line.h"

namespace mnemo::test {
namespace {

namespace fs = std::filesystem;

/// report.html and samples.jsonl of a training.
class RunPage : public CommandLine {
 protected:
  /// The JSON of a page's script element.
  base::Node data(const std::string& page, const std::string& id) {
    const std::string open = "id=\"" + id + "\">";
    const size_t begin = page.find(open) + open.size();
    return json(page.substr(begin, page.find("</script>", begin) - begin));
  }
  static size_t lines(const std::string& text) {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  /// The page without its scripts.
  static std::string visible(const std::string& page) { return page.substr(0, page.find("<script>")); }
};

TEST_F(RunPage, ShowsCurvesSamplesAndHowToRepeatThem) {
  const std::string folder = trained("done", {"--set", "generate.sample_every=2", "--set", "generate.tokens=8"});
  const std::string page = content(folder + "/report.html");
  EXPECT_EQ(data(page, "run").at("state").as_string(), "finished");
  std::map<std::string, base::Node> charts;
  const base::Node curves = data(page, "curves");
  for (const base::Node& chart : curves.items()) charts.emplace(chart.at("title").as_string(), chart);
  for (const char* title : {"Bits per character", "Learning rate", "Gradient norm", "Speed"})
    EXPECT_TRUE(charts.contains(title)) << title;
  const base::Node& both = charts.at("Bits per character").at("series");
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both.items()[0].at("points").size(), 6u) << "the training loss";
  EXPECT_EQ(both.items()[1].at("points").size(), 2u) << "the evaluations";
  // As in the log, in the unit of the metric.
  base::Node loss, valid;
  std::istringstream log(content(folder + "/log.jsonl"));
  for (std::string line; std::getline(log, line);) (json(line).contains("valid") ? valid : loss) = json(line);
  EXPECT_NEAR(both.items()[0].at("points").items()[5].at("value").as_double(),
              loss.at("loss").as_double() / std::log(2.0), 1e-6);
  EXPECT_NEAR(both.items()[1].at("points").items()[1].at("value").as_double(),
              valid.at("valid").at("bits_per_character").as_double(), 1e-9);
  EXPECT_TRUE(holds(page, "mnemo train tiny.toml"));
  EXPECT_TRUE(holds(visible(page), "<h4>step 6</h4>") && holds(visible(page), "<h4>step 2</h4>"));
  const std::string samples = content(folder + "/samples.jsonl");
  EXPECT_EQ(lines(samples), 3u) << samples;
  EXPECT_FALSE(fs::exists(trained("bare", {"--set", "train.report=false"}) + "/report.html"));
  EXPECT_FALSE(fs::exists(folder_ / "bare/samples.jsonl"));
}

TEST_F(RunPage, ATokenizersUnitsAreMeasuredAsTheyAre) {
  const auto titles = [&](const std::string& name, const std::string& tokenizer) {
    const std::string folder = trained(name, {"--set", "data.tokenizer=" + tokenizer});
    std::set<std::string> found;
    const base::Node curves = data(content(folder + "/report.html"), "curves");
    for (const base::Node& chart : curves.items()) found.insert(chart.at("title").as_string());
    return found;
  };
  const std::string bytes = folder_ / "of_bytes", words = folder_ / "of_words";
  ASSERT_EQ(run({"data", "tokenizer", text_, "--type", "bytes", "--out", bytes}).status, 0);
  ASSERT_EQ(run({"data", "tokenizer", text_, "--type", "words", "--out", words}).status, 0);
  EXPECT_TRUE(titles("bytes", bytes).contains("Bits per byte"));
  EXPECT_TRUE(titles("file", bytes + "/vocabulary.json").contains("Bits per byte")) << "a file stands for its folder";
  const std::set<std::string> perplexity = titles("words", words);
  EXPECT_TRUE(perplexity.contains("Held-out perplexity") || perplexity.contains("Perplexity"));
}

TEST_F(RunPage, SamplesChangeNothingOfTheTraining) {
  const std::string plain = trained("plain"), sampled = trained("sampled", {"--set", "generate.sample_every=1"});
  for (const char* file : {"model/model.safetensors", "step-00000006/trainer.safetensors"})
    EXPECT_TRUE(content(plain + "/" + file) == content(sampled + "/" + file)) << file;
}

TEST_F(RunPage, OfATrainingThatGoesOnIsLiveAndOfAKilledOneOld) {
  const std::string folder = folder_ / "run";
  {
    const Process process(
        folder_, {"train", recipe_, "--data", text_, "--out", folder, "-q", "--set", "train.steps=1000000", "--set",
                  "train.save_every=50", "--set", "generate.sample_every=50", "--set", "generate.tokens=4"});
    const auto steps = [&] {
      if (!fs::exists(folder + "/report.html")) return int64_t{0};
      const base::Node charts = data(content(folder + "/report.html"), "curves");
      const base::Node& points = charts.items()[0].at("series").items()[0].at("points");
      return points.size() == 0 ? int64_t{0} : points.items().back().at("step").as_int();
    };
    ASSERT_TRUE(wait_for([&] { return steps() > 0; }));
    const int64_t before = steps();
    EXPECT_TRUE(wait_for([&] { return steps() > before; })) << "the page follows";
    process.signal(SIGKILL);
  }
  // The page cannot know; what it says is when it was written, and how often it is written as long as the process
  // lives.
  const std::string page = content(folder + "/report.html");
  const base::Node run = data(page, "run");
  EXPECT_EQ(run.at("state").as_string(), "training");
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(run.at("written").as_double(), now, 30);
  EXPECT_LE(run.at("beat").as_double(), 15);
  EXPECT_TRUE(holds(page, "As of 20"));
  EXPECT_TRUE(holds(run.at("resume").as_string(), "mnemo train --resume"));

  // Samples of steps after the checkpoint go, those before stay.
  write(
      folder + "/samples.jsonl",
      "{\"step\":1,\"prompt\":\"a\",\"sample\":\"kept\"}\n{\"step\":999999999,\"prompt\":\"a\",\"sample\":\"gone\"}\n{"
      "\"step\":2,\"pro");
  const base::Node listed = json(CommandLine::run({"runs", folder, "--json"}).out);
  const int64_t saved = listed.items()[0].at("checkpoint").as_int();
  const Finished resumed = CommandLine::run(
      {"train", "--resume", folder, "-q", "--set", "train.steps=" + std::to_string(saved + 1)});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const std::string samples = content(folder + "/samples.jsonl");
  EXPECT_TRUE(holds(samples, "kept"));
  EXPECT_FALSE(holds(samples, "gone"));
  EXPECT_EQ(data(content(folder + "/report.html"), "run").at("state").as_string(), "finished");
}

TEST_F(RunPage, TellsASignalFromAFault) {
  const std::string folder = folder_ / "run";
  const Finished failed = run({"train", recipe_, "--data", text_, "--out", folder, "-q", "--set",
                               "train.optimiser.lr=1e30", "--set", "train.clip_norm=1e30"});
  ASSERT_EQ(failed.status, 1) << failed.err;
  EXPECT_EQ(data(content(folder + "/report.html"), "run").at("state").as_string(), "failed");
  Process process(
      folder_, {"train", recipe_, "--data", text_, "--out", folder_ / "other", "-q", "--set", "train.steps=1000000"});
  ASSERT_TRUE(wait_for([&] { return fs::exists(folder_ / "other/report.html"); }));
  process.signal(SIGTERM);
  EXPECT_EQ(process.finish().status, 143);
  const std::string page = content(folder_ / "other/report.html");
  EXPECT_EQ(data(page, "run").at("state").as_string(), "stopped");
  EXPECT_TRUE(holds(visible(page), "mnemo train --resume")) << "how to go on";
}

TEST_F(RunPage, APageThatCannotBeWrittenIsAWarning) {
  fs::create_directories(folder_ / "run/report.html");  // a folder where the file should be
  const Finished outcome = run({"train", recipe_, "--data", text_, "--out", folder_ / "run", "-q"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "report.html") && holds(outcome.err, "the run's page is not written any more"))
      << outcome.err;
}

TEST_F(RunPage, IsNotWrittenIntoAFolderThatReplacedTheRuns) {
  const std::string folder = folder_ / "run";
  Process process(folder_, {"train", recipe_, "--data", text_, "--out", folder, "-q", "--set", "train.steps=1000000"});
  // Once all files of the start are there.
  ASSERT_TRUE(
      wait_for([&] { return fs::exists(folder + "/report.html") && lines(content(folder + "/log.jsonl")) > 2; }));
  fs::rename(folder, folder_ / "moved");
  fs::create_directory(folder);
  const Finished finished = process.finish();
  EXPECT_EQ(finished.status, 2) << finished.err;
  EXPECT_TRUE(holds(finished.err, "moved, removed or replaced")) << finished.err;
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(RunPage, PatienceKeepsTheBestModel) {
  const Finished outcome = run({"train", recipe_, "--data", text_, "--out", folder_ / "run", "-q", "--json", "--set",
                                "train.steps=200", "--set", "train.eval_every=2", "--set", "train.patience=2", "--set",
                                "train.optimiser.lr=0.5"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const base::Node result = json(outcome.out);
  EXPECT_TRUE(result.at("out_of_patience").as_bool());
  EXPECT_LT(result.at("steps").as_int(), 200);
  const Finished measured = run({"eval", folder_ / "run", "--batch", "16", "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  EXPECT_NEAR(json(measured.out).at("bits_per_character").as_double(),
              result.at("held_out").at("bits_per_character").as_double(), 1e-5);
  EXPECT_TRUE(holds(content(folder_ / "run/report.html"), "Out of patience after step"));
  // The value of a run is that of the model it has, not of the last step.
  const Finished listed = run({"runs", folder_ / "run", "--json"});
  EXPECT_NEAR(json(listed.out).items()[0].at("value").as_double(),
              result.at("held_out").at("bits_per_character").as_double(), 1e-9)
      << listed.out << listed.err;
  const Finished again = run({"train", "--resume", folder_ / "run"});
  EXPECT_TRUE(holds(again.out, "nothing left to train") && holds(again.out, "--set train.patience=unset")) << again.out;
}

TEST_F(RunPage, SamplesNeedAText) {
  const Finished outcome = run({"train", std::string(MNEMO_SOURCE_DIR) + "/recipes/grc_listops_small.toml", "--variant",
                                "without GRC, model.backbone.attention softmax", "--out", folder_ / "run", "--set",
                                "generate.sample_every=5"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(holds(outcome.err, "generate.sample_every")) << outcome.err;
}

}  // namespace
}  // namespace mnemo::test
