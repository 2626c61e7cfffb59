#include "tasks/types/images.h"

#include <torch/types.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/preprocessing.h"
#include "data/images/image_describe.h"
#include "data/images/image_set.h"
#include "data/text/text_files.h"
#include "models/model.h"
#include "tasks/images.h"
#include "tasks/types/held_out.h"

namespace mnemo::tasks {
namespace {

DataShape shape_of(const data::ImageSet& set) { return {.num_classes = set.num_classes(), .classes = set.classes()}; }

/// Number of classes in the options of the model's head; 0 if it is left to the data.
int64_t classes_of(const models::ModelOptions& model) { return model.num_classes().value_or(0); }

}  // namespace

ImageSpec::ImageSpec(const base::Node& table) : TaskSpec(table), options_(base::read_typed_options<Options>(table)) {}

std::optional<base::Node> ImageSpec::found_in(const std::string& path) {
  if (!base::is_folder(path) || data::is_folder_of_texts(path) || data::is_folder_of_texts(path, true))
    return std::nullopt;
  const base::Node found = base::write_options(data::detect_images(path));
  base::Node table = base::Node::table();
  for (const char* key : {"format", "train", "valid", "test", "valid_fraction"}) table.set(key, found.at(key));
  return table;
}

data::ImageOptions ImageSpec::images(const models::ModelOptions& model) const {
  Options options = options_;
  if (options.image_size.empty() && suits(model)) options.image_size = model.backbone.image_size();
  return options;
}

std::string ImageSpec::describe() const {
  return fmt::format("Images of `{}`.", std::filesystem::path(options_.train).filename().string());
}

std::vector<MetricInfo> ImageSpec::more_metrics() const {
  const std::string loss = metric().loss_name;
  return {{"top5 accuracy", "top-5", loss, true, true},
          {"nll", "nll", loss, false, false},
          {"train accuracy", "train accuracy", loss, true, true},
          {"train nll", "train nll", loss, false, false}};
}

std::optional<double> ImageSpec::chance(const models::ModelOptions& model) const {
  const int64_t classes = classes_of(model);
  return classes > 0 ? std::optional<double>(1.0 / static_cast<double>(classes)) : std::nullopt;
}

bool ImageSpec::completes(const models::ModelOptions& model) const { return !suits(model) || classes_of(model) == 0; }

std::optional<DataShape> ImageSpec::usual_shape() const {
  constexpr int64_t kClasses = 10;
  if (!options_.train.empty()) return {};
  return DataShape{.num_classes = kClasses};
}

DataShape ImageSpec::shape(const models::ModelOptions& model) const {
  return shape_of(*data::load_images(images(model)).train);
}

LoadedTask ImageSpec::load(const models::ModelOptions& model, const TaskSettings& settings) const {
  const Options options = images(model);
  data::ImageSets sets = data::load_images(options);
  LoadedTask loaded{.task = nullptr, .shape = shape_of(*sets.train), .tokens_per_row = 1};
  if (!sets.valid) loaded.notices.emplace_back(kNothingHeldOut);
  loaded.task = std::make_unique<Images>(
      std::move(sets), options,
      ImageTrainOptions{settings.batch_size, settings.shuffle, settings.seed, settings.eval_batch_size,
                        settings.eval_samples, settings.eval_train_samples});
  return loaded;
}

void ImageSpec::check_model(const models::Model& model, const DataShape&) const {
  const at::NoGradGuard no_grad;
  const Options options = images(model.options());
  core::Segment segment;
  segment.pixels = at::zeros({1, 3, options.height(), options.width()});
  segment.mode = core::Mode::evaluate;
  try {
    base::check_options(bundle::ImagePreprocessing::of(options));  // as images.json is read
    model.forward(segment, model.initial_state(1));
  } catch (const base::InputError& error) {
    base::input_error("recipe: 'data.image_size': {}", error.what());
  }
}

std::map<std::string, std::string> ImageSpec::model_files(const models::ModelOptions& model) const {
  return {{bundle::ImagePreprocessing::kFile, bundle::ImagePreprocessing::of(images(model)).text()}};
}

Shown ImageSpec::show(const ShowOptions& options) const {
  base::require(!options.part,
                "data: --part is only for data whose samples are printed; image sets are described as a whole");
  const data::ImageDescription description = data::describe_images(options_, options.check);
  Shown shown;
  if (options.json) {
    shown.json = data::to_node(description);
  } else {
    shown.text = data::to_text(description);
  }
  shown.sound = std::all_of(description.parts.begin(), description.parts.end(),
                            [](const auto& part) { return part.broken.empty(); });
  return shown;
}

}  // namespace mnemo::tasks
