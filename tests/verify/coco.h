#pragma once

#include <string>

#include "tests/verify/golden.h"

namespace mnemo::verify {

/// Whether it is a folder of an evaluation by COCO's rules: instances.json, detections_*.json and expect.json.
bool is_coco_folder(const std::string& path);
/// Compares the twelve numbers and those by category.
GoldenReport verify_coco_folder(const std::string& path);

/// A file of masks (rle.json): encoding, text, area, box, IoU, merging, polygons.
GoldenReport verify_rle_file(const std::string& path);

}  // namespace mnemo::verify
