#include "heads/adaptive_softmax.h"

#include <torch/types.h>

#include "base/error.h"
#include "base/ignore_target.h"
#include "ops/linear/linear.h"

namespace mnemo::heads {

void AdaptiveOptions::validate(const base::Where& where) const {
  where.require(!cutoffs.empty(), "cutoffs", "expected at least one cutoff, found none");
  where.require(tie_projections.empty() || tie_projections.size() == cutoffs.size() + 1, "tie_projections",
                "expected {} booleans, one for the shortlist and one per cluster, found {}", cutoffs.size() + 1,
                tie_projections.size());
  for (const base::Node& tie : tie_projections) {
    where.require(tie.is_bool(), "tie_projections", "expected booleans, found {}", tie.found());
  }
}

AdaptiveSoftmax::AdaptiveSoftmax(const AdaptiveOptions& options, bool tied, bool with_bias, const layers::Scope& scope,
                                 const layers::AdaptiveEmbedding* embedding, int64_t vocab_size, int64_t dim,
                                 double std)
    : clusters_(vocab_size, options.cutoffs),
      reversed_(options.cluster_order == AdaptiveOptions::ClusterOrder::reversed),
      dropout_(options.dropout),
      tied_tables_(tied ? embedding : nullptr) {
  const auto fits = [&] {
    return embedding != nullptr && embedding->clusters() == clusters_ && embedding->div_val() == options.div_val;
  };
  base::require(!tied || fits(),
                "head: tied tables need embedding.type = \"adaptive\" with the head's cutoffs and div_val; set them, "
                "or tied = false");
  const int64_t width = embedding == nullptr ? dim : embedding->width(), div_val = options.div_val;
  const bool by_cluster = div_val > 1;
  for (int64_t i = 0; i < clusters_.count(); ++i) {
    const int64_t narrow = layers::cluster_width(width, div_val, i);
    const bool needed = (by_cluster || width != dim) && (i > 0 || options.shortlist_projection || narrow != dim);
    const bool tie = options.tie_projections.empty() ? tied : options.tie_projections[static_cast<size_t>(i)].as_bool();
    base::require(!needed || !tie || fits(),
                  "head: tie_projections[{}] needs embedding.type = \"adaptive\" with the head's cutoffs and div_val",
                  i);
    projections_.push_back(!needed ? at::Tensor()
                           : tie   ? embedding->projection(i)
                                   : (scope / "projections" / i).add("weight", {dim, narrow}, layers::normal(std)));
    if (i > 0 && !by_cluster) continue;
    const layers::Scope own = by_cluster ? scope / "tables" / i : scope;
    const int64_t words = by_cluster ? clusters_.size(i) : vocab_size;
    if (!tied) own_tables_.push_back(own.add("weight", {words, narrow}, layers::normal(std)));
    if (with_bias) biases_.push_back(own.add("bias", {words}, layers::constant(0.0), layers::ParameterKind::bias));
  }
  const int64_t entries = clusters_.count() - 1;
  entries_ = (scope / "clusters").add("weight", {entries, width}, layers::normal(std));
  if (with_bias)
    entry_bias_ = (scope / "clusters").add("bias", {entries}, layers::constant(0.0), layers::ParameterKind::bias);
}

int64_t AdaptiveSoftmax::entry(int64_t cluster) const {
  return clusters_.end(0) + (reversed_ ? clusters_.count() - 1 - cluster : cluster - 1);
}

at::Tensor AdaptiveSoftmax::table(int64_t cluster) const {
  if (tied_tables_ != nullptr) return tied_tables_->table(cluster);
  if (own_tables_.size() > 1) return own_tables_[static_cast<size_t>(cluster)];
  return own_tables_[0].narrow(0, clusters_.first(cluster), clusters_.size(cluster));
}

at::Tensor AdaptiveSoftmax::bias(int64_t cluster) const {
  if (biases_.empty()) return {};
  if (biases_.size() > 1) return biases_[static_cast<size_t>(cluster)];
  return biases_[0].narrow(0, clusters_.first(cluster), clusters_.size(cluster));
}

at::Tensor AdaptiveSoftmax::project(const at::Tensor& hidden, int64_t cluster) const {
  const at::Tensor& projection = projections_[static_cast<size_t>(cluster)];
  return projection.defined() ? ops::linear(hidden, projection.t(), {}) : hidden;
}

at::Tensor AdaptiveSoftmax::head_logits(const at::Tensor& hidden) const {
  return at::cat(ops::linear_maps(project(hidden, 0), {{table(0), bias(0)}, {entries_, entry_bias_}}), -1);
}

at::Tensor AdaptiveSoftmax::cluster_logits(const at::Tensor& hidden, int64_t cluster) const {
  return ops::linear(project(hidden, cluster), table(cluster), bias(cluster));
}

at::Tensor AdaptiveSoftmax::logits(const at::Tensor& hidden) const {
  const at::Tensor head = at::log_softmax(head_logits(hidden), -1);
  std::vector<at::Tensor> words = {head.narrow(-1, 0, clusters_.end(0))};
  for (int64_t i = 1; i < clusters_.count(); ++i) {
    words.push_back(head.narrow(-1, entry(i), 1) + at::log_softmax(cluster_logits(hidden, i), -1));
  }
  return at::cat(words, -1);
}

at::Tensor AdaptiveSoftmax::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  const auto loss = [](const at::Tensor& scores, const at::Tensor& of) {
    return at::cross_entropy_loss(scores, of, {}, at::Reduction::None, base::kIgnoreTarget);
  };
  const at::Tensor rows = hidden.flatten(0, -2), words = targets.reshape({-1});
  at::Tensor in_head = words.clone();
  std::vector<at::Tensor> members;
  for (int64_t i = 1; i < clusters_.count(); ++i) {
    const at::Tensor inside = at::logical_and(words >= clusters_.first(i), words < clusters_.end(i));
    in_head.masked_fill_(inside, entry(i));
    members.push_back(inside.nonzero().squeeze(-1));
  }
  at::Tensor nll = loss(head_logits(rows), in_head);
  for (int64_t i = 1; i < clusters_.count(); ++i) {
    const at::Tensor& member = members[static_cast<size_t>(i - 1)];
    if (member.numel() == 0) continue;
    const at::Tensor own = loss(cluster_logits(rows.index_select(0, member), i),
                                words.index_select(0, member) - clusters_.first(i));
    nll = nll.index_add(0, member, own);
  }
  return nll.view(targets.sizes());
}

}  // namespace mnemo::heads
