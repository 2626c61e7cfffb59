#include "tasks/types/detection.h"

#include <torch/types.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "bundle/preprocessing.h"
#include "data/detection/detection_sets.h"
#include "heads/detection/detector_head.h"
#include "heads/detection/sides_divisor.h"
#include "models/detection_options.h"
#include "models/model.h"
#include "tasks/detection.h"
#include "tasks/types/held_out.h"

namespace mnemo::tasks {
namespace {

/// heads::sides_divisor() of a detector on this backbone; those of all types read it up to its last stage.
int64_t divisor_of(const models::ModelOptions& model) {
  const heads::BackboneStages stages = models::stages_of(model.backbone.vision());
  return heads::sides_divisor(heads::detector_parts(heads::DetectorType::retinanet, stages, 1, model.backbone.type),
                              stages.stride);
}

DataShape shape_of_sets(const data::DetectionSets& sets) {
  return {.num_classes = static_cast<int64_t>(sets.classes.size()), .classes = sets.classes};
}

/// Images, objects and objects of each class of a part.
base::Node describe_part(const data::CocoSet& set) {
  std::vector<int64_t> of_class(set.categories.size());
  int64_t crowds = 0, masks = 0;
  std::vector<bool> has(set.images.size());
  for (const data::CocoObject& object : set.objects) {
    ++of_class[static_cast<size_t>(object.category)];
    crowds += object.crowd;
    masks += !object.segmentation.empty();
    has[static_cast<size_t>(object.image)] = true;
  }
  base::Node classes = base::Node::table();
  for (size_t c = 0; c < of_class.size(); ++c) classes.set(set.categories[c].name, of_class[c]);
  return base::Node::table({{"images", static_cast<int64_t>(set.images.size())},
                            {"without_objects", std::count(has.begin(), has.end(), false)},
                            {"objects", static_cast<int64_t>(set.objects.size())},
                            {"crowds", crowds},
                            {"masks", masks},
                            {"classes", std::move(classes)}});
}

std::string text_of_parts(const base::Node& parts, const std::vector<std::string>& notices) {
  std::string text;
  for (const auto& [name, part] : parts.members()) {
    const auto count = [&, &of = part](const char* key) { return base::grouped(of.at(key).as_int()); };
    text += fmt::format("{}: {} images, {} without objects; {} objects, {} crowds, {} with masks\n", name,
                        count("images"), count("without_objects"), count("objects"), count("crowds"), count("masks"));
  }
  base::TextTable table({"class", "objects for training"},
                        {base::TextTable::Align::left, base::TextTable::Align::right});
  for (const auto& [name, count] : parts.at("train").at("classes").members())
    table.add_row({name, base::grouped(count.as_int())});
  text += table.text();
  for (const std::string& notice : notices) text += notice + "\n";
  return text;
}

}  // namespace

DetectionSpec::DetectionSpec(const base::Node& table)
    : TaskSpec(table), options_(base::read_typed_options<Options>(table)) {}

std::optional<base::Node> DetectionSpec::found_in(const std::string& path) {
  const std::optional<Options> options = data::find_detections(path);
  if (!options) return std::nullopt;
  const base::Node found = base::write_options(*options);
  base::Node table = base::Node::table({{"format", found.at("format")}, {"train", options->train}});
  if (!options->valid.empty()) table.set("valid", options->valid);
  if (options->splits != Options().splits) table.set("splits", found.at("splits"));
  return table;
}

std::string DetectionSpec::describe() const {
  return fmt::format("Objects in images of `{}`.", std::filesystem::path(options_.train).filename().string());
}

MetricInfo DetectionSpec::metric() const {
  return {.name = "ap", .short_name = "AP", .loss_name = "loss of an image", .share = false};
}

std::vector<MetricInfo> DetectionSpec::more_metrics() const {
  const std::string loss = metric().loss_name;
  std::vector<MetricInfo> all;
  for (const char* name : {"ap50", "ap75", "ap small", "ap medium", "ap large", "ar100", "mask ap", "mask ap50",
                           "mask ap75", "mask ap small", "mask ap medium", "mask ap large"})
    all.push_back({name, name, loss, true, true, false});
  return all;
}

bool DetectionSpec::completes(const models::ModelOptions& model) const {
  return !suits(model) || model.num_classes().value_or(0) == 0;
}

std::optional<DataShape> DetectionSpec::usual_shape() const {
  constexpr int64_t kClasses = 80;
  if (!options_.train.empty()) return {};
  return DataShape{.num_classes = kClasses};
}

DataShape DetectionSpec::shape(const models::ModelOptions& model) const {
  return shape_of_sets(data::load_detections(options_, models::gives_masks(model)));
}

LoadedTask DetectionSpec::load(const models::ModelOptions& model, const TaskSettings& settings) const {
  const bool masks = models::gives_masks(model);
  data::DetectionSets sets = data::load_detections(options_, masks);
  LoadedTask loaded{.task = nullptr, .shape = shape_of_sets(sets), .tokens_per_row = 1};
  loaded.notices = sets.notices;
  if (!sets.valid) loaded.notices.emplace_back(kNothingHeldOut);
  loaded.task = std::make_unique<Detection>(
      std::move(sets), options_,
      DetectionTrainOptions{settings.batch_size, divisor_of(model), settings.shuffle, settings.seed,
                            settings.eval_batch_size, settings.eval_samples, masks});
  return loaded;
}

void DetectionSpec::check_model(const models::Model& model, const DataShape&) const {
  const at::NoGradGuard no_grad;
  // Odd multiples, as images have them.
  const int64_t height = divisor_of(model.options()), width = 3 * height;
  core::Segment segment;
  segment.pixels = at::zeros({1, 3, height, width}, core::device_of(model));
  segment.mode = core::Mode::evaluate;
  const core::StepResult step = model.forward(segment, model.initial_state(1));
  heads::detector_head(model, "recipe: 'model.head'").run(step.hidden, height, width);
}

std::map<std::string, std::string> DetectionSpec::model_files(const models::ModelOptions& model) const {
  // Commands that look at the backbone read a whole image at its own size.
  bundle::ImagePreprocessing whole;
  whole.image_size = model.backbone.image_size();
  whole.mean = options_.mean;
  whole.std = options_.std;
  whole.test_crop.crop_pct = 1.0;
  whole.test_crop.crop_mode = data::ImageTestOptions::CropMode::squash;
  return {{data::DetectionInput::kFile, data::DetectionInput::of(options_).text()},
          {bundle::ImagePreprocessing::kFile, whole.text()}};
}

Shown DetectionSpec::show(const ShowOptions& options) const {
  base::require(!options.part,
                "data: --part is only for data whose samples are printed; annotated images are described as a whole");
  const data::DetectionSets sets = data::load_detections(options_, false);
  base::Node parts = base::Node::table();
  for (const auto& [name, set] :
       {std::pair("train", sets.train), std::pair("valid", sets.valid), std::pair("test", sets.test)}) {
    if (set) parts.set(name, describe_part(set->set()));
  }
  Shown shown;
  if (options.json) {
    shown.json = std::move(parts);
  } else {
    shown.text = text_of_parts(parts, sets.notices);
  }
  return shown;
}

}  // namespace mnemo::tasks
