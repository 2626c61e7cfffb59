#include "heads/classification.h"

#include <torch/types.h>

#include "base/error.h"
#include "base/ignore_target.h"

namespace mnemo::heads {
namespace {

at::Tensor pooled(ClassificationOptions::Pooler function, const at::Tensor& rows) {
  using Pooler = ClassificationOptions::Pooler;
  switch (function) {
    case Pooler::tanh:
      return at::tanh(rows);
    case Pooler::gelu:
      return at::gelu(rows);
    case Pooler::gelu_tanh:
      return at::gelu(rows, "tanh");
    case Pooler::relu:
      return at::relu(rows);
    case Pooler::none:
      break;
  }
  return rows;
}

}  // namespace

void ClassificationOptions::check(const core::ModelOutline& model, const base::Where& where) const {
  if (model.input == core::InputKind::images) return;
  where.require(!model.causal, "head",
                "'classification' reads a row that has seen the whole segment; it needs backbone.type = \"encoder\"");
  where.require(model.whole, "head", "a layer_stack has no head; expected kind = \"model\"");
  const std::string memory = model.on(core::Seam::sequence);
  where.require(memory.empty() || pool != Pool::mean, "head",
                "pool = \"mean\" leaves out the [CLS] row of '{}'; expected \"cls\"", memory);
}

Classification::Classification(const ClassificationOptions& options, const layers::Scope& scope, int64_t dim,
                               double std)
    : options_(options) {
  base::require(options.num_classes != 1, "model: expected head.num_classes of at least 2, found {}",
                options.num_classes);
  if (options.pooler != ClassificationOptions::Pooler::none)
    pooler_ = layers::Linear(scope / "pooler", dim, dim, true, std);
  if (options.num_classes == 0) return;
  if (options.hidden_dim > 0) hidden_ = layers::Linear(scope / "hidden", dim, options.hidden_dim, true, std);
  const int64_t width = options.hidden_dim > 0 ? options.hidden_dim : dim;
  classifier_ = layers::Linear(scope / "classifier", width, options.num_classes, true, std);
}

at::Tensor Classification::logits(const at::Tensor& hidden) const {
  base::require(num_classes() > 0, "{}",
                "model: it has no head (head.num_classes = 0); train one: of images with mnemo finetune, of texts with "
                "mnemo train and "
                "[model] from");
  at::Tensor h = hidden;
  if (pooler_.weight.defined()) h = pooled(options_.pooler, pooler_(h));
  if (hidden_.weight.defined()) h = at::relu(hidden_(h));
  return classifier_(h);
}

at::Tensor Classification::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  return at::cross_entropy_loss(logits(hidden).flatten(0, -2), targets.reshape({-1}), {}, at::Reduction::None,
                                base::kIgnoreTarget)
      .view(targets.sizes());
}

}  // namespace mnemo::heads
