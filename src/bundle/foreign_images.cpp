#include "bundle/foreign_images.h"

#include <cmath>

#include "base/error.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "bundle/class_names.h"
#include "bundle/detection_input.h"
#include "bundle/model_folder.h"
#include "bundle/published_config.h"
#include "weights/foreign_config.h"

namespace mnemo::bundle {
namespace {

using weights::member_or;

constexpr const char* kProcessor = "preprocessor_config.json";

/// A table of ImagePreprocessing, of the keys that are there.
base::Node of_timm(const base::Node& pretrained) {
  base::Node facts = base::Node::table(), crop = base::Node::table();
  if (const base::Node* size = pretrained.find("input_size");
      size != nullptr && size->is_array() && size->size() == 3) {
    facts.set("image_size", base::Node::array({size->items()[1], size->items()[2]}));
  }
  for (const char* key : {"mean", "std"}) {
    if (const base::Node* found = pretrained.find(key)) facts.set(key, *found);
  }
  for (const char* key : {"crop_pct", "crop_mode", "interpolation"}) {
    if (const base::Node* found = pretrained.find(key)) crop.set(key, *found);
  }
  facts.set("test_crop", crop);
  return facts;
}

base::Node two_sides(const base::Node& size) {
  return size.is_table() ? base::Node::array({size.at("height"), size.at("width")}) : weights::size_pair(size);
}

/// DeiT's processor crops unless it says otherwise, and has other defaults; ViT's resizes alone. Other families' have
/// rules of their own.
bool crops_by_default(const base::Node& processor) {
  for (const char* key : {"image_processor_type", "feature_extractor_type"}) {
    const base::Node* type = processor.find(key);
    if (type == nullptr || type->is_null()) continue;
    const bool deit = type->is_string() && type->as_string().starts_with("DeiT");
    base::require(deit || (type->is_string() && type->as_string().starts_with("ViT")),
                  "'{}': unsupported: expected ViTImageProcessor or DeiTImageProcessor, found {}", key, type->found());
    return deit;
  }
  return false;
}

/// The fraction of both resized sides that is kept: the largest number with which TestCrop gives these sizes.
double kept_of(int64_t cropped, int64_t resized) {
  const double side = static_cast<double>(cropped), before = static_cast<double>(resized);
  const double exact = side / before;
  return std::floor(side / exact) == before ? exact : side / (before + 0.5);
}

base::Node of_hugging_face(const base::Node& processor) {
  base::require(processor.is_table(), "expected an object, found {}", processor.found());
  const bool deit = crops_by_default(processor);
  for (const char* key : {"do_resize", "do_rescale"}) {
    base::require(member_or(processor, key, base::Node(true)).as_bool(), "'{}': expected true, found false", key);
  }
  const double factor = member_or(processor, "rescale_factor", base::Node(1.0 / 255.0)).as_double();
  base::require(std::abs(factor * 255.0 - 1.0) < 1e-6, "'rescale_factor': expected 1/255, found {}", factor);
  base::Node facts = base::Node::table();
  const base::Node resized = two_sides(member_or(processor, "size", base::Node(deit ? 256 : 224)));
  const bool crops = member_or(processor, "do_center_crop", base::Node(deit)).as_bool();
  const base::Node kept = crops ? two_sides(member_or(processor, "crop_size", base::Node(224))) : resized;
  facts.set("image_size", kept);
  const double kept_height = kept_of(kept.items()[0].as_int(), resized.items()[0].as_int()),
               kept_width = kept_of(kept.items()[1].as_int(), resized.items()[1].as_int());
  base::require(kept_height == kept_width && kept_height <= 1.0,
                "'crop_size': expected the same fraction of both sides of 'size', found {} x {} of {} x {}",
                kept.items()[0].as_int(), kept.items()[1].as_int(), resized.items()[0].as_int(),
                resized.items()[1].as_int());
  if (member_or(processor, "do_normalize", base::Node(true)).as_bool()) {
    facts.set("mean", member_or(processor, "image_mean", base::Node::array({0.5, 0.5, 0.5})));
    facts.set("std", member_or(processor, "image_std", base::Node::array({0.5, 0.5, 0.5})));
  } else {
    facts.set("mean", base::Node::array({0.0, 0.0, 0.0}));
    facts.set("std", base::Node::array({1.0, 1.0, 1.0}));
  }
  const int64_t resample = member_or(processor, "resample", base::Node(deit ? 3 : 2)).as_int();  // Pillow's numbers
  base::require(resample == 2 || resample == 3, "'resample': expected 2 (bilinear) or 3 (bicubic), found {}", resample);
  facts.set("test_crop", base::Node::table({{"crop_mode", "squash"},
                                            {"crop_pct", kept_height},
                                            {"interpolation", resample == 2 ? "bilinear" : "bicubic"}}));
  return facts;
}

std::optional<base::Node> facts_of(const std::string& folder, const base::Node& config) {
  if (const base::Node* pretrained = config.find("pretrained_cfg"); pretrained != nullptr && pretrained->is_table())
    return of_timm(*pretrained);
  const std::string path = base::join_path(folder, kProcessor);
  if (!base::path_exists(path)) return std::nullopt;
  return of_hugging_face(base::parse_json(base::read_file(path, 1 << 20), path));
}

bool is_hugging_face(const weights::ForeignFormat& format) { return format.name == "huggingface_vit"; }

/// crop_pct for which timm resizes as the model does: it has no resize_size.
double crop_pct_of(const ImagePreprocessing& facts, const std::string& where) {
  const data::ImageTestOptions& crop = facts.test_crop;
  if (crop.resize_size == 0) return crop.crop_pct;
  const double side = static_cast<double>(facts.image_size[0]), resized = static_cast<double>(crop.resize_size);
  for (const double crop_pct : {side / resized, side / (resized + 0.5)}) {
    if (facts.image_size[0] == facts.image_size[1] && crop_pct <= 1.0 && std::floor(side / crop_pct) == resized)
      return crop_pct;
  }
  base::input_error(
      "{}: 'test_crop.resize_size': timm only has crop_pct, which cannot express it; expected 0, found {}", where,
      crop.resize_size);
}

base::Node to_timm(const ImagePreprocessing& facts, const base::Node* before, const std::string& where) {
  base::Node pretrained = before != nullptr && before->is_table() ? *before : base::Node::table();
  const base::Node size = base::Node::array({3, facts.image_size[0], facts.image_size[1]});
  // The size that a model without one of its own in model_args is made for.
  const base::Node* stands = pretrained.find("input_size");
  base::require(stands == nullptr || *stands == size,
                "{}: 'image_size': expected the backbone's, the only one that the format stores, found {} x {}", where,
                facts.image_size[0], facts.image_size[1]);
  const base::Node node = base::write_options(facts);
  pretrained.set("input_size", size);
  pretrained.set("mean", node.at("mean"));
  pretrained.set("std", node.at("std"));
  pretrained.set("crop_pct", crop_pct_of(facts, where));
  const base::Node crop = base::write_options(facts.test_crop);
  for (const char* key : {"crop_mode", "interpolation"}) pretrained.set(key, crop.at(key));
  return pretrained;
}

base::Node to_hugging_face(const ImagePreprocessing& facts, const std::string& where) {
  const data::ImageTestOptions& crop = facts.test_crop;
  base::require(
      crop.crop_mode == data::ImageTestOptions::CropMode::squash,
      "{}: 'test_crop': huggingface_vit resizes both sides; expected crop_mode = \"squash\", found \"center\"; "
      "write an {} with that if all images are of the model's size",
      where, ImagePreprocessing::kFile);
  base::require(crop.interpolation != data::Interpolation::box,
                "{}: 'test_crop.interpolation': expected \"bilinear\" or \"bicubic\", found \"box\"", where);
  const base::Node node = base::write_options(facts);
  const auto sides = [](int64_t height, int64_t width) {
    return base::Node::table({{"height", height}, {"width", width}});
  };
  const auto before = [&](int64_t side) {
    return static_cast<int64_t>(std::floor(static_cast<double>(side) / crop.crop_pct));
  };
  const bool crops = crop.crop_pct < 1.0;
  base::Node processor = base::Node::table(
      {{"image_processor_type", crops ? "DeiTImageProcessor" : "ViTImageProcessor"},
       {"do_resize", true},
       {"size", sides(before(facts.image_size[0]), before(facts.image_size[1]))},
       {"resample", crop.interpolation == data::Interpolation::bilinear ? 2 : 3},
       {"do_rescale", true},
       {"rescale_factor", 1.0 / 255.0},
       {"do_normalize", true},
       {"image_mean", node.at("mean")},
       {"image_std", node.at("std")}});
  if (crops) {
    processor.set("do_center_crop", true);
    processor.set("crop_size", sides(facts.image_size[0], facts.image_size[1]));
  }
  return processor;
}

}  // namespace

std::string foreign_preprocessing(const std::string& folder) {
  return said_by(read_published(folder), folder, ImagePreprocessing::kFile, [&](const PublishedConfig& found) {
    const auto facts = facts_of(folder, found.config);
    return facts ? base::read_options<ImagePreprocessing>(*facts).text() : std::string();
  });
}

std::map<std::string, std::string> image_files_of(const std::string& folder) {
  std::map<std::string, std::string> files = {{kSourceConfig, bundle::read_model_config(folder)}};
  // Our file takes precedence over the other library's, as in every command that reads the folder.
  const auto add = [&](const char* name, const std::function<std::string(const std::string&)>& theirs) {
    const std::string own = base::join_path(folder, name);
    std::string content = base::path_exists(own) ? base::read_file(own, 1 << 24) : theirs(folder);
    if (!content.empty()) files[name] = std::move(content);
  };
  add(ImagePreprocessing::kFile, foreign_preprocessing);
  add(kClassesFile, foreign_class_lines);
  if (const auto input = find_detection_input(folder)) files[data::DetectionInput::kFile] = input->text();
  return files;
}

std::map<std::string, std::string> add_image_facts(base::Node& config, const weights::ForeignFormat& format,
                                                   const std::optional<ImagePreprocessing>& facts,
                                                   const std::vector<std::string>& classes, const std::string& where) {
  std::map<std::string, std::string> files;
  if (is_hugging_face(format)) {
    if (facts) files[kProcessor] = base::to_json(to_hugging_face(*facts, where)) + "\n";
    if (classes.empty()) return files;
    name_classes(config, classes);
    return files;
  }
  if (facts) config.set("pretrained_cfg", to_timm(*facts, config.find("pretrained_cfg"), where));
  if (!classes.empty()) {
    base::Node names = base::Node::array();
    for (const std::string& name : classes) names.push_back(base::json_text(name));
    config.set("label_names", names);
  }
  return files;
}

bool says_image_facts(const base::Node& config, const weights::ForeignFormat& format,
                      const std::optional<ImagePreprocessing>& facts, const std::vector<std::string>& classes) {
  if (!classes.empty() && classes_in(config, static_cast<int64_t>(classes.size())) != classes) return false;
  if (is_hugging_face(format) || !facts) return true;  // these stand in a file of their own there
  const base::Node* pretrained = config.find("pretrained_cfg");
  if (pretrained == nullptr || !pretrained->is_table()) return false;
  auto said = base::read_options<ImagePreprocessing>(of_timm(*pretrained));
  said.test_crop.resize = facts->test_crop.resize;  // which that library's files cannot say
  return said.text() == facts->text();
}

}  // namespace mnemo::bundle
