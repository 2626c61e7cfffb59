#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/images/image_options.h"

namespace mnemo::bundle {

/// How images are preprocessed for a model; stored next to its weights.
struct ImagePreprocessing {
  std::vector<int64_t> image_size = {224, 224};
  std::vector<double> mean = {0.485, 0.456, 0.406};
  std::vector<double> std = {0.229, 0.224, 0.225};
  data::ImageTestOptions test_crop;
  template <class V>
  void visit(V&& v) {
    v("image_size", image_size, "height and width of the model input", base::range(1, 16384));
    v("mean", mean, "mean of each channel, as a fraction of 255, subtracted from the pixels");
    v("std", std, "standard deviation of each channel, by which the result is divided", base::positive());
    v("test_crop", test_crop, "how an image is resized and cropped to image_size");
  }
  void validate(const base::Where& where) const;
  static constexpr int64_t kMaxPixels = int64_t{1} << 24;

  /// images.json of a model folder.
  static constexpr const char* kFile = "images.json";
  static ImagePreprocessing of(const data::ImageOptions& options);
  /// Read from images.json, or from the files of another library; nothing if there are neither. Throws InputError for
  /// an invalid file.
  static std::optional<ImagePreprocessing> find(const std::string& folder);
  /// Throws InputError if there are neither.
  static ImagePreprocessing read(const std::string& folder);
  std::string text() const;
  /// As data set options, for the test transform.
  data::ImageOptions options() const;
};

}  // namespace mnemo::bundle
