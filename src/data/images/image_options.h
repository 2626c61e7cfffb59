#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/option_rules.h"
#include "base/options.h"
#include "data/images/image_resize.h"

namespace mnemo::data {

/// RandAugment, called rand-m9-mstd0.5-inc1 in timm; 0 operations disable it.
struct RandAugmentOptions {
  int64_t num_ops = 0;
  double magnitude = 9.0;
  double magnitude_std = 0.5;
  double probability = 0.5;

  template <class V>
  void visit(V&& v) {
    v("num_ops", num_ops, "number of random operations per image, out of 15; 0: none", base::range(0, 16));
    v("magnitude", magnitude, "mean magnitude of an operation", base::range(0, 10));
    v("magnitude_std", magnitude_std, "standard deviation of the magnitude", base::range(0, 10));
    v("probability", probability, "probability of applying each chosen operation", base::range(0, 1));
  }
};

/// Augmentation of training images, in this order: crop, flip, RandAugment, normalisation, erasing; then mixup or
/// cutmix on the whole batch.
struct ImageAugmentOptions {
  enum class Crop { resized, padded, none } crop = Crop::resized;
  std::vector<double> scale = {0.08, 1.0};
  std::vector<double> ratio = {0.75, 4.0 / 3.0};
  int64_t padding = 4;
  enum class CropInterpolation { bilinear, bicubic, random } interpolation = CropInterpolation::bicubic;
  double flip = 0.5;
  RandAugmentOptions randaugment;
  double erase = 0.0;
  enum class EraseMode { pixel, colour, constant } erase_mode = EraseMode::pixel;
  int64_t erase_count = 1;
  double mixup = 0.0;
  double cutmix = 0.0;
  double mix_probability = 1.0;
  double switch_probability = 0.5;
  double label_smoothing = 0.0;
  int64_t repeats = 1;

  template <class V>
  void visit(V&& v) {
    v("crop", crop,
      "resized: a random region, resized; padded: a random crop after adding a black border of `padding` pixels; none: "
      "the test crop",
      base::one_of("resized", "padded", "none"));
    v("scale", scale, "resized: minimum and maximum fraction of the image area", base::range(1e-6, 1));
    v("ratio", ratio, "resized: minimum and maximum aspect ratio (width / height)", base::range(1e-3, 1e3));
    v("padding", padding, "padded: border in pixels on every side", base::range(0, 4096));
    v("interpolation", interpolation, "resized: interpolation; random picks bilinear or bicubic",
      base::one_of("bilinear", "bicubic", "random"));
    v("flip", flip, "probability of a horizontal flip", base::range(0, 1));
    v("randaugment", randaugment, "RandAugment (Cubuk et al. 2020)");
    v("erase", erase, "probability of random erasing of 2 to 33 % of the area (Zhong et al. 2020)", base::range(0, 1));
    v("erase_mode", erase_mode, "fill of erased boxes: noise per pixel, one random colour, or the mean",
      base::one_of("pixel", "rand", "const"));
    v("erase_count", erase_count, "number of boxes per image", base::range(1, 64));
    v("mixup", mixup, "alpha of mixup (Zhang et al. 2018); the batch is mixed with its reverse; 0: none",
      base::range(0, 100));
    v("cutmix", cutmix, "alpha of cutmix (Yun et al. 2019); 0: none", base::range(0, 100));
    v("mix_probability", mix_probability, "probability of mixing a batch", base::range(0, 1));
    v("switch_probability", switch_probability, "probability of using cutmix instead of mixup if both are on",
      base::range(0, 1));
    v("label_smoothing", label_smoothing, "label smoothing: fraction of the target spread over all classes",
      base::half_open_range(0, 1));
    v("repeats", repeats,
      "copies of each image per batch, each augmented differently (Hoffer et al. 2020); an epoch draws correspondingly "
      "fewer different images",
      base::range(1, 64));
  }
  void validate(const base::Where& where) const;
};

/// How images are resized, and cropped for evaluation.
struct ImageTestOptions {
  double crop_pct = 0.875;
  int64_t resize_size = 0;
  enum class CropMode { center, squash } crop_mode = CropMode::center;
  Interpolation interpolation = Interpolation::bicubic;
  Resizing resize = Resizing::pillow13;

  template <class V>
  void visit(V&& v) {
    v("crop_pct", crop_pct, "the shorter side is resized to floor(image_size / crop_pct), then the center is cropped",
      base::range(0.01, 1));
    v("resize_size", resize_size, "resize the shorter side to this instead; 0: use crop_pct", base::range(0, 65536));
    v("crop_mode", crop_mode, "center: keep the aspect ratio and crop; squash: resize both sides",
      base::one_of("center", "squash"));
    v("interpolation", interpolation, "interpolation of resizing", base::one_of("bilinear", "bicubic", "box"));
    v("resize", resize,
      "resize as this version of Pillow, in training too: pillow13 resizes columns before rows where the height "
      "shrinks by more than twice as much as the width; pillow12 and earlier always rows first",
      base::one_of("pillow12", "pillow13"));
  }
};

/// `[data] type = "images"`: images with one class each.
struct ImageOptions {
  enum class Format {
    folders,
    csv,
    idx,
    cifar10,
    cifar100,
    imagenet,
    inaturalist,
    places365,
    sun397
  } format = Format::folders;
  std::string train;
  std::string valid;
  std::string test;
  double valid_fraction = 0.0;
  double test_fraction = 0.0;
  int64_t split_seed = 0;
  enum class Labels { fine, coarse } labels = Labels::fine;
  int64_t partition = 1;
  std::vector<int64_t> image_size;
  std::vector<double> mean = {0.485, 0.456, 0.406};
  std::vector<double> std = {0.229, 0.224, 0.225};
  ImageAugmentOptions augment;
  ImageTestOptions test_crop;
  int64_t workers = 0;
  enum class Broken { stop, skip } broken = Broken::stop;
  bool follow_links = false;
  int64_t keep_decoded = 256;

  template <class V>
  void visit(V&& v) {
    v("format", format,
      "format of the data set on disk: folders (one folder per class), csv (lines PATH,LABEL), idx (MNIST, "
      "Fashion-MNIST), cifar10, cifar100 (binary version), imagenet, inaturalist, places365, sun397",
      base::one_of("folders", "csv", "idx", "cifar10", "cifar100", "imagenet", "inaturalist", "places365", "sun397"));
    v("train", train,
      "folder or file of the training images; for data sets with predefined parts, the folder of the data set");
    v("valid", valid,
      "validation images; empty: the data set's own validation part, or valid_fraction of the training images");
    v("test", test, "test images; empty: the data set's own test part, or test_fraction of the training images");
    v("valid_fraction", valid_fraction, "fraction of each class of the training images used for validation",
      base::half_open_range(0, 1));
    v("test_fraction", test_fraction, "fraction of each class of the training images used for testing",
      base::half_open_range(0, 1));
    v("split_seed", split_seed, "seed of the random choice of validation and test images", base::at_least(0));
    v("labels", labels, "cifar100: use the 100 fine or the 20 coarse labels", base::one_of("fine", "coarse"));
    v("partition", partition, "sun397: which of the ten training and test splits to use", base::range(1, 10));
    v("image_size", image_size, "height and width of the model input; empty: the model's image_size",
      base::range(1, 16384));
    v("mean", mean, "mean of each channel, as a fraction of 255, subtracted from the pixels");
    v("std", std, "standard deviation of each channel, by which the result is divided", base::positive());
    v("augment", augment, "augmentation of the training images");
    v("test_crop", test_crop, "how images are resized and cropped for evaluation");
    v("workers", workers,
      "number of threads that load and augment images ahead; 0: none. The result does not depend on it",
      base::range(0, 256));
    v("broken", broken,
      "on an unreadable image: stop with an error, or skip: training takes the next image, evaluation leaves it out "
      "and counts it",
      base::one_of("stop", "skip"));
    v("follow_links", follow_links, "class folders: follow symbolic links to folders and files outside of the set");
    v("keep_decoded", keep_decoded,
      "size in MB of the cache of decoded images, one for each part that has files of its own; 0: none",
      base::range(0, 1 << 20));
  }
  void validate(const base::Where& where) const;

  /// A table of an earlier version, which has every key but test_crop.resize, resizes as that version did.
  static void from_earlier(base::Node& table);

  /// The format as recipes write it.
  std::string format_name() const;
  int64_t height() const { return image_size[0]; }
  int64_t width() const { return image_size[1]; }
};

}  // namespace mnemo::data
