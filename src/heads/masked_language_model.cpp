#include "heads/masked_language_model.h"

#include <torch/types.h>

#include "base/error.h"
#include "base/ignore_target.h"
#include "ops/linear/linear.h"

namespace mnemo::heads {

void MaskedLanguageModelOptions::check(const core::ModelOutline& model, const base::Where& where) const {
  where.require(model.input == core::InputKind::tokens && !model.causal, "head",
                "'masked_language_model' predicts a token from both sides; it needs backbone.type = \"encoder\"");
  where.require(model.whole, "head", "a layer_stack has no head; expected kind = \"model\"");
  where.require(!model.embedding.adaptive, "head",
                "'masked_language_model' shares the table of the embedding: expected embedding.type = \"token\"");
}

MaskedLanguageModel::MaskedLanguageModel(const MaskedLanguageModelOptions& options, const layers::Scope& scope,
                                         const at::Tensor& table, int64_t dim, double std)
    : activation_(options.activation),
      transform_(scope / "transform", dim, dim, true, std),
      norm_(scope / "norm", dim, options.norm_eps),
      table_(table),
      bias_(scope.add("bias", {table.size(0)}, layers::constant(0.0), layers::ParameterKind::bias)) {}

at::Tensor MaskedLanguageModel::logits(const at::Tensor& hidden) const {
  using Activation = MaskedLanguageModelOptions::Activation;
  at::Tensor h = transform_(hidden);
  h = activation_ == Activation::relu ? at::relu(h)
                                      : at::gelu(h, activation_ == Activation::gelu_tanh ? "tanh" : "none");
  return ops::linear(norm_(h), table_, bias_);
}

at::Tensor MaskedLanguageModel::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  // Few rows are to be predicted, and the table is wide: only these pass through it.
  const at::Tensor all = targets.flatten(), wanted = all.ne(base::kIgnoreTarget).nonzero().squeeze(1);
  const at::Tensor rows = hidden.flatten(0, -2).index_select(0, wanted);
  const at::Tensor nll = at::cross_entropy_loss(logits(rows), all.index_select(0, wanted), {}, at::Reduction::None);
  return at::zeros_like(all, nll.options()).index_put({wanted}, nll).view(targets.sizes());
}

}  // namespace mnemo::heads
