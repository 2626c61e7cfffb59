#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/option_rules.h"
#include "base/options.h"

namespace mnemo::data {

/// RandAugment, in timm's words rand-m9-mstd0.5-inc1; 0 operations are none.
struct RandAugmentOptions {
  int64_t num_ops = 0;
  double magnitude = 9.0;
  double magnitude_std = 0.5;
  double probability = 0.5;

  template <class V>
  void visit(V&& v) {
    v("num_ops", num_ops, "operations an image, drawn out of 15; 0: none", base::range(0, 16));
    v("magnitude", magnitude, "level of an operation, on average", base::range(0, 10));
    v("magnitude_std", magnitude_std, "its standard deviation", base::range(0, 10));
    v("probability", probability, "of each drawn operation to be done", base::range(0, 1));
  }
};

/// What is done to training images, in this order: crop, flip, RandAugment, normalising, erasing; then with the whole
/// batch: mixup or cutmix.
struct ImageAugmentOptions {
  std::string crop = "resized";
  std::vector<double> scale = {0.08, 1.0};
  std::vector<double> ratio = {0.75, 4.0 / 3.0};
  int64_t padding = 4;
  std::string interpolation = "bicubic";
  double flip = 0.5;
  RandAugmentOptions randaugment;
  double erase = 0.0;
  std::string erase_mode = "pixel";
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
      "resized: a random part, resized to the image's size; padded: black borders of `padding` pixels, a random place; "
      "none: the test crop",
      base::one_of("resized", "padded", "none"));
    v("scale", scale, "resized: share of the image's area, least and most", base::range(1e-6, 1));
    v("ratio", ratio, "resized: width by height, least and most", base::range(1e-3, 1e3));
    v("padding", padding, "padded: black pixels on every side", base::range(0, 4096));
    v("interpolation", interpolation, "resized: how, random: bilinear or bicubic at random",
      base::one_of("bilinear", "bicubic", "random"));
    v("flip", flip, "probability to exchange left and right", base::range(0, 1));
    v("randaugment", randaugment, "operations on bytes (Cubuk et al. 2020)");
    v("erase", erase, "probability of random erasing (Zhong et al. 2020): a box of 2 to 33 % of the area",
      base::range(0, 1));
    v("erase_mode", erase_mode, "what a box is filled with: noise at every pixel, one random colour, or the mean",
      base::one_of("pixel", "rand", "const"));
    v("erase_count", erase_count, "boxes an image", base::range(1, 64));
    v("mixup", mixup, "alpha of mixup (Zhang et al. 2018): a batch is mixed with itself reversed; 0: none",
      base::range(0, 100));
    v("cutmix", cutmix, "alpha of cutmix (Yun et al. 2019); 0: none", base::range(0, 100));
    v("mix_probability", mix_probability, "of a batch to be mixed at all", base::range(0, 1));
    v("switch_probability", switch_probability, "of cutmix, where mixup is on too", base::range(0, 1));
    v("label_smoothing", label_smoothing, "share of a target that is spread over all classes",
      base::half_open_range(0, 1));
    v("repeats", repeats,
      "times each drawn image stands in a batch, each augmented differently (Hoffer et al. 2020); as many fewer images "
      "are drawn an epoch",
      base::range(1, 64));
  }
  void validate(const base::Where& where) const;
};

/// How an image is brought to the model's size for measuring.
struct ImageTestOptions {
  double crop_pct = 0.875;
  int64_t resize_size = 0;
  std::string crop_mode = "center";
  std::string interpolation = "bicubic";

  template <class V>
  void visit(V&& v) {
    v("crop_pct", crop_pct, "the shorter side becomes floor(image_size / crop_pct), of which the middle is cut out",
      base::range(0.01, 1));
    v("resize_size", resize_size, "the shorter side becomes this instead; 0: as crop_pct says", base::range(0, 65536));
    v("crop_mode", crop_mode, "center: the form stays; squash: both sides are resized, whatever the form",
      base::one_of("center", "squash"));
    v("interpolation", interpolation, "how", base::one_of("bilinear", "bicubic", "box"));
  }
};

/// `[data] type = "images"`: images with a class each.
struct ImageOptions {
  std::string format = "folders";
  std::string train;
  std::string valid;
  std::string test;
  double valid_fraction = 0.0;
  double test_fraction = 0.0;
  int64_t split_seed = 0;
  std::string labels = "fine";
  int64_t partition = 1;
  std::vector<int64_t> image_size;
  std::vector<double> mean = {0.485, 0.456, 0.406};
  std::vector<double> std = {0.229, 0.224, 0.225};
  ImageAugmentOptions augment;
  ImageTestOptions test_crop;
  int64_t workers = 0;
  std::string broken = "stop";
  int64_t keep_decoded = 256;

  template <class V>
  void visit(V&& v) {
    v("format", format,
      "how the set lies on the disk: folders (a folder a class), csv (lines PATH,LABEL), idx (MNIST, Fashion-MNIST), "
      "cifar10, cifar100 (the binary "
      "version), imagenet, inaturalist, places365, sun397",
      base::one_of("folders", "csv", "idx", "cifar10", "cifar100", "imagenet", "inaturalist", "places365", "sun397"));
    v("train", train, "the training images: a folder or file; of a set with parts of its own, the set's folder");
    v("valid", valid,
      "the images that are measured while training; empty: the set's own part, or the share valid_fraction of the "
      "training images");
    v("test", test, "the images of the part test; empty: the set's own part, or the share test_fraction");
    v("valid_fraction", valid_fraction, "share of each class of the training images that is kept for validation",
      base::half_open_range(0, 1));
    v("test_fraction", test_fraction, "share kept for tests", base::half_open_range(0, 1));
    v("split_seed", split_seed, "which ones these are", base::at_least(0));
    v("labels", labels, "cifar100: the 100 classes or the 20 groups", base::one_of("fine", "coarse"));
    v("partition", partition, "sun397: which of its ten divisions into training and test images", base::range(1, 10));
    v("image_size", image_size, "height and width that a model sees; empty: its own image_size", base::range(1, 16384));
    v("mean", mean, "of each channel, as a share of 255; taken off");
    v("std", std, "and what is divided by", base::positive());
    v("augment", augment, "what is done to training images");
    v("test_crop", test_crop, "how images are brought to image_size for measuring");
    v("workers", workers, "threads that read and augment ahead; 0: none. Any number gives the same bits",
      base::range(0, 256));
    v("broken", broken,
      "what a broken image does: stop, with its path; skip: the next one stands in for it in training, measuring "
      "leaves it out and counts it",
      base::one_of("stop", "skip"));
    v("keep_decoded", keep_decoded, "MB of decoded images that stay in memory, the first ones read; 0: none",
      base::range(0, 1 << 20));
  }
  void validate(const base::Where& where) const;

  int64_t height() const { return image_size[0]; }
  int64_t width() const { return image_size[1]; }
};

}  // namespace mnemo::data
