#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file_io.h"
#include "data/images/image_options.h"
#include "data/images/image_set.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::data {

/// This project's golden images: "rgb8.png" and the like.
inline std::string golden_image(const std::string& name) {
  return MNEMO_SOURCE_DIR "/tests/golden/data/images/files/" + name;
}

/// Copies a golden image to a path, creating its folders.
inline void place_image(const std::string& path, const std::string& golden) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::copy_file(golden_image(golden), path, std::filesystem::copy_options::overwrite_existing);
}

inline void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  base::write_file_atomic(path, text);
}

/// Images that all differ.
inline const std::vector<std::string>& pictures() {
  static const std::vector<std::string> names = {"photo_7865c0.jpg", "photo_b37da4.jpg",  "rgb_444.jpg", "rgb8.png",
                                                 "palette8.png",     "orientation_6.jpg", "cmyk.jpg",    "grey8.png"};
  return names;
}

/// `each` images in each of three class folders below `root`.
inline void make_class_folders(const std::string& root, int each = 4) {
  int next = 0;
  for (const char* name : {"ant", "bee", "cat"}) {
    for (int i = 0; i < each; ++i) {
      const std::string& picture = pictures()[static_cast<size_t>(next++) % pictures().size()];
      place_image(root + "/" + name + "/" + std::to_string(i) + picture.substr(picture.rfind('.')), picture);
    }
  }
}

inline ImageOptions small_images(const std::string& train, std::vector<int64_t> size = {16, 20}) {
  ImageOptions options;
  options.train = train;
  options.image_size = std::move(size);
  return options;
}

using Format = ImageOptions::Format;

inline ImageOptions set_of(Format format, const std::string& train) {
  ImageOptions options = small_images(train);
  options.format = format;
  return options;
}

/// "file name: class" of every image.
inline std::vector<std::string> listed(const ImageSet& set) {
  std::vector<std::string> lines;
  for (int64_t i = 0; i < set.size(); ++i) {
    lines.push_back(std::filesystem::path(set.name(i)).filename().string() + ": " +
                    set.classes()[static_cast<size_t>(set.label(i))]);
  }
  return lines;
}

}  // namespace mnemo::data
