#pragma once

#include <map>
#include <string>

#include "models/model.h"
#include "verify/golden_file.h"
#include "weights/foreign.h"

namespace mnemo::verify {

/// Rows on their way through a backbone by their foreign names.
struct HiddenRows {
  explicit HiddenRows(const weights::ForeignFormat* with) : format(with) {}
  /// What to hand to Model::forward. The rows are kept where the format has a name for them; every name is ours
  /// without one.
  core::HiddenObserver observer();

  const weights::ForeignFormat* format;
  std::map<std::string, at::Tensor> rows;
};

/// `found` in the shape of the file, whose modules give rows as [B,T,D] or as [B,h,w,D].
at::Tensor shaped_like(const at::Tensor& expected, const at::Tensor& found);

/// kind model with a backbone of images: a golden file under the names of that backbone's foreign format.
GoldenReport verify_vision_model(const GoldenFile& file);

/// kind layer_stack with a backbone of images: blocks of one stage with their caches, over training and evaluation
/// steps.
GoldenReport verify_vision_stack(const GoldenFile& file);

/// A model folder with an expect.safetensors ("mnemo-expect/1"): logits, hidden rows and gradients in float64 within
/// the file's tolerance, and the same in float32 within 1e-5 of the largest value of each tensor.
GoldenReport verify_folder(const std::string& folder, at::Device device);

}  // namespace mnemo::verify
