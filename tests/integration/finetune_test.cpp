// Fine-tuning on the command line, and reports about the resulting models.
#include <torch/types.h>

#include <filesystem>

#include "base/file_io.h"
#include "tests/integration/task_commands.h"
#include "tests/unit/data/image_files.h"

namespace mnemo::test {
namespace {

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
                 {"class \"dog\" of the data is not a class of the head 'insects'", "3 classes", "the data's 4"});
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
  // Class names in another order.
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
  expect_refused({"eval", backbone_}, {"not in a run's folder", "image set"});
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
  // A task that is attached in the run's folder is not lost.
  const std::string shoes = folder_ / "shoes";
  ASSERT_EQ(run({"finetune", "--model", backbone_, "--data", images_, "--name", "shoes", "--out", shoes, "--set",
                 "train.steps=2", "--quiet"})
                .status,
            0);
  ASSERT_EQ(run({"attach", out, shoes + "/shoes.task.safetensors"}).status, 0);
  expect_refused({"finetune", "--resume", out, "--set", "train.steps=3"}, {"tasks are attached to this model"});
  ASSERT_EQ(run({"detach", out, "shoes"}).status, 0);
  EXPECT_EQ(run({"finetune", "--resume", out, "--set", "train.steps=3", "--quiet"}).status, 0);
  EXPECT_EQ(result({"eval", out, "--json"}).at("predictions").as_int(), 6);
  expect_refused({"finetune", "--model", backbone_}, {"--model needs --data DIR"});
  expect_refused({"finetune", "--model", folder_ / "none", "--data", images_}, {"none: no such folder"});
  expect_refused(
      {"finetune", "--model", backbone_, "--data", images_, "--out", folder_ / "x", "--set", "data.image_size=[6, 6]"},
      {"image_size", "images.json"});
  std::filesystem::remove(backbone_ + "/images.json");
  expect_refused({"finetune", "--model", backbone_, "--data", images_, "--out", folder_ / "x"},
                 {"images.json", "missing"});
}

TEST_F(TaskRuns, AStoppedFinetuningSaysHowToGoOn) {
  const std::string out = folder_ / "long";
  Process process(folder_, {"finetune", recipe_, "--out", out, "--set", "train.steps=1000000"});
  ASSERT_TRUE(
      wait_for([&] { return base::path_exists(out + "/log.jsonl") && base::file_size(out + "/log.jsonl") > 0; }));
  process.signal(SIGINT);
  const Finished stopped = process.finish();
  EXPECT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_TRUE(holds(stopped.err, "to resume: mnemo finetune --resume " + out)) << stopped.err;
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

}  // namespace
}  // namespace mnemo::test
