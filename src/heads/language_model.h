#pragma once

#include <memory>
#include <optional>

#include "base/options.h"
#include "core/head.h"
#include "core/model_outline.h"
#include "heads/adaptive_softmax.h"
#include "layers/parts.h"

namespace mnemo::heads {

struct LanguageModelOptions {
  bool tied = true;
  bool bias = true;
  bool scaled = false;
  std::optional<AdaptiveOptions> adaptive;
  template <class V>
  void visit(V&& v) {
    v("tied", tied, "share the output matrix with the embedding table");
    v("bias", bias, "use a bias on the logits");
    v("scaled", scaled, "divide the hidden rows by the square root of the model's width (T5 with a tied head)");
    v("adaptive", adaptive, "adaptive softmax, with rare words in clusters; unset: a full softmax");
  }
  /// Throws InputError if the head does not fit the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
  bool reads_first_row() const { return false; }
};

/// Softmax over the vocabulary: logits = s h W^T + b, W [V,D] its own or the embedding table, s = D^-1/2 if scaled,
/// else 1.
class LanguageModel final : public core::Head {
 public:
  /// table [V,D]: the embedding table, used if the head is tied.
  LanguageModel(const LanguageModelOptions& options, const layers::Scope& scope, const at::Tensor& table,
                int64_t vocab_size, int64_t dim, double std);
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;
  std::unique_ptr<core::DecodeHead> decoder(const core::DecodeBuild& build) const override;
  bool predicts_next_token() const override { return true; }

 private:
  at::Tensor weight_, bias_;
  double factor_;
};

/// Builds the head for those options: a full or an adaptive softmax. Throws InputError, naming the key, if a tied head
/// does not match the embedding's tables.
std::unique_ptr<core::Head> make_language_model(const LanguageModelOptions& options, const struct HeadBuild& build);

}  // namespace mnemo::heads
