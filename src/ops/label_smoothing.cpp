#include "ops/label_smoothing.h"

#include <torch/types.h>

namespace mnemo::ops {

SmoothedLoss label_smoothing(const at::Tensor& logits, const at::Tensor& targets, double epsilon, int64_t ignore) {
  const auto words = static_cast<double>(logits.size(-1));
  // One log softmax for both losses; the sum over the vocabulary reads it once.
  const at::Tensor p = at::log_softmax(logits, -1);
  const at::Tensor ignored = targets == ignore;
  const at::Tensor index = targets.masked_fill(ignored, 0).unsqueeze(-1);
  const at::Tensor nll = -p.gather(-1, index).squeeze(-1).masked_fill(ignored, 0.0);
  if (epsilon == 0.0 || words < 2) return {nll, nll};
  const double share = epsilon / (words - 1.0);
  const at::Tensor all = -p.sum(-1).masked_fill(ignored, 0.0);
  return {nll, (1.0 - epsilon - share) * nll + share * all};
}

SmoothedLoss label_smoothing_naive(const at::Tensor& logits, const at::Tensor& targets, double epsilon,
                                   int64_t ignore) {
  const int64_t words = logits.size(-1);
  const at::Tensor real = (targets != ignore).unsqueeze(-1);
  const at::Tensor chosen = (at::arange(words, targets.options()) == targets.unsqueeze(-1)).to(logits.scalar_type());
  const at::Tensor losses = at::where(real, -at::log(at::softmax(logits, -1)), at::zeros({}, logits.options()));
  const at::Tensor nll = (losses * chosen).sum(-1);
  if (epsilon == 0.0 || words < 2) return {nll, nll};
  const double other = epsilon / static_cast<double>(words - 1);
  return {nll, (losses * (chosen * (1.0 - epsilon) + (1.0 - chosen) * other)).sum(-1)};
}

}  // namespace mnemo::ops
