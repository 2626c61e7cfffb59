#include "bench/detection_subject.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>

#include "base/file_io.h"
#include "base/random.h"
#include "bench/case.h"
#include "metrics/coco.h"
#include "models/presets.h"
#include "ops/detection/anchors.h"
#include "ops/detection/boxes.h"
#include "ops/detection/matching.h"
#include "ops/detection/nms.h"
#include "ops/detection/roi_align.h"
#include "weights/foreign.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kCocoClasses = 80, kRois = 512, kBoxes = 4000, kObjects = 20;
constexpr double kFigureTolerance = 1e-3;
constexpr ops::RoiAlignOptions kPoolOptions = {7, 7, 2, true};

/// Boxes of 16 to 320 pixels.
at::Tensor random_boxes(int64_t count, int64_t height, int64_t width, at::Generator& generator) {
  const at::Tensor corner = at::rand({count, 2}, generator, at::kFloat) *
                            at::tensor({static_cast<float>(width) - 32, static_cast<float>(height) - 32});
  const at::Tensor side = at::exp(at::rand({count, 2}, generator, at::kFloat) * 3) * 16;
  return ops::clip_boxes(at::cat({corner, corner + side}, 1), static_cast<double>(height), static_cast<double>(width));
}

models::ModelOptions subject_options(int64_t height, int64_t width, bool own_size, bool cached) {
  base::Node model = base::parse_toml("preset = \"retinanet_pvt_tiny\"\nhead.convention = \"torchvision\"", "model");
  if (own_size) model.set("backbone", base::Node::table({{"image_size", base::Node::array({height, width})}}));
  if (cached)
    model.set("memory", base::Node::array({base::Node::table(
                            {{"type", "grc"}, {"cache_ratio", 0.5}, {"position", "cpe"}, {"qkv_bias", true}})}));
  return models::read_model_options(model);
}

/// Spreads the scores, so that about a hundred objects are found.
void spread_scores(const layers::ParameterSet& parameters, at::Generator& generator) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : parameters.named()) {
    if (name == "head.cls_logits.weight") at::Tensor(tensor).normal_(0.0, 0.2, generator);
  }
}

}  // namespace

DetectorSubject::DetectorSubject(int64_t height, int64_t width, bool own_size, bool cached)
    : model_(subject_options(height, width, own_size, cached), 1, at::kFloat),
      head_(heads::detector_head(model_, "bench")) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  spread_scores(model_.parameters(), generator);
  pixels_ = at::randn({1, 3, height, width}, generator, at::kFloat);
  target_ = {random_boxes(kObjects, height, width, generator),
             at::randint(0, kCocoClasses, {kObjects}, generator, at::kLong)};
  optimiser_ = train::make_optimiser(
      train::optimiser_types().complete(base::Node::table({{"type", "adamw"}, {"lr", 1e-4}})),
      model_.parameters().all());
}

void DetectorSubject::write(const std::string& folder) const {
  const weights::ForeignFormat &body = weights::foreign_format("pvt"),
                               &rest = weights::foreign_format("torchvision_detector");
  base::Node classifier = base::write_options(model_.options());
  classifier.set("head", base::Node::table({{"type", "classification"}, {"num_classes", kCocoClasses}}));
  const base::Node config = body.config(models::read_model_options(classifier));
  base::write_file_atomic(base::join_path(folder, "config.json"), base::to_json(config));
  weights::NamedTensors ours, others;
  for (const auto& [name, tensor] : model_.parameters().named())
    (name.starts_with("backbone.") ? ours : others).emplace_back(name, tensor.detach());
  weights::NamedTensors theirs = weights::to_theirs(rest, others);
  for (auto& [name, tensor] : weights::to_theirs(body, ours))
    theirs.emplace_back("backbone.body." + name, std::move(tensor));
  weights::write_safetensors(base::join_path(folder, "model.safetensors"), theirs);
  weights::write_safetensors(base::join_path(folder, "images.safetensors"),
                             {{"pixels", pixels_}, {"boxes", target_.boxes}, {"labels", target_.labels}});
}

core::StepResult DetectorSubject::run(core::Mode mode) const {
  core::Segment segment;
  segment.pixels = pixels_;
  segment.mode = mode;
  return model_.forward(segment, model_.initial_state(1));
}

heads::DetectedImages DetectorSubject::images() const {
  const heads::PixelSize size{pixels_.size(2), pixels_.size(3)};
  return head_.images(size, {size});
}

heads::NamedLosses DetectorSubject::losses(const core::StepResult& step) const {
  return head_.losses(step.hidden, images(), {&target_, 1}, heads::random_order());
}

std::vector<heads::Detections> DetectorSubject::detect() const {
  return head_.detect(run(core::Mode::evaluate).hidden, images());
}

base::Node DetectorSubject::figures() const {
  const at::NoGradGuard no_grad;
  const heads::NamedLosses losses = this->losses(run(core::Mode::train));
  const heads::Detections found = detect().front();
  return base::Node::table({{"cls", losses[0].second.item<double>()},
                            {"box", losses[1].second.item<double>()},
                            {"found", found.scores.size(0)},
                            {"scores", found.scores.sum().item<double>()}});
}

void DetectorSubject::forward() const {
  const c10::InferenceMode inference;
  detect();
}

void DetectorSubject::train() {
  model_.parameters().zero_grad();
  const core::StepResult step = run(core::Mode::train);
  const heads::NamedLosses parts = losses(step);
  (parts[0].second + parts[1].second).backward();
  optimiser_->step();
  model_.commit(step.state);
}

OperatorSubject::OperatorSubject() {
  at::Generator generator = at::detail::createCPUGenerator(1);
  features_ = at::randn({1, 256, kCocoHeight / 4, kCocoWidth / 4}, generator, at::kFloat).set_requires_grad(true);
  rois_ = at::cat({at::zeros({kRois, 1}), random_boxes(kRois, kCocoHeight, kCocoWidth, generator)}, 1);
  weight_ = at::randn({kRois, 256, 7, 7}, generator, at::kFloat);
  boxes_ = random_boxes(kBoxes, kCocoHeight, kCocoWidth, generator);
  scores_ = at::rand({kBoxes}, generator, at::kFloat);
  labels_ = at::randint(0, kCocoClasses, {kBoxes}, generator, at::kLong);
  objects_ = random_boxes(kObjects, kCocoHeight, kCocoWidth, generator);
  std::vector<at::Tensor> anchors;
  ops::PlaceCounts grid{kCocoHeight / 8, kCocoWidth / 8};
  for (double size = 32; size <= 512; size *= 2) {  // RetinaNet's
    const ops::AnchorLevel level{{size, std::floor(size * std::cbrt(2.0)), std::floor(size * std::cbrt(4.0))},
                                 {0.5, 1.0, 2.0}};
    anchors.push_back(ops::level_anchors(level, grid, ops::image_stride({kCocoHeight, kCocoWidth}, grid), true,
                                         at::TensorOptions().dtype(at::kFloat)));
    grid = {(grid.first + 1) / 2, (grid.second + 1) / 2};
  }
  anchors_ = at::cat(anchors, 0);
}

void OperatorSubject::write(const std::string& folder) const {
  weights::write_safetensors(base::join_path(folder, "operators.safetensors"),
                             {{"features", features_.detach()},
                              {"rois", rois_},
                              {"weight", weight_},
                              {"boxes", boxes_},
                              {"scores", scores_},
                              {"labels", labels_},
                              {"objects", objects_},
                              {"anchors", anchors_}});
}

at::Tensor OperatorSubject::roi_align() const { return ops::roi_align(features_, rois_, 0.25, kPoolOptions); }

void OperatorSubject::roi_align_backward() const {
  features_.mutable_grad().reset();
  roi_align().backward(weight_);
}

at::Tensor OperatorSubject::batched_nms() const { return ops::nms(boxes_, scores_, labels_, 0.5); }
at::Tensor OperatorSubject::nms() const { return ops::nms(boxes_, scores_, {}, 0.7); }
at::Tensor OperatorSubject::match() const { return ops::match_boxes(objects_, anchors_, {0.5, 0.4, true}); }

base::Node OperatorSubject::figures() const {
  roi_align_backward();
  const auto sum = [](const at::Tensor& indices) { return indices.sum().item<int64_t>(); };
  return base::Node::table({{"pooled", roi_align().norm().item<double>()},
                            {"gradient", features_.grad().norm().item<double>()},
                            {"kept_of_classes", sum(batched_nms())},
                            {"kept", sum(nms())},
                            {"matches", sum(match())}});
}

CocoSubject::CocoSubject() {
  constexpr int64_t kImages = 5000, kObjectsOfImage = 7, kFound = 20, kSide = 640;
  base::Random random{1};
  for (int64_t c = 0; c < kCocoClasses; ++c) set_.categories.push_back({c + 1, fmt::format("class {}", c)});
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random.below(static_cast<uint64_t>(bound))); };
  for (int64_t i = 0; i < kImages; ++i) {
    set_.images.push_back({i + 1, fmt::format("{}.jpg", i), kSide, kSide});
    const auto image = static_cast<int32_t>(i);
    for (int64_t k = 0; k < kObjectsOfImage; ++k) {
      const auto box = [&] {
        const auto side = [&] { return static_cast<double>(8 + below(1 << (4 + below(5)))); };
        return data::XywhBox{static_cast<double>(below(384)), static_cast<double>(below(384)), side(), side()};
      };
      data::CocoObject object{i * kObjectsOfImage + k + 1, image, static_cast<int32_t>(below(kCocoClasses)), box()};
      object.area = object.box[2] * object.box[3];
      set_.objects.push_back(object);
      for (int64_t f = k; f < kFound; f += kObjectsOfImage) {
        // Most are near an object.
        data::XywhBox near = object.box;
        for (double& side : near) side *= 1.0 + 0.02 * static_cast<double>(below(11) - 5);
        found_.push_back({image, below(4) == 0 ? static_cast<int32_t>(below(kCocoClasses)) : object.category,
                          below(4) == 0 ? box() : near, 1e-6 * static_cast<double>(below(1000000))});
      }
    }
  }
}

void CocoSubject::write(const std::string& folder) const {
  std::string images, objects, categories;
  const auto comma = [](std::string& list) -> std::string& { return list += list.empty() ? "" : ","; };
  for (const data::CocoCategory& one : set_.categories)
    comma(categories) += fmt::format(R"({{"id":{},"name":"{}"}})", one.id, one.name);
  for (const data::CocoImage& one : set_.images)
    comma(images) += fmt::format(R"({{"id":{},"file_name":"{}","height":{},"width":{}}})", one.id, one.file, one.height,
                                 one.width);
  for (const data::CocoObject& one : set_.objects) {
    comma(objects) += fmt::format(R"({{"id":{},"image_id":{},"category_id":{},"area":{},"iscrowd":0,"bbox":[{},{},{},{}]}})",
                                  one.id, one.image + 1, one.category + 1, one.area, one.box[0], one.box[1], one.box[2],
                                  one.box[3]);
  }
  base::write_file_atomic(base::join_path(folder, "instances.json"),
                          fmt::format(R"({{"images":[{}],"annotations":[{}],"categories":[{}]}})", images, objects,
                                      categories));
  base::write_file_atomic(base::join_path(folder, "results.json"),
                          data::coco_results(found_, set_, data::CocoParts::boxes));
}

base::Node CocoSubject::figures() const {
  const metrics::CocoScores scores = metrics::coco_scores(set_, found_, data::CocoParts::boxes);
  base::Node node = base::Node::table();
  for (size_t i = 0; i < metrics::kCocoNames.size(); ++i) node.set(metrics::kCocoNames[i], scores.all[i]);
  return node;
}

void CocoSubject::score() const { metrics::coco_scores(set_, found_, data::CocoParts::boxes); }

std::string unlike_figures(const base::Node& ours, const std::string& answer) {
  const base::Node theirs = base::parse_json(answer, "the peer's answer");
  for (const auto& [name, value] : ours.members()) {
    std::string found = unlike(name.c_str(), value.as_double(), theirs.at(name).as_double(), kFigureTolerance);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace mnemo::bench
