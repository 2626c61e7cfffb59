#pragma once

#include <map>
#include <string>

#include "models/image_model.h"
#include "tests/verify/golden_file.h"
#include "weights/foreign.h"

namespace mnemo::verify {

/// Hidden states inside a backbone, under their foreign names.
struct HiddenRows {
  explicit HiddenRows(const weights::ForeignFormat* with) : format(with) {}
  /// The observer to pass to Model::forward. Keeps the hidden states that the format has a name for; without a
  /// format, keeps all of them under our names.
  core::HiddenObserver observer();

  const weights::ForeignFormat* format;
  std::map<std::string, at::Tensor> rows;
};

/// `found` in the shape of the file, where modules return hidden states as [B,T,D] or [B,h,w,D].
at::Tensor shaped_like(const at::Tensor& expected, const at::Tensor& found);

/// kind model with a vision backbone: a golden file that uses the names of that backbone's foreign format. With tasks
/// in its memory or `train` in its config it is verify_tasks.
GoldenReport verify_vision_model(const GoldenFile& file);

/// kind layer_stack with a vision backbone: the blocks of one stage with their caches, over training and evaluation
/// steps.
GoldenReport verify_vision_stack(const GoldenFile& file);

/// A model folder with an expect.safetensors ("mnemo-expect/1"): logits, hidden states and gradients in float64 within
/// the file's tolerance, and in float32 within 1e-5 of the largest value of each tensor.
GoldenReport verify_folder(const std::string& folder, at::Device device);

}  // namespace mnemo::verify
