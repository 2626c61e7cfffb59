#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/decode.h"
#include "layers/adaptive_embedding.h"
#include "layers/parts.h"

namespace mnemo::infer {

/// A model's embedding without LibTorch: looks up rows of its tables and projects them if the embedding is adaptive.
class EmbeddingRows {
 public:
  EmbeddingRows() = default;
  explicit EmbeddingRows(const layers::TokenEmbedding& embedding);
  EmbeddingRows(const core::DecodeBuild& build, const layers::AdaptiveEmbedding& embedding, int64_t dim);
  /// out [tokens,D]; tokens must be in the vocabulary.
  void operator()(std::span<const int64_t> tokens, float* out) const;

 private:
  struct Table {
    int64_t first;  ///< token of its first row
    at::Tensor rows;
    ops::PackedLinear projection;  ///< no outputs if there is none
  };
  std::vector<Table> tables_;  // by first token, ascending
  int64_t dim_ = 0;
  float factor_ = 1.0f;
};

}  // namespace mnemo::infer
