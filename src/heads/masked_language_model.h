#pragma once

#include "base/options.h"
#include "core/head.h"
#include "core/model_outline.h"
#include "layers/parts.h"

namespace mnemo::heads {

struct MaskedLanguageModelOptions {
  enum class Activation { gelu, gelu_tanh, relu };
  Activation activation = Activation::gelu;
  double norm_eps = 1e-12;
  template <class V>
  void visit(V&& v) {
    v("activation", activation, "activation after the linear map", base::one_of("gelu", "gelu_tanh", "relu"));
    v("norm_eps", norm_eps, "epsilon of the norm", base::positive());
  }
  /// Throws InputError if the head does not fit the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
  bool reads_first_row() const { return false; }
};

/// Predicts the token in its own place, for tokens that were masked (Devlin et al. 2019, section 3.1).
///   logits = LN(act(W_t h + b_t)) E^T + b,   E [V,D] the embedding table
class MaskedLanguageModel final : public core::Head {
 public:
  /// table [V,D]: the embedding table.
  MaskedLanguageModel(const MaskedLanguageModelOptions& options, const layers::Scope& scope, const at::Tensor& table,
                      int64_t dim, double std);
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;

 private:
  MaskedLanguageModelOptions::Activation activation_;
  layers::Linear transform_;
  layers::LayerNorm norm_;
  at::Tensor table_, bias_;
};

}  // namespace mnemo::heads
