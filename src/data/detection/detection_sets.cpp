#include "data/detection/detection_sets.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/random.h"
#include "base/text_format.h"
#include "data/detection/box_lines.h"

namespace mnemo::data {
namespace {

using SetFormat = DetectionOptions::Format;

/// Annotations and the folder of their images.
struct ReadSet {
  CocoSet set;
  std::string folder;
};

/// The folder of a COCO file's images: the first that has one of them.
std::string coco_image_folder(const CocoSet& set, const DetectionOptions& options) {
  const std::string own = base::parent_folder(set.path);
  std::vector<std::string> places;
  if (!options.image_folder.empty()) {
    places.push_back(options.image_folder.front() == '/' ? options.image_folder
                                                         : base::join_path(own, options.image_folder));
  } else {
    std::string name = set.path.substr(set.path.rfind('/') + 1);
    name = name.substr(0, name.rfind('.'));
    name = name.substr(name.find('_') + 1);
    for (const std::string& folder : {name, std::string("images")}) {
      places.push_back(base::join_path(base::join_path(own, ".."), folder));
      places.push_back(base::join_path(own, folder));
    }
    places.push_back(own);
  }
  const std::string& first = set.images.front().file;
  for (const std::string& place : places) {
    if (base::path_exists(base::join_path(place, first))) return place;
  }
  base::input_error("{}: image {} is in none of these folders: {}; data.image_folder names it, from the file's folder",
                    set.path, base::in_quotes(first), base::listed(places, 6));
}

ReadSet read_set(const DetectionOptions& options, const std::string& path, size_t split) {
  ReadSet read;
  if (options.format == SetFormat::coco) {
    read.set = read_coco(path);
  } else if (options.format == SetFormat::voc) {
    read.set = read_voc(path, split < options.splits.size() ? options.splits[split] : "", options.corners);
  } else {
    read.set = read_box_lines(path);
  }
  base::require(!read.set.images.empty(), "{}: expected images, found none", path);
  read.folder = options.format == SetFormat::coco ? coco_image_folder(read.set, options) : path;
  return read;
}

std::vector<std::string> category_names(const CocoSet& set) {
  std::vector<std::string> names;
  for (const CocoCategory& category : set.categories) names.push_back(category.name);
  return names;
}

/// Adds "FILE: 12 objects cut to the image."; nothing for 0.
void note(std::vector<std::string>& notices, int64_t count, const char* noun, const char* what,
          const std::string& path) {
  if (count > 0) notices.push_back(fmt::format("{}: {} {}.", path, base::counted(count, noun), what));
}

/// Whether a file has one of the words in its first 64 KB.
bool begins_with_any(const std::string& path, std::initializer_list<std::string_view> words) {
  const base::MappedFile file(path);
  const std::string_view start = file.bytes().substr(0, size_t{64} << 10);
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return start.find(word) != std::string_view::npos; });
}

/// Images for training and, by valid_fraction, for validation.
std::pair<std::vector<int64_t>, std::vector<int64_t>> divided(int64_t size, const DetectionOptions& options) {
  std::vector<int64_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  base::Random random{static_cast<uint64_t>(options.split_seed)};
  random.shuffle(all);
  const auto cut = all.begin() + static_cast<int64_t>(static_cast<double>(size) * options.valid_fraction);
  std::vector<int64_t> valid(all.begin(), cut), train(cut, all.end());
  std::sort(valid.begin(), valid.end());
  std::sort(train.begin(), train.end());
  return {train, valid};
}

/// Loads the parts, one after the other.
class Loader {
 public:
  Loader(const DetectionOptions& options, bool masks) : options_(options), masks_(masks) {}

  DetectionSets load() {
    base::require(!options_.train.empty(), "{}", "recipe: 'data.train': expected annotated images, found none");
    ReadSet train = read_set(options_, options_.train, 0);
    sets_.classes = options_.classes.empty() ? category_names(train.set) : options_.classes;
    const std::vector<std::string> there = category_names(train.set);
    std::vector<std::string> absent;
    for (const std::string& name : options_.classes) {
      if (std::find(there.begin(), there.end(), name) == there.end()) absent.push_back(base::in_quotes(name));
    }
    if (!absent.empty())
      sets_.notices.push_back(
          fmt::format("{}: no category is called {}, as a class is.", options_.train, base::listed(absent, 5)));
    train.set = with_classes(std::move(train.set), sets_.classes);
    const bool is_voc = options_.format == SetFormat::voc, has_splits = is_voc && options_.splits.size() > 1;
    if (options_.valid_fraction > 0) {
      const auto [own, held_out] = divided(static_cast<int64_t>(train.set.images.size()), options_);
      if (!held_out.empty()) sets_.valid = held({chosen_images(train.set, held_out), train.folder});
      train.set = chosen_images(train.set, own);
    } else if (options_.valid == options_.train && !(is_voc && !options_.splits.empty())) {
      sets_.valid = held(train);
    } else if (!options_.valid.empty() || has_splits) {
      sets_.valid = other(options_.valid, 1);
    }
    if (!options_.test.empty() || (has_splits && options_.splits.size() > 2)) sets_.test = other(options_.test, 2);
    clean(train.set);
    if (masks_) require_masks(train.set, false);
    sets_.train = std::make_shared<const AnnotatedImages>(std::move(train.set), train.folder, masks_);
    base::require(sets_.train->size() > 0, "{}: expected images with objects, found none", options_.train);
    return std::move(sets_);
  }

 private:
  std::shared_ptr<const AnnotatedImages> other(const std::string& path, size_t split) {
    ReadSet read = read_set(options_, path.empty() ? options_.train : path, split);
    read.set = with_classes(std::move(read.set), sets_.classes);
    return held(std::move(read));
  }

  /// A part to measure: annotations as they are. Images are read without their masks.
  std::shared_ptr<const AnnotatedImages> held(ReadSet read) const {
    if (masks_) require_masks(read.set, true);
    return std::make_shared<const AnnotatedImages>(std::move(read.set), read.folder, false);
  }

  void clean(CocoSet& set) {
    const std::string path = set.path;
    const BoxCounts counts = clean_boxes(set, options_.boxes, options_.empty == DetectionOptions::Empty::keep);
    note(sets_.notices, counts.clipped, "object", "cut to the image", path);
    note(sets_.notices, counts.empty, "object", "without area dropped", path);
    note(sets_.notices, counts.outside, "object", "outside of the image dropped", path);
    note(sets_.notices, counts.images, "image", "without objects dropped", path);
  }

  const DetectionOptions& options_;
  bool masks_;
  DetectionSets sets_;
};

}  // namespace

DetectionSets load_detections(const DetectionOptions& options, bool masks) { return Loader(options, masks).load(); }

void require_masks(const CocoSet& set, bool of_crowds) {
  for (const CocoObject& object : set.objects) {
    if (object.crowd && !of_crowds) continue;
    base::require(!object.segmentation.empty(),
                  "{}: expected a 'segmentation', which a detector with masks needs, found none{}; for boxes alone: "
                  "model.head.type of one without masks",
                  set.where(object), object.crowd ? ", and crowds too are measured by their masks" : "");
    for (const std::vector<double>& polygon : object.segmentation.polygons) require_polygon(polygon, set.where(object));
  }
}

CocoSet with_classes(CocoSet set, const std::vector<std::string>& classes) {
  std::map<std::string, int32_t> class_of;
  std::set<std::string> repeated;  // published models have several classes "N/A", which no data have
  for (size_t i = 0; i < classes.size(); ++i) {
    if (!class_of.emplace(classes[i], static_cast<int32_t>(i)).second) repeated.insert(classes[i]);
  }
  int64_t next_id = 1;
  for (const CocoCategory& category : set.categories) next_id = std::max(next_id, category.id + 1);
  std::vector<CocoCategory> ordered;
  for (const std::string& name : classes) ordered.push_back({0, name});
  std::vector<bool> found(classes.size());
  std::vector<int32_t> number;
  for (const CocoCategory& category : set.categories) {
    const auto own = class_of.find(category.name);
    number.push_back(own == class_of.end() ? -1 : own->second);
    if (own == class_of.end()) continue;
    const auto at = static_cast<size_t>(own->second);
    base::require(!found[at] && !repeated.contains(category.name),
                  "{}: two categories or classes have the name {}; expected one of that name", set.path,
                  base::in_quotes(category.name));
    found[at] = true;
    ordered[at].id = category.id;
  }
  base::require(std::find(found.begin(), found.end(), true) != found.end() || set.categories.empty(),
                "{}: expected a category among {}, found {}", set.path, base::listed(classes, 5),
                base::listed(category_names(set), 5));
  for (size_t i = 0; i < ordered.size(); ++i) {
    if (!found[i]) ordered[i].id = next_id++;
  }
  std::erase_if(set.objects, [&](const CocoObject& o) { return number[static_cast<size_t>(o.category)] < 0; });
  for (CocoObject& object : set.objects) object.category = number[static_cast<size_t>(object.category)];
  set.categories = std::move(ordered);
  return set;
}

CocoSet chosen_images(const CocoSet& set, const std::vector<int64_t>& images) {
  CocoSet chosen{.path = set.path, .categories = set.categories};
  std::vector<int32_t> number(set.images.size(), -1);
  for (const int64_t i : images) {
    number[static_cast<size_t>(i)] = static_cast<int32_t>(chosen.images.size());
    chosen.images.push_back(set.images[static_cast<size_t>(i)]);
  }
  for (const CocoObject& object : set.objects) {
    const int32_t image = number[static_cast<size_t>(object.image)];
    if (image < 0) continue;
    chosen.objects.push_back(object);
    chosen.objects.back().image = image;
  }
  return chosen;
}

std::vector<int64_t> spread_numbers(int64_t size, int64_t count) {
  std::vector<int64_t> numbers;
  count = std::min(size, count);
  for (int64_t i = 0; i < count; ++i) numbers.push_back(i * size / count);
  return numbers;
}

std::optional<SetFormat> detection_format(const std::string& path) {
  if (!base::is_folder(path)) {
    const bool coco = path.ends_with(".json") && base::path_exists(path) &&
                      begins_with_any(path, {"\"annotations\"", "\"categories\"", "\"file_name\""});
    return coco ? std::optional(SetFormat::coco) : std::nullopt;
  }
  if (base::is_folder(base::join_path(path, "Annotations")) && base::is_folder(base::join_path(path, "JPEGImages")))
    return SetFormat::voc;
  const std::string lines = base::join_path(path, kLinesFile);
  if (base::path_exists(lines) && begins_with_any(lines, {"\"objects\""})) return SetFormat::lines;
  return std::nullopt;
}

std::optional<DetectionOptions> find_detections(const std::string& path) {
  DetectionOptions found;
  if (const auto format = detection_format(path)) {
    found.format = *format;
    found.train = path;
    if (found.format != SetFormat::voc) return found;
    const auto lacks = [&](const std::string& split) {
      return !base::path_exists(base::join_path(path, "ImageSets/Main/" + split + ".txt"));
    };
    found.splits.erase(std::find_if(found.splits.begin(), found.splits.end(), lacks), found.splits.end());
    if (found.splits.size() > 1) found.valid = path;
    return found;
  }
  const std::string folder = base::join_path(path, "annotations");
  if (!base::is_folder(folder)) return std::nullopt;
  std::vector<std::string> files;
  for (const std::string& name : base::list_folder(folder)) {
    const std::string file = base::join_path(folder, name);
    if (detection_format(file) != SetFormat::coco) continue;
    files.push_back(file);
    if (name.starts_with("instances_train")) found.train = file;
    if (name.starts_with("instances_val")) found.valid = file;
  }
  if (files.size() == 1) {
    found.train = files.front();
    found.valid.clear();
  }
  return found.train.empty() ? std::nullopt : std::optional(found);
}

}  // namespace mnemo::data
