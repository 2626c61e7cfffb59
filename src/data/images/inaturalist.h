#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/images/image_set.h"

namespace mnemo::data {

/// What iNaturalist's lists say, which are in COCO's form: "images" with id and file_name, "annotations" with image_id
/// and category_id, "categories" with id and name.
struct INaturalistList {
  std::map<int64_t, std::string> categories;  ///< names by id
  PathList paths;                             ///< of the images, in the order of the list
  std::vector<int64_t> category_of;           ///< of each, an id
};

/// Reads a list of any number of images (2.7 million in 2021's) without a tree of it: what is not named above costs no
/// memory. Throws InputError naming the file, and the entry that is wrong: for what is missing or of another type, for
/// an image without a category or with two, and for more than 4 GiB.
INaturalistList read_inaturalist_list(const std::string& path);

}  // namespace mnemo::data
