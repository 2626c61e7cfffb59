#include "layers/adaptive_embedding.h"

#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "layers/parts.h"
#include "ops/linear/linear.h"

namespace mnemo::layers {

WordClusters::WordClusters(int64_t vocab_size, const std::vector<int64_t>& cutoffs) : bounds_{0} {
  for (const int64_t cutoff : cutoffs) {
    base::require(cutoff > bounds_.back() && cutoff < vocab_size,
                  "cutoffs: expected increasing numbers above 0 and below vocab_size = {}, found {} after {}",
                  vocab_size, cutoff, bounds_.back());
    bounds_.push_back(cutoff);
  }
  bounds_.push_back(vocab_size);
}

int64_t cluster_width(int64_t width, int64_t div_val, int64_t cluster) {
  int64_t divided = width;
  for (int64_t i = 0; i < cluster; ++i) divided /= div_val;
  base::require(
      divided > 0,
      "div_val: width {} divided {} times by {} gives cluster {} no width; use fewer cutoffs or a smaller div_val",
      width, cluster, div_val, cluster);
  return divided;
}

AdaptiveEmbedding::AdaptiveEmbedding(const Scope& scope, const WordClusters& clusters, int64_t width, int64_t div_val,
                                     int64_t dim, bool scale, double std)
    : clusters_(clusters),
      width_(width),
      div_val_(div_val),
      factor_(scale ? std::sqrt(static_cast<double>(dim)) : 1.0) {
  if (div_val == 1) {
    tables_.push_back(scope.add("weight", {clusters.vocab_size(), width}, normal(std)));
    if (width != dim) projections_.push_back((scope / "projection").add("weight", {dim, width}, normal(std)));
    return;
  }
  for (int64_t i = 0; i < clusters.count(); ++i) {
    const int64_t narrow = cluster_width(width, div_val, i);
    tables_.push_back((scope / "tables" / i).add("weight", {clusters.size(i), narrow}, normal(std)));
    projections_.push_back((scope / "projections" / i).add("weight", {dim, narrow}, normal(std)));
  }
}

at::Tensor AdaptiveEmbedding::table(int64_t cluster) const {
  if (tables_.size() > 1) return tables_[static_cast<size_t>(cluster)];
  return tables_[0].narrow(0, clusters_.first(cluster), clusters_.size(cluster));
}

at::Tensor AdaptiveEmbedding::projection(int64_t cluster) const {
  if (projections_.size() > 1) return projections_[static_cast<size_t>(cluster)];
  return projections_.empty() ? at::Tensor() : projections_[0];
}

at::Tensor AdaptiveEmbedding::operator()(const at::Tensor& tokens) const {
  require_tokens(tokens, clusters_.vocab_size());
  at::Tensor rows;
  if (div_val_ == 1) {
    rows = at::embedding(tables_[0], tokens);
    if (!projections_.empty()) rows = ops::linear(rows, projections_[0], {});
  } else {
    // Looks up all tokens in each cluster, then selects: which words fall into other clusters must not change the shape
    // of a matrix product, and with it the last bits of the result.
    for (int64_t i = 0; i < clusters_.count(); ++i) {
      const at::Tensor inside = at::logical_and(tokens >= clusters_.first(i), tokens < clusters_.end(i)).unsqueeze(-1);
      const at::Tensor number = (tokens - clusters_.first(i)).clamp(0, clusters_.size(i) - 1);
      const at::Tensor part = ops::linear(at::embedding(table(i), number), projection(i), {});
      rows = rows.defined() ? at::where(inside, part, rows) : part;
    }
  }
  return factor_ == 1.0 ? rows : rows * factor_;
}

}  // namespace mnemo::layers
