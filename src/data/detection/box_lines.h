#pragma once

#include <string>

#include "data/detection/coco.h"

namespace mnemo::data {

inline constexpr const char* kLinesFile = "metadata.jsonl";

/// A folder of images with metadata.jsonl, a line each as Hugging Face's `imagefolder` has it:
///   {"file_name": "a.jpg", "objects": {"bbox": [[x, y, width, height], ...], "categories": [0, ...]}}
/// Categories are integers, which are the ids, or names, which get ids from 0 in sorted order. Sizes are those in the
/// headers of the images, or the keys height and width. There are no masks. Throws InputError with file and line for
/// broken JSON, missing keys, lists of unequal length, a path out of the folder, or an image listed twice.
CocoSet read_box_lines(const std::string& folder);

/// Throws InputError "WHERE: ..." for a path that is absolute, empty, or leaves its folder.
void require_inside(const std::string& path, const std::string& where);

}  // namespace mnemo::data
