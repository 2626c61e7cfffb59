#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "core/decode.h"
#include "heads/adaptive_softmax.h"
#include "ops/row_kernels.h"

namespace mnemo::heads {
namespace {

/// The words of one cluster; the first has the shortlist and the cluster entries.
struct ClusterMaps {
  ops::PackedLinear projection, words;  ///< projection: no outputs if there is none
  int64_t first = 0, entry = 0;         ///< its first word; its entry in the head
};

/// Replaces a row of `size` logits by its log-softmax, plus `add`.
void log_softmax_row(float* row, int64_t size, float add) {
  thread_local std::vector<float> memory;
  float* copy = core::at_least(memory, size);
  std::copy_n(row, size, copy);
  const float most = ops::add_then_max<float>(copy, nullptr, size);
  const float shift = most + std::log(ops::exp_then_sum<float>(copy, size, most)) - add;
  for (int64_t i = 0; i < size; ++i) row[i] -= shift;
}

class AdaptiveSoftmaxDecoder final : public core::DecodeHead {
 public:
  AdaptiveSoftmaxDecoder(std::vector<ClusterMaps> clusters, int64_t dim, int64_t vocab, int64_t shortlist)
      : clusters_(std::move(clusters)), dim_(dim), vocab_(vocab), shortlist_(shortlist) {}

  void logits(const float* hidden, int64_t rows, float* logits) const override {
    thread_local std::vector<float> head_memory, word_memory;
    const int64_t entries = clusters_[0].words.out();
    float* head = core::at_least(head_memory, rows * entries);
    run(clusters_[0], hidden, rows, head);
    for (int64_t row = 0; row < rows; ++row) {
      log_softmax_row(head + row * entries, entries, 0.0f);
      std::copy_n(head + row * entries, shortlist_, logits + row * vocab_);
    }
    for (size_t i = 1; i < clusters_.size(); ++i) {
      const ClusterMaps& cluster = clusters_[i];
      const int64_t words = cluster.words.out();
      float* out = core::at_least(word_memory, rows * words);
      run(cluster, hidden, rows, out);
      for (int64_t row = 0; row < rows; ++row) {
        log_softmax_row(out + row * words, words, head[row * entries + cluster.entry]);
        std::copy_n(out + row * words, words, logits + row * vocab_ + cluster.first);
      }
    }
  }
  int64_t num_bytes() const override {
    int64_t bytes = 0;
    for (const ClusterMaps& cluster : clusters_) bytes += cluster.projection.num_bytes() + cluster.words.num_bytes();
    return bytes;
  }

 private:
  void run(const ClusterMaps& cluster, const float* hidden, int64_t rows, float* out) const {
    thread_local std::vector<float> memory;
    const int64_t narrow = cluster.projection.out();
    if (narrow == 0) return cluster.words(hidden, rows, dim_, out, cluster.words.out());
    float* projected = core::at_least(memory, rows * narrow);
    cluster.projection(hidden, rows, dim_, projected, narrow);
    cluster.words(projected, rows, narrow, out, cluster.words.out());
  }

  std::vector<ClusterMaps> clusters_;
  int64_t dim_, vocab_, shortlist_;
};

}  // namespace

std::unique_ptr<core::DecodeHead> AdaptiveSoftmax::decoder(const core::DecodeBuild& build) const {
  std::vector<ClusterMaps> clusters;
  int64_t dim = 0;
  for (int64_t i = 0; i < clusters_.count(); ++i) {
    ClusterMaps maps;
    const at::Tensor& projection = projections_[static_cast<size_t>(i)];
    if (projection.defined()) maps.projection = build.pack(projection.t(), {});
    dim = projection.defined() ? projection.size(0) : table(i).size(1);
    layers::Linear words, entries;
    words.weight = table(i), words.bias = bias(i);
    entries.weight = entries_, entries.bias = entry_bias_;
    maps.words = i == 0 ? build.pack({words, entries}) : build.pack({words});
    maps.first = clusters_.first(i);
    maps.entry = i == 0 ? 0 : entry(i);
    clusters.push_back(std::move(maps));
  }
  return std::make_unique<AdaptiveSoftmaxDecoder>(std::move(clusters), dim, clusters_.vocab_size(), clusters_.end(0));
}

}  // namespace mnemo::heads
