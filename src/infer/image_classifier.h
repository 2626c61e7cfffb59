#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/stop.h"
#include "bundle/bundle.h"
#include "data/images/image.h"
#include "distributed/group.h"
#include "infer/class_shares.h"
#include "infer/task_classifier.h"

namespace mnemo::infer {

/// The most likely classes of one head, most likely first.
struct HeadAnswer {
  std::string head;  ///< "base": the model's own; else a task's name
  std::vector<ClassShare> best;
};

/// The predictions of all heads for one image, or the reason why there are none.
struct ImageAnswer {
  std::string image;  ///< its path
  std::string error;  ///< why the image was skipped; empty otherwise
  std::vector<HeadAnswer> heads;
};

struct ClassifyOptions {
  std::vector<std::string> tasks = {};  ///< only these heads; empty: all
  int64_t top = 5;                      ///< number of classes to return per head
  int64_t batch = 8;                    ///< images per batch
  bool skip_broken = false;             ///< skip images that cannot be read instead of throwing
  /// reads one image; unset: data::read_image
  std::function<data::Image(const std::string& path)> read = {};
  base::ShouldStop should_stop = {};  ///< asked before each image is read, and each batch; then base::Stopped is thrown
  /// ranks that share the batches: all of them call the classifier together and get all answers; null: one process
  std::shared_ptr<distributed::Group> ranks = {};

  static constexpr int64_t kMaxBatch = 4096;
};

/// Classifies image files with a model's own head and its tasks' heads, in one pass.
class ImageClassifier {
 public:
  /// Packs the current weights. Throws InputError for a model of another kind, an unknown task, or values out of range.
  ImageClassifier(const bundle::Bundle& bundle, ClassifyOptions options = {});

  /// Calls on_answer for each image in order, batch by batch. Throws InputError for an image that cannot be read,
  /// unless such images are skipped.
  void operator()(const std::vector<std::string>& paths,
                  const std::function<void(const ImageAnswer&)>& on_answer) const;

 private:
  std::vector<ImageAnswer> answers(const std::vector<std::string>& paths) const;
  /// Reads images into pixels [B,3,H,W], without those that are skipped.
  std::vector<ImageAnswer> read_batch(const std::vector<std::string>& paths, at::Tensor& pixels) const;

  ClassifyOptions options_;
  std::vector<bundle::ModelHead> heads_;
  bundle::ImagePreprocessing preprocessing_;
  TaskClassifier classifier_;
};

/// Expands paths of images: files are kept, folders are replaced by their image files, sorted by name. `kept` is a name
/// that is passed through ("-" for standard input). Throws InputError for a path that does not exist and for a folder
/// without images.
std::vector<std::string> image_paths(const std::vector<std::string>& given, const std::string& kept = {});

}  // namespace mnemo::infer
