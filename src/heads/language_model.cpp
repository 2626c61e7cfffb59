#include "heads/language_model.h"

#include <torch/types.h>

#include "base/ignore_target.h"
#include "ops/linear/linear.h"

namespace mnemo::heads {

LanguageModel::LanguageModel(const LanguageModelOptions& options, const layers::Scope& scope, const at::Tensor& table,
                             int64_t vocab_size, int64_t dim, double std)
    : weight_(options.tied ? table : scope.add("weight", {vocab_size, dim}, layers::normal(std))) {
  if (options.bias) bias_ = scope.add("bias", {vocab_size}, layers::constant(0.0), layers::ParameterKind::bias);
}

at::Tensor LanguageModel::logits(const at::Tensor& hidden) const { return ops::linear(hidden, weight_, bias_); }

at::Tensor LanguageModel::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  const at::Tensor flat = logits(hidden).flatten(0, -2);
  return at::cross_entropy_loss(flat, targets.reshape({-1}), {}, at::Reduction::None, base::kIgnoreTarget)
      .view(targets.sizes());
}

}  // namespace mnemo::heads
