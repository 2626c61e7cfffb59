#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/images/image_set.h"

namespace mnemo::data {

/// The content of iNaturalist's lists, which have COCO's format: "images" with id and file_name, "annotations" with
/// image_id and category_id, "categories" with id and name.
struct INaturalistList {
  std::map<int64_t, std::string> categories;  ///< names by id
  PathList paths;                             ///< image paths, in the order of the list
  std::vector<int64_t> category_of;           ///< category id of each image
};

/// Reads a list of any number of images (2.7 million for 2021) without building a tree; fields not listed above take no
/// memory. Throws InputError that names the file and the wrong entry if something is missing or has the wrong type, if
/// an image has no category or two, and if the file is larger than 4 GiB.
INaturalistList read_inaturalist_list(const std::string& path);

}  // namespace mnemo::data
