// Task memories on the command line: attached, used, detached.
#include <torch/types.h>

#include <cmath>
#include <filesystem>

#include "base/file_io.h"
#include "models/image_model.h"
#include "tests/integration/task_commands.h"
#include "tests/unit/data/image_files.h"

namespace mnemo::test {
namespace {

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
  write_model(models::ImageModel(options, 1, at::kFloat), bare);
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
  for (const char* regime : {"head", "masked_memory", "head_and_class_token", "memory", "adapters",
                             "memory_and_adapters", "unmasked_memory", "full"}) {
    SCOPED_TRACE(regime);
    const std::string out = folder_ / regime;
    const Finished outcome = run(
        {"finetune", recipe, "--model", backbone_, "--regime", regime, "--name", regime, "--out", out, "--quiet"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const std::string file = out + "/" + regime + ".task.safetensors";
    EXPECT_EQ(base::path_exists(file), std::string(regime) != "full");
    EXPECT_EQ(run({"classify", out, picture}).status, 0);
    if (std::string(regime) == "full") continue;
    const Finished attached = run({"attach", backbone_, file, "--out", folder_ / (std::string(regime) + "_joined")});
    ASSERT_EQ(attached.status, 0) << attached.err;
    const bool masked = std::string(regime) == "head" || std::string(regime) == "masked_memory";
    EXPECT_TRUE(holds(attached.out, masked ? "1 task beside its own head" : "1 task in place of its own head"));
    EXPECT_EQ(holds(attached.err, "that head no longer works"), !masked) << attached.err;
    EXPECT_EQ(asked(folder_ / (std::string(regime) + "_joined")).find("base") != nullptr, masked);
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
  // A head alone has no class row, so nothing sees it and it sees nothing.
  const std::string head = folder_ / "head/head.task.safetensors",
                    memory = folder_ / "masked_memory/masked_memory.task.safetensors";
  for (const auto& [first, second] : {std::pair(head, memory), std::pair(memory, head)})
    EXPECT_EQ(run({"attach", backbone_, first, second, "--extend", "--out", folder_ / "extended"}).status, 0);
  expect_refused({"attach", joined_, folder_ / "memory/memory.task.safetensors"}, {"full", "masked"});
  // Tasks without a mask change one another, which is said.
  const std::string unmasked = folder_ / "unmasked_memory/unmasked_memory.task.safetensors", both = folder_ / "both";
  ASSERT_EQ(run({"finetune", recipe, "--model", backbone_, "--regime", "unmasked_memory", "--name", "other", "--set",
                 "train.seed=7", "--out", folder_ / "other", "--quiet"})
                .status,
            0);
  const Finished two = run({"attach", backbone_, unmasked, folder_ / "other/other.task.safetensors", "--out", both});
  ASSERT_EQ(two.status, 0) << two.err;
  EXPECT_TRUE(holds(two.err, "the tasks of this model change one another's results")) << two.err;
  EXPECT_NE(asked(both).at("unmasked_memory"), asked(folder_ / "unmasked_memory").at("unmasked_memory"));
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
  expect_refused({"inspect", backbone_, "--cost", "--batch", "65536", "--image-size", "4096x4096"},
                 {"cost: batch: expected at most 4 images", "found 65536"});
  write(backbone_ + "/images.json", R"({"image_size": [16384, 16384]})");
  expect_refused({"classify", backbone_, data::golden_image("rgb8.png")},
                 {"images.json", "image_size", "16777216 pixels"});
}

}  // namespace
}  // namespace mnemo::test
