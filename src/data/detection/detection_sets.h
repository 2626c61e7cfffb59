#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/detection/detection_batches.h"
#include "data/detection/detection_options.h"
#include "data/part.h"

namespace mnemo::data {

/// The parts of a data set of objects. The categories of each are `classes`, in that order.
struct DetectionSets {
  std::shared_ptr<const AnnotatedImages> train, valid, test;  ///< null: there is none
  std::vector<std::string> classes;
  std::vector<std::string> notices = {};  ///< sentences about what was cut, dropped or left out

  const std::shared_ptr<const AnnotatedImages>& part(Part part) const {
    return part == Part::train ? train : part == Part::valid ? valid : test;
  }
};

/// Reads annotations, not images; boxes of the training part are cleaned (clean_boxes), those of the others are as
/// annotated. masks: those of all objects are needed, but for crowds of the training part. Throws InputError for data
/// without training images, without masks, or with two categories of one name.
DetectionSets load_detections(const DetectionOptions& options, bool masks);

/// Throws InputError naming the first object without a mask, or with one that cannot be rasterised. of_crowds: crowds
/// need masks too, as they do where masks are measured.
void require_masks(const CocoSet& set, bool of_crowds);

/// Categories in the order of `classes`; objects of others are dropped. Categories that the set lacks get ids of their
/// own.
CocoSet with_classes(CocoSet set, const std::vector<std::string>& classes);

/// Images by their numbers, in that order, with their objects.
CocoSet chosen_images(const CocoSet& set, const std::vector<int64_t>& images);

/// `count` numbers below `size`, evenly spread; all if there are fewer.
std::vector<int64_t> spread_numbers(int64_t size, int64_t count);

/// Whether a path is of such data, and in which format; nothing otherwise.
std::optional<DetectionOptions::Format> detection_format(const std::string& path);

/// How such data are read, by their format, parts and VOC's lists of splits; nothing for other data. A folder without a
/// format of its own has the layout of COCO: `annotations` with a single file, or with instances_train*.json and
/// perhaps instances_val*.json.
std::optional<DetectionOptions> find_detections(const std::string& path);

}  // namespace mnemo::data
