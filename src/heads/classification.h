#pragma once

#include <string>

#include "base/options.h"
#include "core/head.h"
#include "core/model_outline.h"
#include "layers/parts.h"

namespace mnemo::heads {

struct ClassificationOptions {
  int64_t num_classes = 0;
  enum class Pool { cls, mean, first };
  enum class Pooler { none, tanh, gelu, gelu_tanh, relu };
  Pool pool = Pool::cls;
  Pooler pooler = Pooler::none;
  int64_t hidden_dim = 0;
  template <class V>
  void visit(V&& v) {
    v("num_classes", num_classes, "number of classes; 0: as many as the data has", base::range(0, 1 << 20));
    v("pool", pool,
      "how a segment is represented: cls: the row in front of the tokens (a memory's [CLS] token, or a learned row "
      "that starts at zero); mean: the mean of the token rows; first: the first token's row, where texts begin with "
      "their own [CLS] (a memory's [CLS] token takes its place)",
      base::one_of("cls", "mean", "first"));
    v("pooler", pooler,
      "a linear map and this function before the classifier: tanh (BERT, RoBERTa), gelu (DeBERTa), gelu_tanh, relu",
      base::one_of("none", "tanh", "gelu", "gelu_tanh", "relu"));
    v("hidden_dim", hidden_dim, "width of a hidden layer with relu before the classifier (Long Range Arena); 0: none",
      base::range(0, 1 << 20));
  }
  /// Throws InputError if the head does not fit the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
  bool reads_first_row() const { return pool == Pool::cls; }
};

/// Predicts one class for a whole segment.
///   logits = W_c g(f(h)) + b_c,   f(h) = tanh(W_p h + b_p) with a pooler (or its function),   g(h) = relu(W_h h + b_h)
///   with a hidden layer
/// h [..,D]: the [CLS] row or the mean of the token rows, selected by the model; logits [..,C], C classes.
class Classification final : public core::Head {
 public:
  /// Throws InputError for a single class. 0 classes: the head of a backbone that was loaded without one; it has no
  /// logits, but may have the pooler.
  Classification(const ClassificationOptions& options, const layers::Scope& scope, int64_t dim, double std);
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;
  core::HeadInput input() const override {
    using Pool = ClassificationOptions::Pool;
    return options_.pool == Pool::cls    ? core::HeadInput::first_row
           : options_.pool == Pool::mean ? core::HeadInput::mean
                                         : core::HeadInput::first_token;
  }
  int64_t num_classes() const override { return options_.num_classes; }
  core::ClassRows class_rows(std::string_view parameter) const override {
    return parameter.starts_with("head.classifier.") ? core::ClassRows::one : core::ClassRows::none;
  }

 private:
  ClassificationOptions options_;
  layers::Linear pooler_, hidden_, classifier_;
};

}  // namespace mnemo::heads
