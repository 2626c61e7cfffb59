#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/detection/detection_transform.h"
#include "data/detection/odd_boxes.h"
#include "data/detection/voc.h"

namespace mnemo::data {

inline constexpr const char* kResize =
    "pillow: with antialiasing, sides rounded; torchvision: between the nearest four pixels, sides rounded down";

/// `[data] type = "detection"`: images with boxes, and perhaps masks, of objects.
struct DetectionOptions : DetectionTransformOptions {
  enum class Format { coco, voc, lines } format = Format::coco;
  std::string train;
  std::string valid;
  std::string test;
  std::string image_folder;
  std::vector<std::string> splits = {"train", "val", "test"};
  VocCorners corners = VocCorners::pixels;
  double valid_fraction = 0.0;
  int64_t split_seed = 0;
  std::vector<std::string> classes;
  OddBoxes boxes = OddBoxes::clip;
  enum class Empty { keep, drop } empty = Empty::keep;
  int64_t workers = 0;

  template <class V>
  void visit(V&& v) {
    v("format", format,
      "coco: a JSON file of COCO instances; voc: a folder in the layout of Pascal VOC; lines: a folder of images with "
      "metadata.jsonl",
      base::one_of("coco", "voc", "lines"));
    v("train", train, "file or folder of the training images");
    v("valid", valid, "those of the validation images; empty: valid_fraction of the training images, or VOC's split");
    v("test", test, "those of the test images; empty: none, or VOC's split");
    v("image_folder", image_folder,
      "coco: folder of the images, from that of the JSON file; empty: ../NAME or NAME for a file instances_NAME.json, "
      "../images, images, or the file's own");
    v("splits", splits, "voc: names of ImageSets/Main/NAME.txt for training, validation and test; []: all images train",
      base::not_empty());
    v("corners", corners,
      "voc: corners are the first and last pixel, counted from 1 (VOC's own), or edges, counted from 0 (labelImg)",
      base::one_of("pixels", "edges"));
    v("valid_fraction", valid_fraction, "fraction of the training images used for validation",
      base::half_open_range(0, 1));
    v("split_seed", split_seed, "seed of the choice of validation images", base::at_least(0));
    v("classes", classes,
      "names of the categories to find, in the order of the model's classes; empty: all of the training data, by id",
      base::not_empty());
    v("boxes", boxes,
      "training boxes that are empty or reach out of their image: clip, and drop if nothing is left; refuse",
      base::one_of("clip", "refuse"));
    v("empty", empty, "training images without objects", base::one_of("keep", "drop"));
    v("shorter", sides,
      "pixels of an image's shorter side after resizing; several: one at random in training, the largest in evaluation",
      base::range(1, 1 << 14));
    v("longest", longest, "limit of the longer side", base::range(1, 1 << 14));
    v("resize", resize, kResize, base::one_of("pillow", "torchvision"));
    v("flip", flip, "probability of a horizontal flip", base::range(0, 1));
    v("colour", colour, "brightness, contrast and colour are multiplied by 1 - this to 1 + this",
      base::half_open_range(0, 1));
    v("jitter", jitter,
      "large-scale jitter (Ghiasi et al. 2021): smallest and largest scale; a square of the largest shorter side is "
      "cut out, or filled with the mean; empty: none",
      base::range(1e-3, 16));
    v("mean", mean, "mean of each channel, as a fraction of 255, subtracted from the pixels");
    v("std", std, "standard deviation of each channel, by which the result is divided", base::positive());
    v("workers", workers,
      "number of threads that read and change images ahead; 0: none. The result does not depend on it",
      base::range(0, 256));
  }
  void validate(const base::Where& where) const;
};

/// How an image becomes the input of a detector: detection.json of its model folder.
struct DetectionInput {
  static constexpr const char* kFile = "detection.json";
  int64_t shorter = 800, longest = 1333;
  DetectionResize resize = DetectionResize::pillow;
  std::vector<double> mean = {0.485, 0.456, 0.406};
  std::vector<double> std = {0.229, 0.224, 0.225};
  template <class V>
  void visit(V&& v) {
    v("shorter", shorter, "pixels of an image's shorter side after resizing", base::range(1, 1 << 14));
    v("longest", longest, "limit of the longer side", base::range(1, 1 << 14));
    v("resize", resize, kResize, base::one_of("pillow", "torchvision"));
    v("mean", mean, "mean of each channel, as a fraction of 255, subtracted from the pixels");
    v("std", std, "standard deviation of each channel, by which the result is divided", base::positive());
  }
  void validate(const base::Where& where) const;
  static DetectionInput of(const DetectionOptions& options);
  std::string text() const;
  DetectionTransformOptions transform() const;
};

}  // namespace mnemo::data
