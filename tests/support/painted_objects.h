#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/file_io.h"
#include "data/detection/jpeg_bytes.h"

namespace mnemo::test {

/// Images of painted rectangles with their COCO annotations in a folder: instances_painted.json and painted/. Red ones
/// are of category 7, "red", blue ones of category 9, "blue". Image i has i % 3 + 1 objects; sizes differ.
inline void paint_objects(const std::string& folder, int64_t count) {
  base::make_folders(folder + "/painted");
  std::string images, objects;
  int64_t id = 0;
  for (int64_t i = 0; i < count; ++i) {
    data::Image image(64 + 8 * (i % 2), 64);
    for (uint8_t& byte : image.bytes) byte = 120;
    for (int64_t k = 0; k <= i % 3; ++k) {
      const int64_t x = 2 + 20 * k, y = 4 + 6 * (i % 4), width = 14 + 2 * (i % 2), height = 24 + 4 * k;
      const bool red = (i + k) % 2 == 0;
      for (int64_t row = y; row < y + height; ++row) {
        for (int64_t column = x; column < x + width; ++column) {
          uint8_t* pixel = image.at(row, column);
          pixel[0] = red ? 250 : 10, pixel[1] = 10, pixel[2] = red ? 10 : 250;
        }
      }
      objects += fmt::format(
          "{}{{\"id\":{},\"image_id\":{},\"category_id\":{},\"bbox\":[{},{},{},{}],\"area\":{},\"iscrowd\":0,"
          "\"segmentation\":[[{},{},{},{},{},{},{},{}]]}}",
          objects.empty() ? "" : ",", ++id, i + 1, red ? 7 : 9, x, y, width, height, width * height, x, y, x + width, y,
          x + width, y + height, x, y + height);
    }
    base::write_file_atomic(fmt::format("{}/painted/{}.jpg", folder, i), data::jpeg_bytes(image, 95));
    images += fmt::format("{}{{\"id\":{},\"file_name\":\"{}.jpg\",\"height\":{},\"width\":{}}}",
                          images.empty() ? "" : ",", i + 1, i, image.height, image.width);
  }
  base::write_file_atomic(folder + "/instances_painted.json",
                          fmt::format("{{\"images\":[{}],\"annotations\":[{}],\"categories\":[{{\"id\":7,\"name\":"
                                      "\"red\"}},{{\"id\":9,\"name\":\"blue\"}}]}}",
                                      images, objects));
}

/// [model] of a detector of about 60,000 parameters.
inline std::string small_detector(const std::string& head, bool cached = false) {
  return fmt::format(
      "backbone = {{ type = \"pvt_v2\", image_size = [64, 64], dims = [8, 16, 16, 16], depths = [1, 1, 1, 1], "
      "num_heads = [1, 1, 2, 2], mlp_ratios = [2, 2, 2, 2], sr_ratios = [8, 4, 2, 1] }}\n"
      "head = {{ type = \"{}\", channels = 16, {} }}\nmemory = [{}]\n",
      head,
      head == "retinanet" ? "num_convs = 1" : "hidden = 32, proposals = 60, sampled_regions = 32, sampled_anchors = 32",
      cached ? "{ type = \"grc\", attend = \"sample\", eval_read = \"updated\" }" : "");
}

}  // namespace mnemo::test
