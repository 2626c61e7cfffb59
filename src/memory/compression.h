#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/memory_build.h"

namespace mnemo::core {
class Backbone;
}

namespace mnemo::memory {

/// Rows of one layer to compress: old [B,E,D], E a multiple of the rate, right-aligned; valid [B,E] bool, false for
/// padding. They are attended to by `queries` [B,Q,D], the rows that last entered the layer; asking [B,Q] bool is false
/// for padding among these.
struct Forgotten {
  at::Tensor old, valid;
  at::Tensor queries, asking;
};

enum class CompressionFunction { mean_pooling, max_pooling, conv, dilated_conv, most_used };

/// How the Compressive Transformer compresses `rate` rows into one (Rae et al. 2020, section 3.2), with one function
/// per layer.
///   mean_pooling, max_pooling   elementwise over the rows of a block
///   conv                        a convolution over time, kernel and stride `rate`: [x_1 .. x_rate] W^T + b
///   dilated_conv                the same with taps two rows apart, centred on the block; zero padding outside the rows
///                               to compress
///   most_used                   the E / rate rows with the most attention from `queries`, in order
class Compression {
 public:
  /// Throws InputError if the function needs attention weights and the layers' attention does not provide its
  /// projections.
  Compression(CompressionFunction function, int64_t rate, const core::MemoryBuild& build);
  /// [B,E,D] -> [B,E/rate,D]; a block of padding only gives zeros. The caller must detach `old` if needed.
  at::Tensor compress(int64_t layer, const Forgotten& rows) const;
  /// Whether it has trainable parameters.
  bool trains() const { return !weights_.empty(); }
  /// Attention reconstruction (Rae et al. 2020, section 3.2, algorithm 2), [B], 0 for a sequence that compresses
  /// nothing:
  ///   mean over heads, channels and real queries of ( attn(h, old) - attn(h, compressed) )^2
  /// attn depends only on content, without position terms. Rows and the attention's projections are treated as
  /// constants: gradients only reach `compressed`.
  at::Tensor reconstruction_loss(int64_t layer, const Forgotten& rows, const at::Tensor& compressed) const;

 private:
  struct Heads {
    at::Tensor q, k, v;  ///< [B,H,.,d]
  };
  Heads heads(int64_t layer, const at::Tensor& queries, const at::Tensor& rows) const;
  at::Tensor convolve(int64_t layer, const Forgotten& rows) const;
  at::Tensor most_used(int64_t layer, const Forgotten& rows) const;

  CompressionFunction function_;
  int64_t rate_;
  const core::Backbone* backbone_;
  std::vector<at::Tensor> weights_, biases_;  ///< per served layer: [D,rate*D], [D]
};

}  // namespace mnemo::memory
