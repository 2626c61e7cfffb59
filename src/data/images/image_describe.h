#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/node.h"
#include "data/images/image_options.h"

namespace mnemo::data {

/// The description of one part of an image set, printed by `mnemo data`.
struct ImagePartDescription {
  std::string name;  ///< "train", "valid" or "test"
  int64_t images = 0;
  int64_t fewest = 0, most = 0;  ///< images per class
  int64_t looked_at = 0;         ///< number of images whose header (with `check`: whose pixels) was read
  int64_t min_height = 0, min_width = 0, max_height = 0, max_width = 0, median_height = 0, median_width = 0;
  std::vector<std::string> broken;  ///< errors of unreadable images
};

struct ImageDescription {
  std::string format;
  std::vector<std::string> classes;
  std::vector<ImagePartDescription> parts;
};

/// Lists the data set like training would, and reads the headers of up to 10,000 images of each part, evenly spread;
/// with `check`, decodes every image.
ImageDescription describe_images(const ImageOptions& options, bool check);

std::string to_text(const ImageDescription& description);
base::Node to_node(const ImageDescription& description);

/// Detects the data set in a folder: MNIST or CIFAR files, one of the supported layouts, train/ and so on with class
/// folders, or class folders, of which a tenth of each is used for validation. Throws InputError if it is none of
/// these.
ImageOptions detect_images(const std::string& folder);

}  // namespace mnemo::data
