#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/file_io.h"
#include "data/images/image_augment.h"
#include "data/images/image_mix.h"
#include "data/images/image_reader.h"
#include "data/images/image_transform.h"
#include "tests/support/image_names.h"
#include "tests/verify/golden_file.h"

namespace mnemo::verify {
namespace {

at::Tensor tensor_of(const data::Image& image) {
  at::Tensor tensor = at::empty({image.height, image.width, 3}, at::kByte);
  std::copy(image.bytes.begin(), image.bytes.end(), tensor.mutable_data_ptr<uint8_t>());
  return tensor;
}

at::Tensor integers(std::initializer_list<int64_t> values) {
  return at::tensor(std::vector<int64_t>(values), at::kLong);
}
at::Tensor number(double value) { return at::full({}, value, at::kDouble); }

/// One step of a file: its keys, its inputs, and the comparison of its outputs.
class Step {
 public:
  Step(const GoldenFile& file, GoldenComparison& comparison, int64_t index, const base::Node& config)
      : config(config), file_(file), comparison_(comparison), index_(index) {}

  const base::Node& config;

  const std::string& text(const char* key) const { return config.at(key).as_string(); }
  int64_t integer(const char* key) const { return config.at(key).as_int(); }
  double real(const char* key) const { return config.at(key).as_double(); }
  std::vector<double> reals(const char* key) const {
    std::vector<double> values;
    for (const base::Node& item : config.at(key).items()) values.push_back(item.as_double());
    return values;
  }
  /// Height and width.
  std::pair<int64_t, int64_t> size() const {
    return {config.at("size").items().at(0).as_int(), config.at("size").items().at(1).as_int()};
  }
  data::Interpolation interpolation() const { return test::interpolation_of(text("interpolation")); }

  at::Tensor input(const std::string& name, at::ScalarType dtype, int64_t rank) const {
    const at::Tensor found = file_.step(index_, "input." + name);
    base::require(found.defined() && found.scalar_type() == dtype && found.dim() == rank,
                  "{}: step.{}.input.{}: expected {} of {} dimensions", file_.path(), index_, name, at::toString(dtype),
                  rank);
    return found.to(at::kCPU).contiguous();
  }
  data::Image image() const {
    const at::Tensor tensor = input("image", at::kByte, 3);
    base::require(tensor.size(2) == 3 && tensor.numel() > 0, "{}: step.{}.input.image: expected [H,W,3]", file_.path(),
                  index_);
    data::Image image(tensor.size(0), tensor.size(1));
    std::copy_n(tensor.const_data_ptr<uint8_t>(), tensor.numel(), image.bytes.data());
    return image;
  }

  void output(const std::string& name, const at::Tensor& found) const {
    const at::Tensor expected = file_.step(index_, "output." + name);
    base::require(expected.defined(), "{}: step.{}.output.{}: missing", file_.path(), index_, name);
    comparison_.compare(name == "image" ? "images" : name, fmt::format("step.{}.output.{}", index_, name), expected,
                        found);
  }
  void image_output(const data::Image& image) const { output("image", tensor_of(image)); }
  /// A number that the config contains in addition to the values that determine it.
  void config_value(const std::string& name, double expected, double found) const {
    comparison_.compare("arguments", fmt::format("step {}, {}", index_, name), number(expected), number(found));
  }

 private:
  const GoldenFile& file_;
  GoldenComparison& comparison_;
  int64_t index_;
};

void run_eval(const Step& step) {
  const bool timm = step.text("style") == "timm";
  base::Node keys = base::Node::table(
      {{"interpolation", step.config.at("interpolation")}, {"resize", "pillow12"}});  // which made the files
  for (const char* key : timm ? std::vector{"crop_pct", "crop_mode"} : std::vector{"resize_size"})
    keys.set(key, step.config.at(key));
  const auto options = base::read_options<data::ImageTestOptions>(keys);
  const int64_t side = step.integer(timm ? "image_size" : "crop_size");
  const data::Image crop = data::TestCrop::of(options, side, side)(step.image());
  at::Tensor pixels = at::empty({3, side, side}, at::kDouble);
  data::Normaliser(step.reals("mean"), step.reals("std"))(crop, pixels.mutable_data_ptr<double>());
  step.output("crop", tensor_of(crop));
  step.output("pixels", pixels);
}

void run_random_resized_crop(const Step& step) {
  const auto [height, width] = step.size();
  const data::ImageBox box{step.integer("top"), step.integer("left"), step.integer("height"), step.integer("width")};
  data::Image image = data::resize(step.image(), box, height, width, step.interpolation());
  if (step.config.at("flip").as_bool()) data::mirror(image);
  step.image_output(image);
}

data::Image augmented(const Step& step, const base::Node& op, const data::Image& image) {
  const data::AugmentType type = test::augment_type_of(op.at("type").as_string());
  data::AugmentGeometry geometry;
  if (const base::Node* interpolation = op.find("interpolation"))
    geometry.interpolation = test::interpolation_of(interpolation->as_string());
  if (const base::Node* fill = op.find("fill")) {
    for (size_t c = 0; c < 3; ++c) geometry.fill[c] = static_cast<uint8_t>(fill->items().at(c).as_int());
  }
  const double argument = data::augment_argument(type, op.at("level").as_double(),
                                                 static_cast<int>(op.at("sign").as_int()));
  if (!op.at("arg").is_null()) step.config_value(op.at("type").as_string(), op.at("arg").as_double(), argument);
  return data::augment(image, type, argument, geometry);
}

void run_sequence(const Step& step) {
  data::Image image = step.image();
  for (const base::Node& op : step.config.at("ops").items()) image = augmented(step, op, image);
  step.image_output(image);
}

void run_mix(const Step& step, bool cut) {
  at::Tensor pixels = step.input("pixels", at::kDouble, 4).clone();
  const at::Tensor labels = step.input("labels", at::kLong, 1);
  const int64_t batch = pixels.size(0), height = pixels.size(2), width = pixels.size(3),
                classes = step.integer("num_classes");
  base::require(labels.size(0) == batch && pixels.size(1) == 3, "{}",
                "config: pixels [B,3,H,W] and labels [B] do not match");
  const data::ImageMix mix = cut ? data::cutmix_of(step.real("lam"), step.integer("center_y"), step.integer("center_x"),
                                                   height, width)
                                 : data::ImageMix{step.real("lam"), {}};
  at::Tensor targets = at::empty({batch, classes}, at::kDouble);
  data::mix_pixels(pixels.mutable_data_ptr<double>(), batch, height, width, mix);
  data::mix_targets(labels.const_data_ptr<int64_t>(), batch, classes, step.real("label_smoothing"), mix.lambda,
                    targets.mutable_data_ptr<double>());
  step.output("pixels", pixels);
  step.output("targets", targets);
  if (!cut) return;
  step.output("box", integers({mix.box.top, mix.box.top + mix.box.height, mix.box.left, mix.box.left + mix.box.width}));
  step.output("lam", number(mix.lambda));
}

void run_erasing(const Step& step) {
  at::Tensor pixels = step.input("pixels", at::kDouble, 3).clone();
  const int64_t height = pixels.size(1), width = pixels.size(2), count = step.integer("count");
  int64_t erased = 0;
  for (const base::Node& draw : step.config.at("draws").items()) {
    if (erased == count) break;
    data::ImageBox box = data::erase_box({draw.at("area").as_double(), draw.at("aspect").as_double()}, count, height,
                                         width);
    if (box.height == 0) continue;
    box.top = draw.at("top").as_int();
    box.left = draw.at("left").as_int();
    at::Tensor noise = at::zeros({3, 1, 1}, at::kDouble);
    if (step.text("mode") != "const") noise = step.input(fmt::format("noise.{}", erased), at::kDouble, 3);
    noise = noise.expand({3, box.height, box.width}).contiguous();
    const auto* values = noise.const_data_ptr<double>();
    data::fill_box(pixels.mutable_data_ptr<double>(), height, width, box,
                   [&](int64_t c, int64_t y, int64_t x) { return values[(c * box.height + y) * box.width + x]; });
    ++erased;
  }
  step.output("pixels", pixels);
}

void run_step(const Step& step) {
  const std::string& type = step.text("type");
  if (type == "resize") {
    const auto [height, width] = step.size();
    step.image_output(data::resize(step.image(), height, width, step.interpolation()));
  } else if (type == "center_crop") {
    const auto [height, width] = step.size();
    const data::Image image = step.image();
    step.image_output(
        data::resize_center_crop(image, image.height, image.width, height, width, data::Interpolation::box));
  } else if (type == "eval") {
    run_eval(step);
  } else if (type == "random_resized_crop") {
    run_random_resized_crop(step);
  } else if (type == "sequence") {
    run_sequence(step);
  } else if (type == "mixup" || type == "cutmix") {
    run_mix(step, type == "cutmix");
  } else if (type == "random_erasing") {
    run_erasing(step);
  } else {
    step.image_output(augmented(step, step.config, step.image()));
  }
}

/// The largest difference between an image and the expected one, in levels; infinity if the sizes differ.
double image_error(const at::Tensor& expected, const data::Image& image) {
  const at::Tensor found = tensor_of(image);
  if (expected.sizes() != found.sizes()) return std::numeric_limits<double>::infinity();
  return (expected.to(at::kDouble) - found.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace

GoldenReport verify_image_transform(const GoldenFile& file) {
  GoldenComparison comparison(file);
  const auto& steps = file.config().at("steps").items();
  base::require(!steps.empty(), "{}: config: expected steps, found none", file.path());
  for (size_t i = 0; i < steps.size(); ++i) run_step(Step(file, comparison, static_cast<int64_t>(i), steps[i]));
  return comparison.take();
}

bool is_image_list(const weights::TensorFile& file) {
  const auto format = file.metadata.find("format");
  return format != file.metadata.end() && format->second == "mnemo-expect/1" && file.metadata.contains("files");
}

GoldenReport verify_image_list(const std::string& path, const weights::TensorFile& list) {
  const std::filesystem::path stem = std::filesystem::path(path).replace_extension();
  GoldenReport report{.file = path,
                      .what = list.metadata.contains("case") ? list.metadata.at("case") : "",
                      .tolerance = 1.0,
                      .groups = {}};
  const auto file_path = [&](const std::string& name) {
    base::require(base::is_plain_name(name), "{}: \"{}\" is not a file name", path, name);
    return (stem / name).string();
  };
  std::map<std::string, base::Node> facts;
  const auto add = [&](const base::Node& files) {
    for (const base::Node::Member& member : files.members()) facts[member.key] = member.value;
  };
  add(base::parse_json(list.metadata.at("files"), path + " (files)"));
  if (const std::string all = stem.string() + ".json"; base::path_exists(all))
    add(base::read_config_file(all).at("files"));
  constexpr std::string_view kOtherReading = "pillow.";
  for (const auto& [name, image] : list.tensors) {
    // Pillow's reading where ours differs: stored beside it for a person to compare.
    if (name.starts_with(kOtherReading) && facts.contains(name.substr(kOtherReading.size()))) continue;
    const auto fact = facts.find(name);
    const base::Node* answer = fact == facts.end() ? nullptr : fact->second.find("answer");
    base::require(fact != facts.end() && (answer == nullptr || answer->as_string() != "error"),
                  "{}: expected tensors of the files that it lists as readable, found {}", path, base::in_quotes(name));
  }
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  for (const auto& [name, fact] : facts) {
    const base::Node* answer = fact.find("answer");
    const at::Tensor* expected = list.find(name);
    const double tolerance = fact.contains("tolerance") ? fact.at("tolerance").as_double() : 0.0;
    try {
      const data::Image image = data::read_image(file_path(name));
      if (answer != nullptr && answer->as_string() == "error") {
        count_error(report, "broken files refused", 0.0, name, kWrong);
      } else {
        count_error(report, answer == nullptr ? "images" : "images of broken files", tolerance, name,
                    expected == nullptr ? 0.0 : image_error(*expected, image));
      }
    } catch (const base::InputError& error) {
      const bool named = std::string_view(error.what()).find(name) != std::string_view::npos;
      count_error(report, answer == nullptr ? "images" : "broken files refused", answer == nullptr ? tolerance : 0.0,
                  name, answer != nullptr && named ? 0.0 : kWrong);
    }
  }
  return report;
}

}  // namespace mnemo::verify
