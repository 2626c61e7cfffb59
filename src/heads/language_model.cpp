#include "heads/language_model.h"

#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "base/ignore_target.h"
#include "heads/registry.h"

#include "ops/linear/linear.h"

namespace mnemo::heads {

LanguageModel::LanguageModel(const LanguageModelOptions& options, const layers::Scope& scope, const at::Tensor& table,
                             int64_t vocab_size, int64_t dim, double std)
    : weight_(options.tied ? table : scope.add("weight", {vocab_size, dim}, layers::normal(std))),
      factor_(options.scaled ? 1.0 / std::sqrt(static_cast<double>(dim)) : 1.0) {
  if (options.bias) bias_ = scope.add("bias", {vocab_size}, layers::constant(0.0), layers::ParameterKind::bias);
}

at::Tensor LanguageModel::logits(const at::Tensor& hidden) const {
  return ops::linear(factor_ == 1.0 ? hidden : hidden * factor_, weight_, bias_);
}

at::Tensor LanguageModel::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  const at::Tensor flat = logits(hidden).flatten(0, -2);
  return at::cross_entropy_loss(flat, targets.reshape({-1}), {}, at::Reduction::None, base::kIgnoreTarget)
      .view(targets.sizes());
}

void LanguageModelOptions::check(const core::ModelOutline& model, const base::Where& where) const {
  where.require(model.input != core::InputKind::images, "head",
                "backbone.type = \"{}\" predicts one class per image: expected type = \"classification\", found "
                "\"language_model\"",
                model.backbone);
  const core::ModelOutline::Embedding& embedding = model.embedding;
  where.require(!adaptive || !scaled, "head", "`scaled` belongs to a full softmax; drop it or `adaptive`");
  if (!adaptive) {
    where.require(!tied || (embedding.div_val == 1 && embedding.width == model.dim), "head",
                  "a tied head without `adaptive` needs an embedding table as wide as the model; set head.adaptive or "
                  "head.tied = false");
    return;
  }
  const bool alike = embedding.adaptive && adaptive->cutoffs == embedding.cutoffs &&
                     adaptive->div_val == embedding.div_val;
  where.require(alike || !tied, "head",
                "a tied adaptive softmax reads the embedding's tables: expected embedding.type = \"adaptive\" with the "
                "same cutoffs and div_val");
}

std::unique_ptr<core::Head> make_language_model(const LanguageModelOptions& options, const HeadBuild& build) {
  if (!options.adaptive) {
    return std::make_unique<LanguageModel>(options, build.scope, options.tied ? build.table : at::Tensor(),
                                           build.vocab_size, build.dim, build.init_std);
  }
  try {
    return std::make_unique<AdaptiveSoftmax>(*options.adaptive, options.tied, options.bias, build.scope, build.adaptive,
                                             build.vocab_size, build.dim, build.init_std);
  } catch (const base::InputError& error) {
    base::input_error("model.head.adaptive: {}", error.what());
  }
}

}  // namespace mnemo::heads
