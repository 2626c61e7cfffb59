#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "api/attention_layer.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "bundle/bundle.h"
#include "experiment/experiment.h"
#include "infer/text_session.h"
#include "mnemo.h"
#include "tests/support/command_line.h"
#include "tests/support/expect_error.h"
#include "text/open_tokenizer.h"
#include "weights/checkpoint_name.h"

// src/mnemo.h does the same as the commands. examples/check_examples.py compares programs built against the installed
// library.
namespace mnemo {
namespace {

using test::content;
using test::expect_error;
using test::Finished;
using test::holds;

const std::string kTimm = MNEMO_SOURCE_DIR "/tests/golden/data/vision_import/timm_vit";
constexpr const char* kPicture = MNEMO_SOURCE_DIR "/tests/golden/data/images/files/photo_7865c0.jpg";

/// While it lives, the current directory is another.
class CurrentFolder {
 public:
  explicit CurrentFolder(const std::string& path) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~CurrentFolder() { std::filesystem::current_path(before_); }
  CurrentFolder(const CurrentFolder&) = delete;
  CurrentFolder& operator=(const CurrentFolder&) = delete;

 private:
  std::filesystem::path before_;
};

class Library : public test::CommandLine {
 protected:
  std::string generated(const std::string& model, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"generate", model, "--quiet", "--prompt", "line 9", "--tokens", "60"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out.substr(std::string("line 9").size());
  }
};

TEST_F(Library, WritesAndMeasuresAsTheCommandsDo) {
  for (const char* reset : {"documents", "segments"}) {
    const std::string run_folder = trained(reset, {"--set", std::string("data.reset=") + reset});
    const Bundle model = load(run_folder);
    EXPECT_EQ(model.resets_segments(), std::string(reset) == "segments");
    EXPECT_FALSE(model.is_images());
    EXPECT_EQ(model.format(), "mnemo");
    EXPECT_EQ(model.folder(), run_folder + "/model");
    EXPECT_EQ(model.generate("line 9", {.max_tokens = 60}), generated(run_folder)) << reset;
    EXPECT_EQ(model.generate("line 9", {.max_tokens = 60, .temperature = 0}),
              generated(run_folder, {"--temperature", "0"}));
    const base::Node measured = json(run({"eval", run_folder, "--data", text_, "--json"}).out);
    const Evaluation ours = model.evaluate(text_);
    EXPECT_EQ(ours.at("nll"), measured.at("nll").as_double()) << reset;
    EXPECT_EQ(ours.predictions, measured.at("predictions").as_int());
    EXPECT_EQ(model.evaluate().at("nll"), json(run({"eval", run_folder, "--json"}).out).at("nll").as_double());
    EXPECT_EQ(model.evaluate({.part = "valid"}).at("nll"), model.evaluate().at("nll"));
    std::string names;
    for (auto& [name, value] : model.evaluate(text_)) names += value == ours.at(name) ? name + " " : "?";
    EXPECT_TRUE(names.starts_with("nll ") && !holds(names, "?")) << names;
    // The text must depend on the setting.
    const std::string other = std::string(reset) == "segments" ? "documents" : "segments";
    EXPECT_NE(model.evaluate(text_, {.reset = other}).at("nll"), ours.at("nll"));
    expect_error<InputError>([&] { ours.at("accuracy"); }, {"no metric 'accuracy'"});
    expect_error<InputError>([&] { model.classify("a.png"); }, {"expected a model of images"});
  }
}

TEST_F(Library, AStreamMayEndEarlyAndGoOnFromAFile) {
  const Bundle model = load(trained("run"));
  std::string text;
  const int64_t made = model.generate("line 9",
                                      [&](std::string_view piece) {
                                        text += piece;
                                        return text.size() < 10;
                                      },
                                      {.max_tokens = 60});
  const std::string all = model.generate("line 9", {.max_tokens = 60});
  EXPECT_TRUE(all.starts_with(text) && text.size() < all.size()) << text;
  EXPECT_LE(made, 10);
  const GenerateOptions options{.seed = 5};
  infer::TextSession whole = model.text(options);
  whole.feed("line 9");
  const std::string first = whole.generate({.max_tokens = 20});
  whole.save(folder_ / "session");
  const std::string second = whole.generate({.max_tokens = 20});
  EXPECT_EQ(model.resume_text(folder_ / "session").generate({.max_tokens = 20}), second);
  infer::TextSession again = model.resume_text(folder_ / "session", {.precision = "float32"});
  EXPECT_EQ(again.session().sampling().seed, 5) << "a precision is no sampling";
  EXPECT_EQ(again.generate({.max_tokens = 20}), second);
  EXPECT_EQ(model.generate("line 9", {.max_tokens = 40, .seed = 5}), first + second);
}

/// Answers yes from the n-th question on.
base::ShouldStop from(int& asked, int n) {
  return [&asked, n] { return ++asked >= n; };
}

TEST_F(Library, EveryLongCallCanBeStopped) {
  const Bundle model = load(trained("run")), images = load(kTimm);
  int asked = 0;
  const auto expect_stopped = [&](const char* what, const std::function<void(const Watch&)>& call) {
    asked = 0;
    EXPECT_THROW(call({.should_stop = from(asked, 2)}), Stopped) << what;
    EXPECT_EQ(asked, 2) << what;
  };
  expect_stopped("evaluate", [&](const Watch& watch) { model.evaluate(text_, {.watch = watch}); });
  expect_stopped("by the engine", [&](const Watch& w) { model.evaluate(text_, {.precision = "bf16", .watch = w}); });
  expect_stopped("score", [&](const Watch& watch) { model.score(content(text_), {}, watch); });
  expect_stopped("generate", [&](const Watch& watch) {
    model.generate("line 9", {.max_tokens = 60, .should_stop = watch.should_stop});
  });
  expect_stopped("a long prompt", [&](const Watch& watch) {
    model.generate(content(text_), {.max_tokens = 1, .should_stop = watch.should_stop});
  });
  expect_stopped("classify", [&](const Watch& w) { images.classify({kPicture, kPicture}, {.watch = w}); });
}

TEST_F(Library, AStoppedTrainingGoesOn) {
  std::string log;
  std::vector<int64_t> steps;
  int asked = 0;
  const Watch watch{.should_stop = from(asked, 2),
                    .log = [&](std::string_view line) { log += std::string(line) + "|"; },
                    .progress = [&](const Progress& progress) { steps.push_back(progress.done); }};
  const std::vector<std::string> set = {"data.train=\"" + text_ + "\""};
  const Training first = train_model(recipe_, {.out = folder_ / "run", .set = set, .watch = watch});
  EXPECT_TRUE(first.stopped);
  EXPECT_EQ(first.steps, 2);
  EXPECT_EQ(first.model, "");
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(holds(log, " parameters, 6 steps, ")) << log;
  const Training second = resume_training(folder_ / "run", {.watch = {.log = watch.log}});
  EXPECT_FALSE(second.stopped);
  EXPECT_EQ(second.steps, 6);
  EXPECT_TRUE(holds(log, "resuming after step 2|")) << log;
}

// An inner watch changes what it names; the rest goes where the outer one says.
TEST_F(Library, WatchesAreNested) {
  int lines = 0, points = 0, inner_lines = 0, inner_points = 0;
  const Watching outer({.log = [&](auto) { ++lines; }, .progress = [&](const Progress&) { ++points; }});
  const std::vector<std::string> set = {"data.train=\"" + text_ + "\""};
  train_model(recipe_, {.out = folder_ / "a", .set = set, .watch = {.log = [&](auto) { ++inner_lines; }}});
  EXPECT_EQ(lines, 0);
  EXPECT_GT(inner_lines, 0);
  EXPECT_EQ(points, 6);
  train_model(recipe_,
              {.out = folder_ / "b", .set = set, .watch = {.progress = [&](const Progress&) { ++inner_points; }}});
  EXPECT_GT(lines, 0);
  EXPECT_EQ(points, 6);
  EXPECT_EQ(inner_points, 6);
}

TEST_F(Library, SamplesAndScoresAsTheCommandDoes) {
  const std::string folder = trained("run");
  const Bundle model = load(folder);
  const GenerateOptions options{.max_tokens = 60,
                                .min_p = 0.05,
                                .repetition_penalty = 1.2,
                                .frequency_penalty = 0.3,
                                .presence_penalty = 0.1,
                                .stop = {"qq", "of"}};
  EXPECT_EQ(model.generate("line 9", options),
            generated(folder, {"--min-p", "0.05", "--repetition-penalty", "1.2", "--frequency-penalty", "0.3",
                               "--presence-penalty", "0.1", "--stop", "qq", "--stop", "of"}));
  EXPECT_NE(model.generate("line 9", options), model.generate("line 9", {.max_tokens = 60}));
  test::write(folder_ / "given.txt", "ine 7");
  const base::Node scored = json(
      run({"generate", folder, "--prompt", "l", "--score", folder_ / "given.txt", "--json"}).out);
  const std::vector<TokenScore> ours = model.score("ine 7", "l");
  ASSERT_EQ(ours.size(), 5u);
  double sum = 0;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(ours[i].log_probability, scored.at("tokens").items()[i].at("log_probability").as_double());
    EXPECT_EQ(ours[i].text, scored.at("tokens").items()[i].at("text").as_string());
    sum += ours[i].log_probability;
  }
  EXPECT_NEAR(scored.at("log_probability").as_double(), sum, 1e-12);
  EXPECT_NEAR(scored.at("perplexity").as_double(), std::exp(-sum / 5), 1e-9);
}

TEST_F(Library, SavedModelsAreTheSame) {
  const std::string folder = trained("run", {"--set", "data.reset=segments"});
  const Bundle model = load(folder);
  save_model(folder_ / "copy", model);
  for (const char* file : {"config.json", "model.safetensors", "vocabulary.json", "text.json", "README.md"})
    EXPECT_EQ(content(folder_ / ("copy/" + std::string(file))), content(folder + "/model/" + file)) << file;
  EXPECT_EQ(load(folder_ / "copy").generate("line 9", {.seed = 3}), model.generate("line 9", {.seed = 3}));
  // A model that is not in a folder.
  bundle::Bundle parts = model.parts();
  parts.folder.clear();
  save_model(folder_ / "fresh", Bundle(std::make_shared<const bundle::Bundle>(parts)));
  EXPECT_TRUE(load(folder_ / "fresh").resets_segments());
  EXPECT_EQ(load(folder_ / "fresh").generate("line 9"), model.generate("line 9"));
  // A fork with a seed of its own.
  infer::TextSession session = model.text({.seed = 3});
  session.feed("line 9");
  infer::TextSession same = session, other = session.fork(4);
  const std::string text = session.generate({.max_tokens = 40});
  EXPECT_EQ(same.generate({.max_tokens = 40}), text);
  EXPECT_EQ(other.generate({.max_tokens = 40}), model.generate("line 9", {.max_tokens = 40, .seed = 4}));
  expect_error<InputError>([&] { save_model(folder_ / "none", load(kTimm)); }, {"Mnemo's format", "timm_vit"});
}

TEST_F(Library, ACopyIsSavedWithItsOwnConventionsAndTokenizer) {
  const std::string folder = trained("run", {"--set", "data.reset=segments"});
  const Bundle model = load(folder);
  bundle::Bundle parts = model.parts();
  parts.conventions.reset = bundle::TextConventions::Reset::documents;
  std::string vocabulary = content(folder + "/model/vocabulary.json");
  const size_t l = vocabulary.find("\"l\""), x = vocabulary.find("\"x\"");
  ASSERT_TRUE(l != std::string::npos && x != std::string::npos) << vocabulary;
  std::swap(vocabulary[l + 1], vocabulary[x + 1]);
  parts.tokenizer = text::open_tokenizer_files({{"vocabulary.json", vocabulary}}, "changed");
  save_model(folder_ / "copy", Bundle(std::make_shared<const bundle::Bundle>(parts)));
  const Bundle copy = load(folder_ / "copy");
  EXPECT_FALSE(copy.resets_segments());
  EXPECT_EQ(copy.parts().tokenizer->encode("lx"), model.parts().tokenizer->encode("xl"));
  EXPECT_TRUE(base::path_exists(folder_ / "copy/README.md"));
}

// Version control and file managers leave files that are no part of the model.
TEST_F(Library, HiddenFilesOfAModelFolderAreLeftBehind) {
  const std::string folder = trained("run") + "/model";
  for (const char* name : {".gitattributes", ".DS_Store"}) test::write(folder + "/" + name, "*.safetensors lfs\n");
  save_model(folder_ / "copy", load(folder));
  const Finished converted = run({"convert", folder, "--to", "mnemo", "--out", folder_ / "converted"});
  EXPECT_EQ(converted.status, 0) << converted.err;
  for (const char* made : {"copy", "converted"}) {
    EXPECT_FALSE(base::path_exists(folder_ / (made + std::string("/.gitattributes")))) << made;
    EXPECT_EQ(content(folder_ / (made + std::string("/vocabulary.json"))), content(folder + "/vocabulary.json"));
  }
}

// A model without a folder does not read files of the current directory.
TEST_F(Library, AModelThatLiesInNoFolderReadsNone) {
  const auto without_folder = [](const Bundle& model) {
    bundle::Bundle parts = model.parts();
    parts.folder.clear();
    return Bundle(std::make_shared<const bundle::Bundle>(parts));
  };
  const std::string run_folder = trained("run");
  const Bundle text = without_folder(load(run_folder)), images = without_folder(load(kTimm));
  std::string names;
  for (int i = 0; i < 10; ++i) names += "kind " + std::to_string(i) + "\n";
  test::write(run_folder + "/model/classes.txt", names);
  test::write(run_folder + "/model/images.json", R"({"image_size": [32, 32]})");
  const CurrentFolder inside(run_folder + "/model");
  EXPECT_FALSE(experiment::own_recipe(text.parts()).has_value());
  expect_error<InputError>([&] { text.evaluate(); }, {"is not in a run's folder"});
  EXPECT_TRUE(images.labels().empty());
  expect_error<InputError>([&] { images.classify(kPicture); }, {"is not in a folder"});
  expect_error<InputError>([&] { images.inspect({.image = kPicture}); }, {"is not in a folder"});
}

TEST(LibraryLayers, ALayerTakesTheMemoriesThatNameIt) {
  layers::ParameterSet parameters;
  const layers::Scope root = parameters.root();
  const base::Node grc = base::Node::table(
      {{"type", "grc"}, {"lifetime", "sequence"}, {"layers", base::Node::array({1})}});
  const auto carries = [&](int64_t layer) {
    const layers::Scope own = root / "layers" / layer;
    const auto made = make_attention({.memory = {grc}}, {.attn = own / "attn",
                                                         .layer = own,
                                                         .shared = root,
                                                         .dim = 8,
                                                         .num_heads = 2,
                                                         .head_dim = 4,
                                                         .layer_number = layer});
    return !made->initial_state(1).fields().empty();
  };
  EXPECT_TRUE(carries(1));
  EXPECT_FALSE(carries(2));
  expect_error<InputError>([&] { carries(0); }, {"layers", "found 1"});
}

TEST_F(Library, TrainsAndResumesAsTheCommandDoes) {
  const std::vector<std::string> data = {"data.train=" + text_};
  const std::string expected = content(trained("command") + "/model/model.safetensors");
  int64_t evaluations = 0;
  const Training done = train_model(
      recipe_, {.out = folder_ / "whole", .set = data, .on_evaluation = [&](auto...) { ++evaluations; }});
  EXPECT_TRUE(content(done.model + "/model.safetensors") == expected);
  EXPECT_EQ(evaluations, 2);
  EXPECT_EQ(done.steps, 6);
  EXPECT_EQ(done.metrics.front().first, "nll");
  const std::string part = train_model(recipe_, {.out = folder_ / "part", .set = {data[0], "train.steps=3"}}).folder;
  expect_error<InputError>([&] { train_model(recipe_, {.out = part, .set = data}); }, {part, "already holds a run"});
  const Training resumed = resume_training(part, {.set = {"train.steps=6"}});
  EXPECT_TRUE(content(resumed.model + "/model.safetensors") == expected);
  expect_error<InputError>([&] { resume_training(part, {.out = "x"}); }, {"its own folder"});
  expect_error<InputError>([&] { resume_training(folder_ / "none"); }, {"not a training run"});
}

TEST_F(Library, ComparesInThisProcessAsInProcessesOfTheirOwn) {
  test::write(recipe_, std::string(test::kRecipe) +
                           "[[study]]\nname = \"Texts\"\n[[study.variant]]\nname = \"cache\"\n[[study.variant]]\nname "
                           "= \"none\"\nmodel.memory = []\n[[study.variant]]\nname = \"wrong\"\ntrain.optimiser = { "
                           "lr = 1e30 }\n");
  const std::vector<std::string> set = {"data.train=" + text_, "data.reset=segments", "train.threads=1"};
  const Comparison here = compare_models(recipe_, {.out = folder_ / "here", .set = set});
  const Comparison there = compare_models(recipe_, {.out = folder_ / "there", .set = set, .program = test::kBinary});
  const base::Node a = json(here.json).at("studies").items()[0], b = json(there.json).at("studies").items()[0];
  const auto& ours = a.at("variants").items();
  const auto& theirs = b.at("variants").items();
  ASSERT_EQ(ours.size(), 3u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(ours[i].at("value"), theirs[i].at("value")) << i;
  for (const Comparison* one : {&here, &there}) {
    EXPECT_FALSE(one->complete) << one->text;
    EXPECT_TRUE(base::path_exists(one->report));
    EXPECT_TRUE(holds(one->text, "none")) << one->text;
  }
  EXPECT_EQ(json(base::read_file(here.folder + "/results.json")), json(here.json));
  EXPECT_EQ(json(here.json).at("threads").as_int(), 1) << "train.threads";
  // The caller decides what a recipe leaves open.
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  const Comparison open = compare_models(recipe_, {.out = folder_ / "open", .set = {set[0], "train.steps=1"}});
  at::set_num_threads(before);
  EXPECT_EQ(json(open.json).at("threads").as_int(), 3);
}

TEST_F(Library, AResumedComparisonCountsTheStepsOfAllItsTrainings) {
  test::write(recipe_, std::string(test::kRecipe) +
                           "[[study]]\nname = \"Texts\"\n[[study.variant]]\nname = \"cache\"\n[[study.variant]]\nname "
                           "= \"none\"\nmodel.memory = []\n");
  const std::vector<std::string> set = {"data.train=" + text_, "train.steps=100000", "train.eval_every=100000",
                                        "train.save_every=1", "train.keep_last=1"};
  const auto saved = [&] {
    std::vector<int64_t> steps;
    for (const auto& file : std::filesystem::recursive_directory_iterator(std::string(folder_ / "out")))
      steps.push_back(weights::checkpoint_step(file.path().filename().string()));
    std::erase(steps, -1);
    return steps;
  };
  CompareOptions options{.out = folder_ / "out", .set = set, .program = test::kBinary, .jobs = 2};
  bool both = false;
  options.watch.progress = [&](const Progress& progress) {
    const std::string note(progress.note);  // "0/2 done; cache 3/100000, none 2/100000"
    both = holds(note, "cache ") && holds(note, "none ") && !holds(note, " 0/");
  };
  options.watch.should_stop = [&] { return both ? 1 : 0; };
  EXPECT_TRUE(compare_models(recipe_, options).stopped);
  const std::vector<int64_t> steps = saved();
  ASSERT_EQ(steps.size(), 2u);
  int64_t first = 0;
  options.program = "";
  options.watch.progress = [&](const Progress& progress) { first = first == 0 ? progress.done : first; };
  options.watch.should_stop = [&] { return first > 0 ? 1 : 0; };
  EXPECT_TRUE(compare_models(recipe_, options).stopped);
  EXPECT_EQ(first, steps[0] + steps[1] + 1);
}

TEST_F(Library, InspectsAndVerifiesAsTheCommandsDo) {
  const std::string folder = trained("run");
  EXPECT_EQ(inspect_model(folder).text(), run({"inspect", folder}).out);
  EXPECT_EQ(inspect_model(recipe_, {.set = {"data.train=" + text_}}).text(),
            run({"inspect", recipe_, "--set", "data.train=" + text_}).out);
  const Inspection looked = load(folder).inspect({.text = "line 9 of a text", .layers = "0", .cost = true});
  const base::Node command = json(
      run({"inspect", folder + "/model", "--text", "line 9 of a text", "--layers", "0", "--cost", "--json"}).out);
  EXPECT_EQ(json(looked.json()).at("attention"), command.at("attention"));
  EXPECT_EQ(json(looked.json()).at("cost"), command.at("cost"));
  EXPECT_TRUE(looked.svg().starts_with("<svg"));
  EXPECT_TRUE(holds(looked.html("A title"), "A title"));
  EXPECT_GT(looked.parameters(), 0);
  // A memory that would take too long to fill says how much it holds then.
  const Inspection large = inspect_model(recipe_, {.set = {"data.train=" + text_, "model.segment_size=1024",
                                                           "model.memory=[{type=\"knn\",memory_len=16777216}]"}});
  const base::Node said = json(large.json());
  EXPECT_FALSE(said.at("memories_full").as_bool());
  EXPECT_EQ(large.state_bytes(), said.at("full_state_bytes").as_int());
  EXPECT_GT(large.state_bytes(), said.at("state_bytes").as_int());
}

TEST_F(Library, ClassifiesImages) {
  const std::string model = kTimm, picture = kPicture;
  const Bundle bundle = load(model);
  EXPECT_TRUE(bundle.is_images());
  EXPECT_EQ(bundle.format(), "timm_vit");
  const std::vector<TaskAnswer> answers = bundle.classify(picture, {.top = 3});
  const base::Node tasks = json(run({"classify", model, picture, "--top", "3", "--json"}).out).items()[0].at("tasks");
  ASSERT_EQ(answers.size(), tasks.size());
  const auto& best = tasks.at("base").items();
  ASSERT_EQ(answers[0].labels.size(), best.size());
  for (size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(answers[0].labels[i].name, best[i].at("label").as_string());
    EXPECT_EQ(answers[0].labels[i].probability, best[i].at("probability").as_double());
  }
  const std::vector<ImageAnswer> twice = bundle.classify({kPicture, kPicture}), once = bundle.classify({kPicture});
  ASSERT_EQ(twice.size(), 2u);
  ASSERT_EQ(once.size(), 1u);
  EXPECT_EQ(twice[1].image, picture);
  EXPECT_EQ(once[0].tasks[0].labels[0].name, answers[0].labels[0].name);
  test::write(folder_ / "broken.png", "no image");
  const std::vector<ImageAnswer> both = bundle.classify({folder_ / "broken.png", picture}, {.skip_broken = true});
  EXPECT_TRUE(holds(both[0].error, "broken.png"));
  EXPECT_EQ(both[1].tasks[0].labels[0].probability, answers[0].labels[0].probability);
  expect_error<InputError>([&] { bundle.classify({folder_ / "broken.png", picture}); }, {"broken.png"});
  expect_error<InputError>([&] { bundle.generate("a"); }, {"of images"});
}

}  // namespace
}  // namespace mnemo
