#include "infer/embedding_rows.h"

#include <torch/types.h>

#include <algorithm>

#include "core/mapped_tensor.h"

namespace mnemo::infer {

EmbeddingRows::EmbeddingRows(const layers::TokenEmbedding& embedding)
    : dim_(embedding.weight.size(1)), factor_(static_cast<float>(embedding.factor)) {
  tables_.push_back({0, core::owned(embedding.weight), {}});
}

EmbeddingRows::EmbeddingRows(const core::DecodeBuild& build, const layers::AdaptiveEmbedding& embedding, int64_t dim)
    : dim_(dim), factor_(static_cast<float>(embedding.factor())) {
  const layers::WordClusters& clusters = embedding.clusters();
  for (int64_t i = 0; i < clusters.count(); ++i) {
    const at::Tensor projection = embedding.projection(i);
    tables_.push_back({clusters.first(i), core::owned(embedding.table(i)),
                       projection.defined() ? build.pack(projection, {}) : ops::PackedLinear()});
  }
}

void EmbeddingRows::operator()(std::span<const int64_t> tokens, float* out) const {
  for (const int64_t token : tokens) {
    size_t i = tables_.size() - 1;
    while (token < tables_[i].first) --i;
    const Table& table = tables_[i];
    const int64_t width = table.rows.size(1);
    const float* row = table.rows.const_data_ptr<float>() + (token - table.first) * width;
    if (table.projection.out() > 0) {
      table.projection(row, 1, width, out, dim_);
      for (int64_t c = 0; c < dim_; ++c) out[c] *= factor_;
    } else {
      for (int64_t c = 0; c < dim_; ++c) out[c] = row[c] * factor_;
    }
    out += dim_;
  }
}

}  // namespace mnemo::infer
