#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/node.h"
#include "data/images/image_options.h"

namespace mnemo::data {

/// What `mnemo data` tells about one part of an image set.
struct ImagePartDescription {
  std::string name;  ///< "train", "valid" or "test"
  int64_t images = 0;
  int64_t fewest = 0, most = 0;  ///< of a class
  int64_t looked_at = 0;         ///< images whose header, or with `check` whose pixels, were read
  int64_t min_height = 0, min_width = 0, max_height = 0, max_width = 0, median_height = 0, median_width = 0;
  std::vector<std::string> broken;  ///< errors of those that cannot be read
};

struct ImageDescription {
  std::string format;
  std::vector<std::string> classes;
  std::vector<ImagePartDescription> parts;
};

/// Lists the set as training would and looks at the headers of up to 10,000 images of each part, evenly spread; with
/// `check` every image is decoded.
ImageDescription describe_images(const ImageOptions& options, bool check);

std::string to_text(const ImageDescription& description);
base::Node to_node(const ImageDescription& description);

/// What lies in a folder: MNIST's or CIFAR's files, one of the known layouts, train/ and the like with class folders,
/// or class folders, of which a tenth of each is kept for validation. Throws InputError where it looks like none of
/// them.
ImageOptions detect_images(const std::string& folder);

}  // namespace mnemo::data
