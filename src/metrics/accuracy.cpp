#include "metrics/accuracy.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/where.h>

#include <limits>

#include "base/error.h"
#include "base/ignore_target.h"
#include "data/batch.h"

namespace mnemo::metrics {

void Accuracy::add(int64_t correct, int64_t total) {
  base::ensure(correct >= 0 && correct <= total, "{} correct of {}", correct, total);
  correct_ += correct;
  total_ += total;
}

void Accuracy::add(const at::Tensor& predictions, const at::Tensor& targets) {
  if (predictions.sizes() != targets.sizes()) {
    throw base::ShapeError(fmt::format("[accuracy] expected predictions of the shape of targets, {} elements, found {}",
                                       targets.numel(), predictions.numel()));
  }
  const at::Tensor counted = targets.ne(base::kIgnoreTarget);
  add(predictions.eq(targets).logical_and(counted).sum().item<int64_t>(), counted.sum().item<int64_t>());
}

void Accuracy::add_logits(const at::Tensor& logits, const at::Tensor& targets) {
  if (logits.dim() != targets.dim() + 1) {
    throw base::ShapeError(
        fmt::format("[accuracy] expected logits of {} dimensions, found {}", targets.dim() + 1, logits.dim()));
  }
  // argmax treats NaN as the largest value; a model that has diverged must not be right by luck.
  add(logits.argmax(-1).masked_fill(logits.isnan().any(-1), -1), targets);
}

void Accuracy::add_top(const at::Tensor& logits, const at::Tensor& targets, int64_t count) {
  if (logits.dim() != targets.dim() + 1) {
    throw base::ShapeError(
        fmt::format("[accuracy] expected logits of {} dimensions, found {}", targets.dim() + 1, logits.dim()));
  }
  const at::Tensor counted = targets.ne(base::kIgnoreTarget);
  const at::Tensor own = logits.gather(-1, targets.clamp_min(0).unsqueeze(-1));
  const at::Tensor found = logits.ge(own).sum(-1).le(count).logical_and(logits.isnan().any(-1).logical_not());
  add(found.logical_and(counted).sum().item<int64_t>(), counted.sum().item<int64_t>());
}

double Accuracy::value() const {
  return total_ == 0 ? std::numeric_limits<double>::quiet_NaN()
                     : static_cast<double>(correct_) / static_cast<double>(total_);
}

}  // namespace mnemo::metrics
