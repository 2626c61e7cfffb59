#include "infer/class_shares.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace mnemo::infer {

std::vector<ClassShare> best_classes(const bundle::ModelHead& head, const at::Tensor& logits, int64_t top) {
  const at::Tensor shares = at::softmax(logits.to(at::kCPU, at::kDouble), 0);
  if (!shares.isfinite().all().item<bool>())
    throw base::NotFinite(fmt::format("classify: head '{}': expected finite logits, found others", head.name));
  const auto [values, numbers] = shares.topk(std::min(top, shares.size(0)));
  std::vector<ClassShare> best;
  for (int64_t i = 0; i < values.size(0); ++i)
    best.push_back({head.label(numbers[i].item<int64_t>()), values[i].item<double>()});
  return best;
}

}  // namespace mnemo::infer
