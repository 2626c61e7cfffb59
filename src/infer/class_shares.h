#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bundle/model_heads.h"

namespace mnemo::infer {

/// A class of a head and its probability.
struct ClassShare {
  std::string label;
  double probability = 0;
};

/// The `top` most likely classes of a head, most likely first: logits [K]. Throws NotFinite for logits that are not
/// finite.
std::vector<ClassShare> best_classes(const bundle::ModelHead& head, const at::Tensor& logits, int64_t top);

}  // namespace mnemo::infer
