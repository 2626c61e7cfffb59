#include "cli/foreign_images.h"

#include <optional>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "cli/image_facts.h"
#include "weights/foreign_config.h"

namespace mnemo::cli {
namespace {

using weights::member_or;

/// A table of ImageFacts, of the keys that are there.
base::Node of_timm(const base::Node& pretrained) {
  base::Node facts = base::Node::table(), crop = base::Node::table();
  if (const base::Node* size = pretrained.find("input_size"); size != nullptr && size->is_array() && size->size() == 3) {
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

base::Node of_hugging_face(const base::Node& processor) {
  base::Node facts = base::Node::table();
  const base::Node size = member_or(processor, "size", base::Node(224));
  facts.set("image_size", size.is_table() ? base::Node::array({size.at("height"), size.at("width")}) : weights::size_pair(size));
  facts.set("mean", member_or(processor, "image_mean", base::Node::array({0.5, 0.5, 0.5})));
  facts.set("std", member_or(processor, "image_std", base::Node::array({0.5, 0.5, 0.5})));
  const int64_t resample = member_or(processor, "resample", base::Node(2)).as_int();  // as Pillow numbers them
  base::require(resample == 2 || resample == 3, "'resample': expected 2 (bilinear) or 3 (bicubic), found {}", resample);
  facts.set("test_crop", base::Node::table({{"crop_mode", "squash"}, {"interpolation", resample == 2 ? "bilinear" : "bicubic"}}));
  return facts;
}

std::optional<base::Node> facts_of(const std::string& folder, const base::Node& config) {
  if (const base::Node* pretrained = config.find("pretrained_cfg"); pretrained != nullptr && pretrained->is_table()) return of_timm(*pretrained);
  const std::string path = base::join_path(folder, "preprocessor_config.json");
  if (!base::path_exists(path)) return std::nullopt;
  return of_hugging_face(base::parse_json(base::read_file(path, 1 << 20), path));
}

std::string class_lines(const base::Node& config) {
  std::string lines;
  if (const base::Node* names = config.find("label_names"); names != nullptr && names->is_array()) {
    for (const base::Node& name : names->items()) lines += name.as_string() + "\n";
  } else if (const base::Node* labels = config.find("id2label"); labels != nullptr && labels->is_table()) {
    for (size_t i = 0; i < labels->size(); ++i) lines += labels->at(std::to_string(i)).as_string() + "\n";
  }
  return lines;
}

}  // namespace

std::map<std::string, std::string> image_files_of(const std::string& folder, const base::Node& config) {
  std::map<std::string, std::string> files;
  try {
    if (const auto facts = facts_of(folder, config)) files[ImageFacts::kFile] = base::read_options<ImageFacts>(*facts).text();
  } catch (const base::InputError& error) {
    base::log_warning("{}: without {}: {}", folder, ImageFacts::kFile, error.what());
  }
  try {
    if (const std::string lines = class_lines(config); !lines.empty()) files[kClassesFile] = lines;
  } catch (const base::InputError& error) {
    base::log_warning("{}: without {}: {}", folder, kClassesFile, error.what());
  }
  return files;
}

}  // namespace mnemo::cli
