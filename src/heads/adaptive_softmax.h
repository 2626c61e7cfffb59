#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "core/head.h"
#include "layers/adaptive_embedding.h"

namespace mnemo::heads {

struct AdaptiveOptions {
  std::vector<int64_t> cutoffs;
  int64_t div_val = 1;
  std::vector<base::Node> tie_projections;
  bool shortlist_projection = true;
  enum class ClusterOrder { natural, reversed };
  ClusterOrder cluster_order = ClusterOrder::natural;
  double dropout = 0.0;
  template <class V>
  void visit(V&& v) {
    v("cutoffs", cutoffs, "first word of each cluster after the shortlist; words are sorted by decreasing frequency",
      base::at_least(1));
    v("div_val", div_val, "cluster i is div_val^i times narrower than the shortlist; 1: all have the same width",
      base::range(1, 1 << 10));
    v("tie_projections", tie_projections,
      "a boolean for the shortlist and each cluster: share its projection with the embedding; empty: share all if "
      "`tied`");
    v("shortlist_projection", shortlist_projection,
      "false: use no projection for the shortlist if it has the model's width (as in the code of Baevski and Auli)");
    v("cluster_order", cluster_order,
      "which entry of the head represents cluster i: the i-th, or the i-th from the end (as in the code of Dai et al.)",
      base::one_of("natural", "reversed"));
    v("dropout", dropout, "dropout of the input of the head", base::half_open_range(0.0, 1.0));
  }
  void validate(const base::Where& where) const;
};

/// Adaptive softmax (Grave et al. 2017; with shared tables Baevski and Auli 2019, Dai et al. 2019).
///   shortlist: log p(w) = log softmax( [h P_0 W_0^T + b_0 ; h P_0 W_c^T + b_c] )_w
///   w in cluster i: log p(w) = (that of cluster i's entry) + log softmax( h P_i W_i^T + b_i )_{w - c_i}
/// W_c [C,E_0] and b_c are the entries of the C clusters; W_i, P_i as in layers::AdaptiveEmbedding, either the head's
/// own or the embedding's. nll computes a cluster's softmax only for the tokens in it, and returns losses in token
/// order.
class AdaptiveSoftmax final : public core::Head {
 public:
  /// tied: share the embedding's tables. Throws InputError if the embedding has no tables of that shape.
  AdaptiveSoftmax(const AdaptiveOptions& options, bool tied, bool bias, const layers::Scope& scope,
                  const layers::AdaptiveEmbedding* embedding, int64_t vocab_size, int64_t dim, double std);
  /// The log-probability of every word, in word order; their softmax is the distribution.
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;
  std::unique_ptr<core::DecodeHead> decoder(const core::DecodeBuild& build) const override;
  bool predicts_next_token() const override { return true; }
  double input_dropout() const override { return dropout_; }

 private:
  at::Tensor project(const at::Tensor& hidden, int64_t cluster) const;
  /// Logits of the shortlist and the cluster entries.
  at::Tensor head_logits(const at::Tensor& hidden) const;
  /// Logits of the words in a cluster.
  at::Tensor cluster_logits(const at::Tensor& hidden, int64_t cluster) const;
  /// Index of the head's entry for a cluster.
  int64_t entry(int64_t cluster) const;
  at::Tensor table(int64_t cluster) const;
  at::Tensor bias(int64_t cluster) const;

  layers::WordClusters clusters_;
  bool reversed_;
  double dropout_;
  const layers::AdaptiveEmbedding* tied_tables_;  ///< null: use own_tables_
  std::vector<at::Tensor> own_tables_, biases_;   ///< one per cluster, or one for all
  std::vector<at::Tensor> projections_;           ///< one per cluster [D,E_i], undefined = none
  at::Tensor entries_, entry_bias_;               ///< [C,E_0], [C]
};

}  // namespace mnemo::heads
