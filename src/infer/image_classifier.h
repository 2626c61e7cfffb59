#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bundle/bundle.h"
#include "data/images/image.h"
#include "infer/task_classifier.h"

namespace mnemo::infer {

/// One class of a head, and how likely it is.
struct ClassShare {
  std::string label;
  double probability = 0;
};

/// The likeliest classes of one head, the likeliest first.
struct HeadAnswer {
  std::string head;  ///< "base": the model's own; else a task's name
  std::vector<ClassShare> best;
};

/// What the heads say of one image, or why there is no answer.
struct ImageAnswer {
  std::string image;  ///< its path
  std::string error;  ///< of an image that was skipped; empty otherwise
  std::vector<HeadAnswer> heads;
};

struct ClassifyOptions {
  std::vector<std::string> tasks = {};  ///< these heads alone; empty: all
  int64_t top = 5;                      ///< classes of each head
  int64_t batch = 8;                    ///< images run side by side
  bool skip_broken = false;             ///< an image that cannot be read is left out instead of an error
  /// reads one image; unset: data::read_image
  std::function<data::Image(const std::string& path)> read = {};
};

/// Classifies image files with a model's own head and those of its tasks, in one pass.
class ImageClassifier {
 public:
  /// Packs the model's weights of this moment. Throws InputError for a model of another kind, an unknown task, and
  /// numbers out of range.
  ImageClassifier(const bundle::Bundle& bundle, ClassifyOptions options = {});

  /// Hands on the answer to each image in order, batch by batch. Throws InputError for an image that cannot be read,
  /// unless those are skipped.
  void operator()(const std::vector<std::string>& paths,
                  const std::function<void(const ImageAnswer&)>& on_answer) const;

 private:
  /// Reads images into pixels [B,3,H,W], those that are skipped left out.
  std::vector<ImageAnswer> read_batch(const std::vector<std::string>& paths, at::Tensor& pixels) const;
  HeadAnswer answer_of(const bundle::ModelHead& head, const at::Tensor& logits) const;

  ClassifyOptions options_;
  std::vector<bundle::ModelHead> heads_;
  bundle::ImagePreprocessing preprocessing_;
  TaskClassifier classifier_;
};

/// Paths of images: files as they are given, and of folders every file that is called like an image, in the order of
/// their names. `kept` is a name that stands for itself ("-" for standard input). Throws InputError for what is not
/// there and for a folder without images.
std::vector<std::string> image_paths(const std::vector<std::string>& given, const std::string& kept = {});

}  // namespace mnemo::infer
