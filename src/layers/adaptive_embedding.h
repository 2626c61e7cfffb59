#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layers/parameters.h"

namespace mnemo::layers {

/// Words sorted by decreasing frequency and divided into clusters: cluster 0, the shortlist, is [0,c_1), cluster i is
/// [c_i,c_{i+1}), the last one ends with the vocabulary.
class WordClusters {
 public:
  WordClusters() = default;
  /// Throws InputError unless 0 < c_1 < ... < c_C < vocab_size.
  WordClusters(int64_t vocab_size, const std::vector<int64_t>& cutoffs);
  int64_t count() const { return static_cast<int64_t>(bounds_.size()) - 1; }  ///< C + 1
  int64_t first(int64_t cluster) const { return bounds_[static_cast<size_t>(cluster)]; }
  int64_t end(int64_t cluster) const { return bounds_[static_cast<size_t>(cluster) + 1]; }
  int64_t size(int64_t cluster) const { return end(cluster) - first(cluster); }
  int64_t vocab_size() const { return bounds_.back(); }
  friend bool operator==(const WordClusters&, const WordClusters&) = default;

 private:
  std::vector<int64_t> bounds_;
};

/// Embedding with narrower rows for rarer words (Baevski and Auli 2019, section 3).
///   e(w) = P_i W_i[w - c_i] * sqrt(D),   W_i [n_i,E_i], P_i [D,E_i], E_i = floor(E / div_val^i), w of cluster i
/// With div_val 1: one table [V,E] for all and one P, or none if E = D. D is the model width.
class AdaptiveEmbedding {
 public:
  /// Names "weight" and "projection.weight", or "tables.I.weight" and "projections.I.weight". Throws InputError if the
  /// cutoffs do not increase, or if a cluster would have no width.
  AdaptiveEmbedding(const Scope& scope, const WordClusters& clusters, int64_t width, int64_t div_val, int64_t dim,
                    bool scale, double std);
  /// [B,T] int64 -> [B,T,D]. Throws InputError if a token is outside the vocabulary.
  at::Tensor operator()(const at::Tensor& tokens) const;

  const WordClusters& clusters() const { return clusters_; }
  int64_t width() const { return width_; }  ///< E
  int64_t div_val() const { return div_val_; }
  double factor() const { return factor_; }  ///< of the rows
  /// The rows of a cluster [n_i,E_i], and its projection [D,E_i], undefined where there is none.
  at::Tensor table(int64_t cluster) const;
  at::Tensor projection(int64_t cluster) const;
  /// [V,E] of all clusters; undefined unless div_val is 1.
  at::Tensor whole_table() const { return div_val_ == 1 ? tables_[0] : at::Tensor(); }

 private:
  WordClusters clusters_;
  int64_t width_, div_val_;
  std::vector<at::Tensor> tables_, projections_;
  double factor_;
};

/// E_i = floor(E / div_val^i). Throws InputError where it is 0.
int64_t cluster_width(int64_t width, int64_t div_val, int64_t cluster);

}  // namespace mnemo::layers
