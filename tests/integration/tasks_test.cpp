// Task memories on the command line: attached, used, detached.
#include <torch/types.h>

#include <cmath>
#include <filesystem>

#include "base/file_io.h"
#include "bundle/model_folder.h"
#include "models/model.h"
#include "tests/support/command_line.h"
#include "tests/unit/data/image_files.h"
#include "weights/model_tensors.h"
#include "weights/task_memory.h"

namespace mnemo::test {
namespace {

models::ModelOptions options_of(const std::string& memory = "[]") {
  return base::read_options<models::ModelOptions>(base::parse_json(
      R"({"backbone": {"type": "vit", "image_size": [8, 8], "patch_size": 4, "dim": 8, "num_layers": 2, "num_heads": 2, "mlp_ratio": 2.0},
          "head": {"type": "classification", "num_classes": 3}, "memory": )" +
          memory + "}",
      "test"));
}

class TaskCommands : public CommandLine {
 protected:
  TaskCommands() {
    const models::Model model(options_of(), 1, at::kFloat);
    write_model(model, backbone_);
    const models::Model other(options_of(), 2, at::kFloat);
    write_model(other, other_);
    for (const char* name : {"one", "two"}) {
      const models::Model with(options_of(std::string(R"([{"type": "learnable_tokens", "tasks": [{"name": ")") + name +
                                          R"(", "num_classes": 2, "labels": ["yes", "no"]}]}])"),
                               1, at::kFloat);
      weights::TaskMemoryFile file = weights::take_task({with.options(), weights::model_tensors(with)}, name);
      file.backbone = weights::backbone_checksum({model.options(), weights::model_tensors(model)});
      weights::write_task_memory(task(name), file);
    }
  }

  static void write_model(const models::Model& model, const std::string& folder) {
    bundle::ModelFolder content;
    content.config = base::to_json(base::write_options(model.options())) + "\n";
    content.weights.tensors = weights::model_tensors(model);
    content.vocabulary["images.json"] = R"({"image_size": [8, 8]})";
    content.vocabulary["classes.txt"] = "red\ngreen\nblue\n";
    content.card = "A card\n";
    bundle::write_model_folder(folder, content);
  }
  std::string task(const std::string& name) const { return folder_ / (name + ".task.safetensors"); }
  std::string bytes_of(const std::string& folder) const {
    return content(folder + "/model.safetensors") + content(folder + "/config.json");
  }
  void expect_refused(const std::vector<std::string>& arguments, std::initializer_list<const char*> parts) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.out << outcome.err;
    for (const char* part : parts) EXPECT_TRUE(holds(outcome.err, part)) << "no '" << part << "' in: " << outcome.err;
  }

  /// The backbone's answer for a picture.
  base::Node result_of(const std::string& picture) {
    return json(run({"classify", backbone_, picture, "--json"}).out).items()[0].at("tasks");
  }

  std::string backbone_ = folder_ / "backbone", other_ = folder_ / "other", joined_ = folder_ / "joined";
};

TEST_F(TaskCommands, DetachGivesBackTheFolderByteForByte) {
  const std::string before = bytes_of(backbone_);
  const Finished attached = run(
      {"attach", backbone_, task("one"), task("two"), "--extend", "--out", joined_, "--json"});
  ASSERT_EQ(attached.status, 0) << attached.err;
  const base::Node made = json(attached.out);
  EXPECT_EQ(made.at("model").as_string(), joined_);
  EXPECT_EQ(made.at("tasks").size(), 2U);
  ASSERT_EQ(made.at("added").size(), 2U);
  EXPECT_EQ(made.at("added").items()[1].at("name").as_string(), "two");
  EXPECT_GT(made.at("added").items()[1].at("bytes").as_int(), 0);
  EXPECT_EQ(bytes_of(backbone_), before);
  const base::Node config = base::parse_json(content(joined_ + "/config.json"), "config");
  const base::Node& tasks = config.at("memory").items()[0].at("tasks");
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks.items()[1].at("sees").items()[0].as_string(), "one");
  EXPECT_EQ(content(joined_ + "/README.md"), "A card\n");
  EXPECT_TRUE(base::path_exists(joined_ + "/images.json"));
  expect_refused({"detach", joined_, "one"}, {"'two' sees 'one'"});
  const base::Node left = json(run({"detach", joined_, "two", "--json"}).out);
  ASSERT_EQ(left.at("tasks").size(), 1U);
  EXPECT_EQ(left.at("tasks").items()[0].as_string(), "one");
  const Finished last = run({"detach", joined_, "one"});
  EXPECT_EQ(last.out, joined_ + ": 0 tasks beside its own head\n");
  EXPECT_EQ(bytes_of(joined_), before);
}

TEST_F(TaskCommands, WhatDoesNotFitIsRefusedByName) {
  const std::string before = bytes_of(other_);
  expect_refused({"attach", other_, task("one")}, {"one.task.safetensors", "another backbone"});
  EXPECT_EQ(bytes_of(other_), before);
  expect_refused({"attach", backbone_, backbone_ + "/model.safetensors"}, {"mnemo-task/2"});
  expect_refused({"attach", backbone_, task("none")}, {"none.task.safetensors"});
  expect_refused({"attach", backbone_, task("one"), task("one")}, {"'one'", "--name"});
  expect_refused({"attach", backbone_, task("one"), "--extend", "--concatenate"}, {"--extend", "--concatenate"});
  expect_refused({"attach", backbone_, task("one"), task("two"), "--name", "x"}, {"--name"});
  expect_refused({"detach", backbone_, "one"}, {"no task", "one"});
  expect_refused({"attach", folder_.path(), task("one")}, {"config.json"});
}

TEST_F(TaskCommands, ClassifyAsksAllHeadsAtOnce) {
  const std::string picture = data::golden_image("photo_7865c0.jpg");
  const Finished before = run({"classify", backbone_, picture, "--json"});
  ASSERT_EQ(before.status, 0) << before.err;
  const base::Node alone = json(before.out).items()[0].at("tasks");
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone.at("base").size(), 3U);
  ASSERT_EQ(run({"attach", backbone_, task("one"), task("two"), "--concatenate", "--out", joined_}).status, 0);
  const base::Node all = json(run({"classify", joined_, picture, "--json"}).out).items()[0].at("tasks");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all.at("base"), alone.at("base"));
  double sum = 0;
  for (const base::Node& answer : all.at("one").items()) {
    EXPECT_TRUE(answer.at("label").as_string() == "yes" || answer.at("label").as_string() == "no");
    sum += answer.at("probability").as_double();
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
  const Finished one = run({"classify", joined_, picture, "--task", "two", "--top", "1"});
  EXPECT_TRUE(holds(one.out, "two") && !holds(one.out, "base")) << one.out;
}

std::string recipe_of(const std::string& images) {
  return "[data]\ntype = \"images\"\ntrain = \"" + images +
         "\"\nvalid_fraction = 0.2\nimage_size = [8, 8]\n[train]\nsteps = 2\nbatch_size = 4\n";
}

// Keys that nothing reads are errors and not ignored.
TEST_F(TaskCommands, FinetuningRefusesWhatItDoesNotRead) {
  data::make_class_folders(folder_ / "set", 6);
  const std::string recipe = folder_ / "images.toml";
  write(recipe, recipe_of(folder_ / "set"));
  const auto refused = [&](const std::string& key, std::initializer_list<const char*> parts) {
    expect_refused(
        {"finetune", recipe, "--model", backbone_, "--regime", "head", "--out", folder_ / "run", "--set", key}, parts);
  };
  refused("model.memory=[{type=\"grc\"}]", {"'model.memory'", "leave [model] out"});
  refused("model.backbone.dim=32", {"'model.backbone'", "leave [model] out"});
  refused("model={backbone={type=\"vit\", dim=12, num_heads=2}, head=\"classification\"}",
          {"'model.backbone'", "leave [model] out"});
  refused("finetune.num_mem_tokens=7", {"finetune.num_mem_tokens", "regime = \"head\""});
  refused("finetune.bottleneck=3", {"finetune.bottleneck", "regime = \"head\""});
  refused("train.segments_per_step=2", {"train.segments_per_step", "images"});
  EXPECT_FALSE(base::path_exists(folder_ / "run"));
}

// A backbone without a head can still learn tasks.
TEST_F(TaskCommands, ABackboneWithoutAHeadLearnsTasks) {
  auto options = options_of();
  options.head.set("num_classes", 0);
  const std::string bare = folder_ / "bare", picture = data::golden_image("rgb_444.jpg"),
                    recipe = folder_ / "images.toml";
  write_model(models::Model(options, 1, at::kFloat), bare);
  std::filesystem::remove(bare + "/classes.txt");
  data::make_class_folders(folder_ / "set", 6);
  write(recipe, recipe_of(folder_ / "set"));
  expect_refused({"classify", bare, picture}, {"has no head", "mnemo finetune"});
  for (const char* regime : {"masked_memory", "full"}) {
    const Finished outcome = run(
        {"finetune", recipe, "--model", bare, "--regime", regime, "--name", "t", "--out", folder_ / regime, "--quiet"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  ASSERT_EQ(run({"attach", bare, folder_ / "masked_memory/t.task.safetensors", "--out", joined_}).status, 0);
  const base::Node answers = json(run({"classify", joined_, picture, "--json"}).out).items()[0].at("tasks");
  EXPECT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.at("t").size(), 3U);
  expect_refused({"classify", joined_, picture, "--task", "base"}, {"base", "no classes"});
  EXPECT_EQ(run({"classify", folder_ / "full", picture}).status, 0);
}

TEST_F(TaskCommands, ClassifyReadsFilesFoldersAndStandardInput) {
  const std::string images = folder_ / "images";
  data::place_image(images + "/b/1.jpg", "photo_7865c0.jpg");
  data::place_image(images + "/a/2.png", "rgb8.png");
  write(images + "/notes.txt", "no image");
  const Finished outcome = run({"classify", backbone_, images, "--json", "--batch", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const base::Node results = json(outcome.out);
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results.items()[0].at("image").as_string(), images + "/a/2.png");
  const std::string command = std::string(kBinary) + " classify " + backbone_ + " - --json < " + images +
                              "/a/2.png > " + (folder_ / "piped.json");
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(json(content(folder_ / "piped.json")).items()[0].at("tasks"), results.items()[0].at("tasks"));
  write(images + "/broken.png", "\x89PNG");
  expect_refused({"classify", backbone_, images}, {"broken.png"});
  expect_refused({"classify", backbone_, images + "/none.jpg"}, {"none.jpg", "not there"});
  expect_refused({"classify", backbone_, images + "/notes.txt"}, {"notes.txt"});
  expect_refused({"classify", backbone_, images + "/a", "--task", "onw"}, {"--task", "onw"});
  expect_refused({"classify", backbone_, images + "/a", "--top", "0"}, {"--top"});
  std::filesystem::create_directories(folder_ / "empty");
  expect_refused({"classify", backbone_, folder_ / "empty"}, {"expected images"});
}

// Two tasks are trained on a model and both attached: its own answers and those of the first task do not change.
TEST_F(TaskCommands, FinetunedTasksAreJoined) {
  const std::string images = folder_ / "set";
  data::make_class_folders(images, 6);
  const std::string recipe = folder_ / "images.toml";
  write(recipe, "[data]\ntype = \"images\"\ntrain = \"" + images +
                    "\"\nvalid_fraction = 0.2\nimage_size = [8, 8]\n[train]\nsteps = 3\nbatch_size = 4\nlog_every = 1\n"
                    "optimiser = { type = \"sgd\", lr = 0.1, momentum = 0.9 }\n");
  const std::string picture = data::golden_image("rgb_444.jpg");
  const auto asked = [&](const std::string& model) {
    return json(run({"classify", model, picture, "--json"}).out).items()[0].at("tasks");
  };
  const std::string untouched = bytes_of(backbone_);
  for (const char* regime : {"head", "masked_memory", "head_and_class_token", "memory", "adapters", "full"}) {
    SCOPED_TRACE(regime);
    const std::string out = folder_ / regime;
    const Finished outcome = run(
        {"finetune", recipe, "--model", backbone_, "--regime", regime, "--name", regime, "--out", out, "--quiet"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const std::string file = out + "/" + regime + ".task.safetensors";
    EXPECT_EQ(base::path_exists(file), std::string(regime) != "full");
    EXPECT_EQ(run({"classify", out, picture}).status, 0);
    if (std::string(regime) == "full") continue;
    ASSERT_EQ(run({"attach", backbone_, file, "--out", folder_ / (std::string(regime) + "_joined")}).status, 0);
    EXPECT_EQ(asked(folder_ / (std::string(regime) + "_joined")).at(regime), asked(out).at(regime));
    EXPECT_LT(base::file_size(file), base::file_size(out + "/model/model.safetensors"));
  }
  EXPECT_EQ(bytes_of(backbone_), untouched);
  const base::Node base = asked(backbone_).at("base"), masked = asked(folder_ / "masked_memory").at("masked_memory");
  ASSERT_EQ(run({"attach", backbone_, folder_ / "masked_memory/masked_memory.task.safetensors",
                 folder_ / "head/head.task.safetensors", "--out", joined_})
                .status,
            0);
  EXPECT_EQ(asked(joined_).at("base"), base);
  EXPECT_EQ(asked(joined_).at("masked_memory"), masked);
  expect_refused({"attach", joined_, folder_ / "memory/memory.task.safetensors"}, {"full", "masked"});
  // A task that extends another.
  ASSERT_EQ(run({"finetune", recipe, "--model", joined_, "--name", "more", "--set", "finetune.sees=[\"masked_memory\"]",
                 "--out", folder_ / "more", "--quiet"})
                .status,
            0);
  expect_refused({"attach", backbone_, folder_ / "more/more.task.safetensors"}, {"extension of 'masked_memory'"});
  ASSERT_EQ(run({"attach", joined_, folder_ / "more/more.task.safetensors"}).status, 0);
  EXPECT_EQ(asked(joined_).at("masked_memory"), masked);
  EXPECT_EQ(asked(joined_).size(), 4U);
  expect_refused({"train", recipe, "--set", "finetune.model=\"" + backbone_ + "\""}, {"mnemo finetune"});
  expect_refused({"finetune", recipe}, {"[finetune]", "--model"});
  expect_refused({"finetune", recipe, "--model", backbone_, "--set", "data.mean=[0.5,0.5,0.5]", "--out", folder_ / "x"},
                 {"mean", "images.json"});
}

// Data, an image recipe, and helpers to compare answers with them.
class TaskRuns : public TaskCommands {
 protected:
  TaskRuns() {
    data::make_class_folders(images_ + "/train", 4);
    data::make_class_folders(images_ + "/val", 2);
    write(recipe_,
          "[data]\ntype = \"images\"\ntrain = \"set/train\"\nvalid = \"set/val\"\nimage_size = [8, 8]\n[train]\nsteps "
          "= 3\nbatch_size = 4\nlog_every = 1\n"
          "threads = 1\n[finetune]\nmodel = \"backbone\"\nname = \"insects\"\n");
  }
  base::Node result(const std::vector<std::string>& arguments) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json(outcome.out);
  }
  /// The share of images below a folder for which that head's best label is their folder.
  double accuracy(const std::string& model, const std::string& head, const std::string& folder) {
    const base::Node all = result({"classify", model, folder, "--task", head, "--json"});
    int right = 0;
    for (const base::Node& image : all.items()) {
      const std::string path = image.at("image").as_string(),
                        label = image.at("tasks").at(head).items()[0].at("label").as_string();
      right += holds(path, "/" + label + "/") ? 1 : 0;
    }
    return static_cast<double>(right) / static_cast<double>(all.size());
  }

  std::string images_ = folder_ / "set", recipe_ = folder_ / "images.toml";
};

TEST_F(TaskRuns, EvalMeasuresTheHeadThatWasTrained) {
  const std::string out = folder_ / "run";
  const base::Node trained = result({"finetune", recipe_, "--out", out, "--json", "--quiet"}).at("held_out");
  const base::Node measured = result({"eval", out, "--json"});
  EXPECT_NEAR(measured.at("nll").as_double(), trained.at("nll").as_double(), 1e-6);
  EXPECT_EQ(measured.at("accuracy").as_double(), trained.at("accuracy").as_double());
  EXPECT_EQ(measured.at("predictions").as_int(), 6);
  // The model's own head has as many classes, but different answers.
  const base::Node own = result({"eval", out, "--task", "base", "--json"});
  EXPECT_GT(std::abs(own.at("nll").as_double() - trained.at("nll").as_double()), 1e-4);
  expect_refused({"eval", out, "--task", "insect"}, {"--task", "\"insect\"", "insects"});
  for (const char* name : {"set/train/dog/1.png", "set/val/dog/1.png"}) data::place_image(folder_ / name, "rgb8.png");
  expect_refused({"eval", out},
                 {"class \"dog\" of the data is none of the head 'insects'", "3 classes", "the data's 4"});
  // Four classes, while the model has three.
  const base::Node more = result(
                              {"finetune", recipe_, "--name", "more", "--out", folder_ / "more", "--json", "--quiet"})
                              .at("held_out");
  EXPECT_NEAR(result({"eval", folder_ / "more", "--json"}).at("nll").as_double(), more.at("nll").as_double(), 1e-6);
}

TEST_F(TaskRuns, EvalTakesTheFolderOfAnySet) {
  // Different names: matched by order, with a warning.
  const Finished by_order = run({"eval", backbone_, "--data", images_, "--json"});
  ASSERT_EQ(by_order.status, 0) << by_order.err;
  EXPECT_TRUE(holds(by_order.err, "by order")) << by_order.err;
  EXPECT_EQ(json(by_order.out).at("predictions").as_int(), 6) << "the part val";
  EXPECT_EQ(result({"eval", backbone_, "--data", images_, "--part", "train", "--json"}).at("predictions").as_int(), 12);
  EXPECT_EQ(result({"eval", backbone_, "--data", images_ + "/train", "--json"}).at("predictions").as_int(), 12)
      << "no parts: all";
  // The same names in another order.
  write(backbone_ + "/classes.txt", "cat\nant\nbee\n");
  const Finished by_name = run({"eval", backbone_, "--data", images_, "--json", "--part", "train"});
  EXPECT_FALSE(holds(by_name.err, "by order")) << by_name.err;
  EXPECT_DOUBLE_EQ(json(by_name.out).at("accuracy").as_double(), accuracy(backbone_, "base", images_ + "/train"));
  std::filesystem::remove_all(images_ + "/val");
  std::filesystem::remove_all(images_ + "/train/bee");
  EXPECT_EQ(result({"eval", backbone_, "--data", images_, "--json"}).at("predictions").as_int(), 8)
      << "some of the classes";
  write(backbone_ + "/classes.txt", "red\ngreen\nblue\n");
  expect_refused({"eval", backbone_, "--data", images_}, {"class \"ant\"", "3 classes", "the data's 2"});
  expect_refused({"eval", backbone_, "--data", text_}, {"folder of an image set", "found a file"});
  expect_refused({"eval", backbone_, "--data", images_, "--part", "test"}, {"has no part test"});
  expect_refused({"eval", backbone_, "--data", images_, "--segment-size", "4"}, {"go with texts"});
  expect_refused({"eval", backbone_}, {"no run's folder", "image set"});
}

TEST_F(TaskRuns, RegimesAreCompared) {
  const std::string out = folder_ / "compared";
  write(recipe_, content(recipe_) +
                     "[sweep]\nseeds = [0, 1]\n[[study]]\nname = \"Insects\"\n[[study.variant]]\nname = "
                     "\"head\"\nfinetune = { regime = \"head\" }\n"
                     "[[study.variant]]\nname = \"memory\"\nfinetune = { regime = \"memory\", num_mem_tokens = 2 }\n");
  const Finished outcome = run({"compare", recipe_, "--out", out, "--jobs", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "Insects")) << outcome.out;
  const std::string page = content(out + "/report.html");
  for (const char* part : {"num_mem_tokens = 2", "regime = ", "Insects"}) EXPECT_TRUE(holds(page, part)) << part;
  EXPECT_EQ(json(content(out + "/results.json")).at("trainings").as_string(), "4 trainings, seeds 0, 1");
}

TEST_F(TaskRuns, MemoriesOfImagesAreCompared) {
  const std::string out = folder_ / "compared", recipe = folder_ / "memories.toml";
  write(recipe,
        "[data]\ntype = \"images\"\ntrain = \"set/train\"\nvalid = \"set/val\"\nimage_size = [8, 8]\n[model]\nbackbone "
        "= { type = \"vit\", image_size = [8, 8], "
        "patch_size = 4, dim = 8, num_layers = 1, num_heads = 2 }\nhead = { type = \"classification\", num_classes = 3 "
        "}\n[train]\nsteps = 3\nbatch_size = 4\nthreads = 1\n"
        "[[study]]\nname = \"Caches\"\n[[study.variant]]\nname = \"none\"\n[[study.variant]]\nname = "
        "\"GRC\"\nmodel.memory = [{ type = \"grc\", cache_ratio = 0.5 }]\n");
  const Finished outcome = run({"compare", recipe, "--out", out, "--jobs", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string page = content(out + "/report.html");
  for (const char* part : {"cache_ratio = 0.5", "Caches", "\u03c3(\u03bb)", "training images/s", "training images\""})
    EXPECT_TRUE(holds(page, part)) << part;
  for (const char* part : {"tokens/s", "Each row is a query"}) EXPECT_FALSE(holds(page, part)) << part;
}

TEST_F(TaskRuns, AModelDataAndANameAreEnoughToFinetune) {
  const std::string out = folder_ / "clothes";
  const Finished outcome = run({"finetune", "--model", backbone_, "--data", images_, "--name", "clothes", "--out", out,
                                "--set", "train.steps=2", "--quiet"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(base::path_exists(out + "/clothes.task.safetensors"));
  EXPECT_TRUE(holds(content(out + "/model/README.md"), "mnemo finetune --model backbone --name clothes --data set"));
  ASSERT_EQ(run({"attach", backbone_, out + "/clothes.task.safetensors", "--out", joined_}).status, 0);
  EXPECT_EQ(run({"finetune", "--resume", out, "--set", "train.steps=3", "--quiet"}).status, 0);
  EXPECT_EQ(result({"eval", out, "--json"}).at("predictions").as_int(), 6);
  expect_refused({"finetune", "--model", backbone_}, {"expected --data DIR", "found none"});
  expect_refused(
      {"finetune", "--model", backbone_, "--data", images_, "--out", folder_ / "x", "--set", "data.image_size=[6, 6]"},
      {"image_size", "images.json"});
  std::filesystem::remove(backbone_ + "/images.json");
  expect_refused({"finetune", "--model", backbone_, "--data", images_, "--out", folder_ / "x"},
                 {"images.json", "not there"});
}

TEST_F(TaskRuns, AStoppedFinetuningSaysHowToGoOn) {
  const std::string out = folder_ / "long";
  Process process(folder_, {"finetune", recipe_, "--out", out, "--set", "train.steps=1000000"});
  ASSERT_TRUE(
      wait_for([&] { return base::path_exists(out + "/log.jsonl") && base::file_size(out + "/log.jsonl") > 0; }));
  process.signal(SIGINT);
  const Finished stopped = process.finish();
  EXPECT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_TRUE(holds(stopped.err, "to go on: mnemo finetune --resume " + out)) << stopped.err;
  expect_refused({"finetune", "--resume", out, "--out", folder_ / "x"}, {"finetune: --resume"});
  expect_refused({"train", "--resume", out}, {"mnemo finetune"});
}

TEST_F(TaskRuns, TheModelsOwnHeadIsRefusedWhereATaskHasChangedItsRows) {
  const std::string picture = data::golden_image("rgb_444.jpg");
  for (const char* regime : {"memory", "head_and_class_token", "adapters"}) {
    SCOPED_TRACE(regime);
    const std::string out = folder_ / regime;
    ASSERT_EQ(run({"finetune", recipe_, "--regime", regime, "--out", out, "--quiet"}).status, 0);
    expect_refused({"classify", out, picture, "--task", "base"}, {"--task", "base", "'insects' has changed"});
    expect_refused({"eval", out, "--task", "base"}, {"base", "'insects' has changed"});
  }
}

TEST_F(TaskRuns, InspectReadsTheModelThatFinetuningStartsFrom) {
  const Finished shown = run({"inspect", recipe_});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_TRUE(holds(shown.out, "task.insects")) << shown.out;
  EXPECT_EQ(run({"inspect", recipe_, "--image", data::golden_image("rgb_444.jpg")}).status, 0);
}

TEST_F(TaskRuns, ASizeThatDoesNotFitIsFoundBeforeTheRunBegins) {
  std::filesystem::remove(backbone_ + "/images.json");
  const std::string out = folder_ / "odd";
  expect_refused({"finetune", recipe_, "--out", out, "--set", "data.image_size=[10, 8]"},
                 {"data.image_size", "10 x 8"});
  EXPECT_FALSE(base::path_exists(out));
}

TEST_F(TaskRuns, ClassesAreNamedInUtf8) {
  std::filesystem::rename(images_ + "/train/ant", images_ + "/train/a\xff");
  std::filesystem::rename(images_ + "/val/ant", images_ + "/val/a\xff");
  expect_refused({"finetune", recipe_, "--out", folder_ / "x"}, {"class \"a\\xff\"", "not UTF-8"});
}

TEST_F(TaskCommands, ClassifySkipsAndCountsBrokenImages) {
  const std::string images = folder_ / "images";
  data::place_image(images + "/a/1.jpg", "photo_7865c0.jpg");
  data::place_image(images + "/c/3.png", "rgb8.png");
  write(images + "/a/2.png", "\x89PNG");
  write(images + "/a/4.gif", "GIF89a");
  expect_refused({"classify", backbone_, images, "--json"}, {"2.png"});
  for (const char* batch : {"1", "8"}) {
    const Finished outcome = run({"classify", backbone_, images, "--broken", "skip", "--json", "--batch", batch});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, "2 of 4 images skipped")) << outcome.err;
    const base::Node all = json(outcome.out);
    ASSERT_EQ(all.size(), 4U);
    EXPECT_TRUE(holds(all.items()[1].at("error").as_string(), "2.png"));
    EXPECT_TRUE(holds(all.items()[2].at("error").as_string(), "looks like GIF"));
    const base::Node &found = all.items()[3].at("tasks").at("base").items()[0],
                     alone = result_of(images + "/c/3.png").at("base").items()[0];
    EXPECT_EQ(found.at("label"), alone.at("label"));
    EXPECT_NEAR(found.at("probability").as_double(), alone.at("probability").as_double(), 1e-6);
  }
  expect_refused({"classify", backbone_, images, "--broken", "stopp"}, {"--broken", "stopp"});
  std::filesystem::permissions(images + "/a", std::filesystem::perms::none);
  // A user who may read everything can also read this.
  if (::access((images + "/a").c_str(), R_OK) != 0)
    expect_refused({"classify", backbone_, images}, {"images", "cannot list the directory"});
  std::filesystem::permissions(images + "/a", std::filesystem::perms::owner_all);
}

TEST_F(TaskCommands, NamesFromOutsideAreShownAsTheyCanBe) {
  write(backbone_ + "/classes.txt", "r\x1b[31med\ng\xffreen\nblue\n");
  const std::string picture = folder_ / "w\xffird.png";
  data::place_image(picture, "rgb8.png");
  const Finished text = run({"classify", backbone_, picture, picture});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_FALSE(holds(text.out, "\x1b")) << text.out;
  for (const char* part : {"r\\x1b[31med", "g\\xffreen", "w\\xffird.png"})
    EXPECT_TRUE(holds(text.out, part)) << text.out;
  const base::Node image = json(run({"classify", backbone_, picture, "--json"}).out).items()[0];
  EXPECT_TRUE(holds(image.at("image").as_string(), "w\\xffird.png"));
  EXPECT_EQ(image.at("tasks").at("base").size(), 3U);
  data::make_class_folders(folder_ / "set", 1);
  std::filesystem::rename(folder_ / "set/ant", folder_ / "set/a\xff\x1b");
  EXPECT_TRUE(holds(run({"data", folder_ / "set"}).out, "a\\xff\\x1b, bee"));
  const Finished described = run({"data", folder_ / "set", "--json"});
  ASSERT_EQ(described.status, 0) << described.err;
  EXPECT_EQ(json(described.out).at("classes").items()[0].as_string(), "a\\xff\\x1b");
}

TEST_F(TaskCommands, AFolderInsideTheModelsIsNoFileOfIt) {
  write(backbone_ + "/notes.txt", "kept");
  std::filesystem::create_directories(backbone_ + "/.git/objects");
  ASSERT_EQ(run({"attach", backbone_, task("one"), "--out", joined_}).status, 0);
  EXPECT_EQ(content(joined_ + "/notes.txt"), "kept");
  expect_refused({"attach", backbone_, task("one")}, {".git", "not overwritten"});
}

TEST_F(TaskCommands, TheCostHasTheHeadsOfAllTasks) {
  ASSERT_EQ(run({"attach", backbone_, task("one"), task("two"), "--out", joined_}).status, 0);
  const auto head_flops = [&](const std::string& model) {
    const base::Node facts = json(run({"inspect", model, "--cost", "--json"}).out);
    for (const base::Node& part : facts.at("cost").at("parts").items()) {
      if (part.at("part").as_string() == "head") return part.at("flops").as_int();
    }
    return int64_t{0};
  };
  EXPECT_EQ(head_flops(backbone_), 2 * 8 * 3);
  EXPECT_EQ(head_flops(joined_), 2 * 8 * (3 + 2 + 2));
}

TEST_F(TaskCommands, MoreMemoryThanThereIsIsWrongInput) {
  expect_refused({"inspect", backbone_, "--cost", "--batch", "65536", "--image-size", "16384x16384"},
                 {"out of memory", "image_size"});
  write(backbone_ + "/images.json", R"({"image_size": [16384, 16384]})");
  expect_refused({"classify", backbone_, data::golden_image("rgb8.png")},
                 {"images.json", "image_size", "16777216 pixels"});
}

}  // namespace
}  // namespace mnemo::test
