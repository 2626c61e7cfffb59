// Training and measuring detectors: parts and ranks equal one process, exact resume, evaluation, kinds of models.
#include "tasks/detection.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <torch/types.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "base/error.h"
#include "core/level_head.h"
#include "data/images/image_reader.h"
#include "metrics/coco.h"
#include "models/image_model.h"
#include "models/model.h"
#include "models/stoppable.h"
#include "tasks/found_objects.h"
#include "tasks/registry.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/painted_objects.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"
#include "train/trainer.h"
#include "weights/checkpoint.h"

namespace mnemo::train {
namespace {

using base::Node;

const std::string& painted() {
  static const test::TemporaryFolder folder;
  static const std::string file = [] {
    test::paint_objects(folder.path(), 12);
    return folder / "instances_painted.json";
  }();
  return file;
}

data::DetectionOptions painted_options() {
  data::DetectionOptions options;
  options.train = options.valid = painted();
  options.sides = {64, 72};
  options.longest = 96;
  return options;
}

tasks::Detection painted_task(bool masks, int64_t batch, int64_t eval_batch = 5) {
  const data::DetectionOptions options = painted_options();
  return {data::load_detections(options, masks),
          options,
          {.batch_size = batch, .seed = 5, .eval_batch_size = eval_batch, .masks = masks}};
}

std::unique_ptr<models::Model> detector(const std::string& head, bool cached, at::ScalarType dtype = at::kFloat,
                                        const char* convention = "mmdetection") {
  models::ModelOptions options = base::read_options<models::ModelOptions>(
      base::parse_toml(test::small_detector(head, cached), "test"));
  options.set_num_classes(2);
  options.head.set("convention", convention);
  return models::build(options, 3, dtype);
}

/// The task with pixels in float64, so that sums in another order differ by little.
class InDouble final : public tasks::Task {
 public:
  explicit InDouble(tasks::Detection& task) : task_(task) {}
  std::string metric() const override { return task_.metric(); }
  bool lower_is_better() const override { return false; }
  std::optional<double> metric_of_loss(double) const override { return std::nullopt; }
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return task_.batch_size(); }
  std::vector<data::Batch> next(const core::ModelInput& input) override {
    std::vector<data::Batch> batches = task_.next(input);
    batches[0].input.pixels = batches[0].input.pixels.to(at::kDouble);
    return batches;
  }
  std::vector<std::string> loss_parts(const core::Model& model) const override { return task_.loss_parts(model); }
  tasks::TaskLoss loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                       int64_t targets) const override {
    return task_.loss(model, step, batch, targets);
  }
  bool has(data::Part) const override { return false; }
  std::optional<tasks::Evaluation> evaluate(const core::Model&, data::Part) const override { return {}; }
  weights::NamedTensors save() const override { return task_.save(); }
  void load(const std::function<at::Tensor(const std::string&)>& find) override { task_.load(find); }

 private:
  tasks::Detection& task_;
};

TrainOptions training(int64_t steps, int64_t batch) {
  TrainOptions options;
  options.steps = steps;
  options.batch_size = batch;
  options.shuffle = true;
  options.optimiser = Node::table({{"type", "adamw"}, {"lr", 0.002}});
  options.log_every = 2;
  options.eval_every = 1000;
  options.tensorboard = options.report = false;
  return options;
}

/// Losses with their parts, norms of gradients and the parameters of two steps.
std::vector<at::Tensor> two_steps(const std::string& head, bool cached, int64_t accumulate, std::mutex& mutex,
                                  const std::shared_ptr<distributed::Group>& group = nullptr) {
  TrainOptions options = training(2, 4);
  options.accumulate = accumulate;
  std::unique_lock lock(mutex);
  const auto model = detector(head, cached, at::kDouble);
  tasks::Detection inner = painted_task(head == "mask_rcnn", 4);
  InDouble task(inner);
  Trainer trainer(*model, task, options, {}, {}, group);
  lock.unlock();
  std::vector<at::Tensor> found;
  for (int step = 0; step < 2; ++step) {
    const StepOutcome outcome = trainer.step();
    EXPECT_EQ(outcome.targets, 4);
    std::vector<double> numbers = {outcome.loss, outcome.total, outcome.gradient_norm};
    double sum = 0;
    for (const double part : outcome.parts) sum += part;
    EXPECT_NEAR(sum, outcome.loss, 1e-9);
    numbers.insert(numbers.end(), outcome.parts.begin(), outcome.parts.end());
    found.push_back(at::tensor(numbers, at::kDouble));
  }
  for (const auto& [name, tensor] : model->parameters().named()) found.push_back(tensor.detach().clone());
  for (const auto& [field, tensor] : model->initial_state(1).fields()) found.push_back(tensor.detach().clone());
  return found;
}

void expect_near(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(test::difference(found[i], expected[i]), 1e-9) << i;
}

TEST(DetectionTask, InPartsItIsTheWholeBatch) {
  std::mutex mutex;
  for (const char* head : {"retinanet", "mask_rcnn"}) {
    const std::vector<at::Tensor> whole = two_steps(head, true, 1, mutex);
    for (const int64_t parts : {2, 4}) {
      SCOPED_TRACE(fmt::format("{} in {} parts", head, parts));
      expect_near(two_steps(head, true, parts, mutex), whole);
    }
  }
}

TEST(DetectionTask, OnTwoRanksItIsOneProcess) {
  if (!distributed::available()) GTEST_SKIP() << "built without Gloo's headers";
  std::mutex mutex;
  for (const char* head : {"retinanet", "mask_rcnn"}) {
    const std::vector<at::Tensor> alone = two_steps(head, true, 1, mutex);
    std::vector<std::vector<at::Tensor>> ranks(2);
    test::on_thread_ranks(2, [&](const std::shared_ptr<distributed::Group>& group) {
      ranks[static_cast<size_t>(group->rank())] = two_steps(head, true, 2, mutex, group);
    });
    for (const std::vector<at::Tensor>& rank : ranks) expect_near(rank, alone);
  }
}

/// One image of a batch by itself: cut to its own size and padded with garbage to multiples of 32.
data::Batch alone(const data::Batch& batch, int64_t b) {
  data::Batch one = data::rows(batch, b, 1);
  auto targets = one.targets.as<data::DetectionTargets>();
  const int64_t height = targets.sizes[0][0].item<int64_t>(), width = targets.sizes[0][1].item<int64_t>();
  const auto cut = [&](const at::Tensor& all) {
    return all.slice(-2, 0, (height + 31) / 32 * 32).slice(-1, 0, (width + 31) / 32 * 32).clone();
  };
  one.input.pixels = cut(one.input.pixels);
  one.input.valid = cut(one.input.valid);
  one.input.pixels.slice(2, height).fill_(3.0);
  one.input.pixels.slice(3, width).fill_(-2.0);
  if (targets.masks.values.defined()) targets.masks.values = cut(targets.masks.values);
  one.targets = targets;
  one.num_targets = 1;
  return one;
}

// Law 13 through a recipe's task: the loss, its gradients and the cache.
TEST(DetectionTask, AnImagesLossDoesNotDependOnItsCompany) {
  for (const char* head : {"retinanet", "mask_rcnn"}) {
    for (const bool cached : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", head, cached));
      const auto model = detector(head, cached, at::kDouble);
      tasks::Detection inner = painted_task(std::string(head) == "mask_rcnn", 4);
      InDouble task(inner);
      data::Batch batch = task.next(model->input())[0];
      batch.input.mode = core::Mode::train;
      EXPECT_FALSE(batch.input.valid.all().item<bool>()) << "no image is smaller than the batch";
      for (int64_t b = 0; b < 4; ++b) {
        std::vector<at::Tensor> losses, gradients;
        std::vector<core::State> states;
        for (data::Batch part : {data::rows(batch, b, 1), alone(batch, b)}) {
          model->parameters().zero_grad();
          const core::StepResult step = model->forward(part.input, model->initial_state(1));
          const tasks::TaskLoss loss = task.loss(*model, step, part, 1);
          loss.total.backward();
          losses.push_back(loss.parts);
          states.push_back(step.state);
          gradients.push_back(model->parameters().named()[0].second.grad().clone());
        }
        EXPECT_GT(test::largest(losses[0]), 0);
        EXPECT_LE(test::difference(losses[0], losses[1]), 1e-9);
        EXPECT_LE(test::difference(gradients[0], gradients[1]), 1e-9 * (1 + test::largest(gradients[0])));
        const auto fields = states[0].fields(), others = states[1].fields();
        for (size_t i = 0; i < fields.size(); ++i)
          EXPECT_LE(test::difference(fields[i].second, others[i].second), 1e-9) << fields[i].first.path;
      }
    }
  }
}

TEST(DetectionTask, ABatchIsMeasuredAsOneByOne) {
  for (const auto& [head, convention] :
       {std::pair("retinanet", "mmdetection"), {"mask_rcnn", "mmdetection"}, {"mask_rcnn", "torchvision"}}) {
    const auto model = detector(head, true, at::kDouble, convention);
    {
      const at::NoGradGuard no_grad;
      test::Numbers numbers(6);
      for (const auto& [name, tensor] : model->parameters().named())  // scores of a fresh model are all alike
        at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * (tensor.dim() == 1 ? 0.4 : 0.15));
    }
    const bool masks = std::string(head) == "mask_rcnn";
    data::DetectionOptions options = painted_options();
    options.sides = {64};  // 64 x 64 pixels alone, padded to 96 x 64 in a batch
    const auto found = [&](int64_t eval_batch) {
      const tasks::Detection task(data::load_detections(options, masks), options,
                                  {.batch_size = 2, .eval_batch_size = eval_batch, .masks = masks});
      return task.detections(*model, data::Part::valid).detections;
    };
    const auto one = found(1), all = found(12);
    ASSERT_EQ(one.size(), all.size());
    EXPECT_GT(one.size(), 12U);
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(one[i].image, all[i].image);
      EXPECT_EQ(one[i].category, all[i].category);
      EXPECT_NEAR(one[i].score, all[i].score, 1e-10);
      for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(one[i].box[k], all[i].box[k], 1e-7);
      EXPECT_EQ(one[i].mask.counts, all[i].mask.counts);
    }
  }
}

TEST(DetectionTask, AResumedRunIsBitwiseTheUninterruptedOne) {
  const test::TemporaryFolder folder;
  const auto run = [&](const std::string& path, int64_t last) {
    const auto model = detector("mask_rcnn", true);
    tasks::Detection task = painted_task(true, 2);
    Trainer trainer(*model, task, training(5, 2), path);
    trainer.resume_latest();
    RunHooks hooks;
    hooks.should_stop = [&] { return trainer.steps_done() == last ? SIGTERM : 0; };
    hooks.show_progress = false;
    return trainer.run(hooks).history;
  };
  const History whole = run(folder / "whole", 5);
  run(folder / "cut", 3);
  const History cut = run(folder / "cut", 5);
  ASSERT_EQ(whole.losses.size(), 3U);
  ASSERT_EQ(whole.losses[1].scalars.size(), cut.losses[1].scalars.size());
  EXPECT_EQ(whole.losses[1].scalars[0].name, "loss.objectness");
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(cut.losses[1].scalars[i].values, whole.losses[1].scalars[i].values) << i;
  const weights::CheckpointReader one(folder / "whole/step-00000005"), other(folder / "cut/step-00000005");
  for (const weights::CheckpointFile& file : one.info().files) {
    if (file.name == "timing.safetensors") continue;
    EXPECT_TRUE(one.file(file.name) == other.file(file.name)) << file.name;
  }
}

TEST(DetectionTask, LearnsAndIsMeasuredAsCocoDoes) {
  const auto model = detector("retinanet", false);
  tasks::Detection task = painted_task(false, 4);
  const double before = task.evaluate(*model, data::Part::valid)->at("ap");
  Trainer trainer(*model, task, training(150, 4));
  RunHooks hooks;
  hooks.show_progress = false;
  const TrainReport report = trainer.run(hooks);
  const tasks::Evaluation& found = report.history.evaluations.back().evaluation;
  EXPECT_GT(found.at("ap50"), before + 0.3);
  EXPECT_EQ(found.predictions, 12);
  const auto measured = task.detections(*model, data::Part::valid);
  const auto scores = metrics::coco_scores(measured.set, measured.detections, data::CocoParts::boxes);
  EXPECT_EQ(found.at("ap"), scores.all[0]);
  EXPECT_EQ(found.at("ar100"), scores.all[8]);
  EXPECT_EQ(found.notes.at(0).second.at("red").as_double(), scores.of_category[0][0]);
  EXPECT_TRUE(task.picture(*model).starts_with("<svg")) << "of its held-out images";
  EXPECT_TRUE(std::none_of(found.metrics.begin(), found.metrics.end(), [](const auto& metric) {
    return metric.first == "ap_large";
  })) << "there is nothing of that size";
}

TEST(DetectionTask, RanksMeasureTheSame) {
  if (!distributed::available()) GTEST_SKIP() << "built without Gloo's headers";
  const auto model = detector("mask_rcnn", false);
  const tasks::Evaluation alone = *painted_task(true, 2).evaluate(*model, data::Part::valid);
  EXPECT_NO_THROW(alone.at("mask_ap"));
  test::on_thread_ranks(2, [&](const std::shared_ptr<distributed::Group>& group) {
    tasks::Detection task = painted_task(true, 2);
    task.share_evaluations(group);
    EXPECT_EQ(task.evaluate(*model, data::Part::valid)->metrics, alone.metrics);
  });
}

TEST(FoundObjects, AreInPixelsOfTheImageAndOfAnyWrappedModel) {
  const std::shared_ptr<models::Model> model = detector("mask_rcnn", false);
  data::Image image(30, 50);
  data::DetectionTransformOptions options;
  options.sides = {60};
  const tasks::PreparedImages prepared = tasks::prepare_image(data::DetectionTransform(options), image, 32);
  EXPECT_EQ(prepared.pixels.sizes(), (std::vector<int64_t>{1, 3, 64, 128}));
  EXPECT_EQ(prepared.sizes[0], (tasks::ImageSize{60, 100}));
  const auto found = tasks::find_objects(*model, prepared, {.top = 4}).front();
  ASSERT_EQ(found.size(), 4U);
  for (const tasks::FoundObject& object : found) {
    EXPECT_LE(object.box[2], 50.0 + 1e-6);
    EXPECT_LE(object.box[3], 30.0 + 1e-6);
    EXPECT_EQ(object.mask.height, 30);
    EXPECT_EQ(object.mask.width, 50);
  }
  EXPECT_GE(found[0].score, found[3].score);
  EXPECT_TRUE(tasks::find_objects(*model, prepared, {.threshold = 1.0}).front().empty());
  const auto wrapped = models::stoppable(model, [] { return 0; });
  EXPECT_EQ(tasks::find_objects(*wrapped, prepared, {.top = 4})[0][0].box, found[0].box);
}

/// The same weights find objects of half the size with anchors of half the size.
TEST(FoundObjects, AreAsSmallAsTheAnchorsSay) {
  data::DetectionTransformOptions options;
  options.sides = {64};
  const tasks::PreparedImages image = tasks::prepare_image(data::DetectionTransform(options), data::Image(64, 64), 32);
  for (const auto& [head, scale] : {std::pair("retinanet", 4.0), std::pair("mask_rcnn", 8.0)}) {
    const auto smallest = [&, head = head](double anchors) {
      models::ModelOptions model = detector(head, false)->options();
      model.head.set("anchor_scale", anchors);
      model.head.set("score_thresh", 0.0);
      model.head.set("detections", 1000);
      double width = 64;
      const auto found = tasks::find_objects(*models::build(model, 1), image, {.threshold = 0, .top = 1000});
      for (const tasks::FoundObject& object : found.front()) width = std::min(width, object.box[2] - object.box[0]);
      return width;
    };
    EXPECT_NEAR(smallest(scale) / smallest(scale / 2), 2, 0.4) << head;
  }
}

// All objects of a batch are held together, so masks are no bitmaps.
TEST(FoundObjects, MasksTakeLittleMemory) {
  constexpr int64_t kSide = 600;
  const auto model = detector("mask_rcnn", false);
  const auto found = tasks::find_objects(*model, {at::rand({1, 3, 64, 64}), {{64, 64}}, {{kSide, kSide}}}).front();
  ASSERT_GT(found.size(), 8U);
  size_t bytes = 0;
  for (const tasks::FoundObject& object : found) bytes += object.mask.counts.size() * sizeof(object.mask.counts[0]);
  EXPECT_GT(bytes, 0U);
  EXPECT_LT(bytes, found.size() * kSide * kSide / 10);
}

// Images are turned by EXIF; annotations and results are of the stored pixels.
TEST(DetectionTask, MasksAreOfTheStoredPixels) {
  const std::string folder = MNEMO_SOURCE_DIR "/tests/golden/data/images/files";
  data::CocoSet set{.path = "set", .categories = {{1, "a"}, {2, "b"}}};
  for (const char* file : {"orientation_1.jpg", "orientation_6.jpg", "orientation_8.jpg"}) {
    const data::ImageHeader header = data::read_image_header(base::join_path(folder, file));
    const bool turned = header.orientation >= 5;
    set.images.push_back({static_cast<int64_t>(set.images.size()) + 1, file, turned ? header.width : header.height,
                          turned ? header.height : header.width});
  }
  const auto images = std::make_shared<const data::AnnotatedImages>(set, folder, false);
  const data::DetectionOptions options = painted_options();
  const tasks::Detection task({images, images, {}, {"a", "b"}}, options, {.masks = true});
  const auto found = task.detections(*detector("mask_rcnn", false), data::Part::valid).detections;
  std::set<int32_t> seen;
  for (const data::CocoDetection& one : found) {
    const data::CocoImage& image = set.images[static_cast<size_t>(one.image)];
    ASSERT_EQ(one.mask.height, image.height);
    ASSERT_EQ(one.mask.width, image.width);
    const data::XywhBox inside = data::rle_box(one.mask);
    if (inside[2] == 0) continue;
    seen.insert(one.image);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_GE(inside[i], one.box[i] - 1.0);
      EXPECT_LE(inside[i] + inside[i + 2], one.box[i] + one.box[i + 2] + 1.0);
    }
  }
  EXPECT_EQ(seen.size(), 3U);
}

TEST(DetectionTask, TrainingCrowdsNeedMasksToBeMeasured) {
  const data::DetectionOptions options = painted_options();
  data::DetectionSets sets = data::load_detections(options, true);
  data::CocoSet set = sets.train->set();
  set.objects[0].crowd = true;
  set.objects[0].segmentation = {};
  sets.train = std::make_shared<const data::AnnotatedImages>(set, sets.train->folder(), true);
  const tasks::Detection task(sets, options, {.masks = true});
  const auto model = detector("mask_rcnn", false);
  EXPECT_TRUE(task.evaluate(*model, data::Part::valid));
  test::expect_error<base::InputError>([&] { task.evaluate(*model, data::Part::train); },
                                       {"annotation 1", "crowds", "model.head"});
}

// A ViT's only map has a stride of 16; the pyramid above it halves that.
TEST(DetectionTask, ReadsImagesOfAnySizeForAPlainBackbone) {
  models::ModelOptions options = base::read_options<models::ModelOptions>(
      base::parse_toml("backbone = { type = \"vit\", image_size = [160, 144], patch_size = 16, dim = 16, num_layers = "
                       "1, num_heads = 2 }\n"
                       "head = { type = \"retinanet\", channels = 16, num_convs = 1, num_classes = 2 }\n",
                       "test"));
  const auto spec = tasks::task_spec(tasks::TaskTypes::all().options.complete(
      base::parse_toml("type = \"detection\"\nshorter = [144]\nlongest = 160\ntrain = \"" + painted() +
                           "\"\nvalid = \"" + painted() + "\"\n",
                       "test")));
  const auto model = models::build(options, 3);
  EXPECT_NO_THROW(spec->check_model(*model, {}));
  const tasks::LoadedTask loaded = spec->load(options, {.batch_size = 2});
  Trainer trainer(*model, *loaded.task, training(1, 2));
  EXPECT_GT(trainer.step().loss, 0);
  EXPECT_EQ(loaded.task->evaluate(*model, data::Part::valid)->predictions, 12);
}

TEST(DetectionTask, TakesDetectorsAndNothingElse) {
  const auto spec_of = [](const char* type, const std::string& train) {
    return tasks::task_spec(tasks::TaskTypes::all().options.complete(Node::table({{"type", type}, {"train", train}})));
  };
  const auto model = detector("retinanet", false);
  models::ModelOptions classifier = model->options();
  classifier.head = Node::table({{"type", "classification"}, {"pool", "mean"}, {"num_classes", 2}});
  const auto objects = spec_of("detection", painted()), photos = spec_of("images", "folder");
  EXPECT_TRUE(objects->suits(model->options()));
  EXPECT_FALSE(objects->suits(classifier));
  EXPECT_TRUE(photos->suits(classifier));
  EXPECT_FALSE(photos->suits(model->options()));
  EXPECT_EQ(objects->shape(model->options()).classes, (std::vector<std::string>{"red", "blue"}));
  const at::Tensor hidden = at::zeros({1, 1, 16});
  test::expect_error<base::InputError>([&] { model->logits(hidden); }, {"mnemo detect"});
  EXPECT_EQ(core::level_head(*models::build(classifier)), nullptr);
}

}  // namespace
}  // namespace mnemo::train
