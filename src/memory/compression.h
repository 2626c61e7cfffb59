#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/backbone.h"
#include "core/memory_build.h"

namespace mnemo::memory {

/// Rows of one layer that are to be compressed: old [B,E,D], E a multiple of the rate, right-aligned; valid [B,E] bool.
/// How they are
/// read: by the rows `queries` [B,Q,D] that last entered the layer, of which asking [B,Q] bool are real.
struct Forgotten {
  at::Tensor old, valid;
  at::Tensor queries, asking;
};

/// How the Compressive Transformer makes one row of `rate` rows (Rae et al. 2020, section 3.1), one function a layer.
///   mean_pooling, max_pooling   of the rows of a block, number by number
///   conv                        a convolution over time, kernel and stride `rate`: [x_1 .. x_rate] W^T + b
///   dilated_conv                the same with taps two rows apart, centred on the block; rows outside those that are
///   compressed are 0
///   most_used                   the E / rate rows of the most attention by `queries`, in their order
class Compression {
 public:
  /// Throws InputError where the function needs to know how rows are read and the layers' attention does not say.
  Compression(const std::string& function, int64_t rate, const core::MemoryBuild& build);
  /// [B,E,D] -> [B,E/rate,D]; a block without a real row gives zeros. The gradient of old is the caller's to stop.
  at::Tensor compress(int64_t layer, const Forgotten& rows) const;
  /// Whether it has anything to train.
  bool trains() const { return !weights_.empty(); }
  /// Attention reconstruction (Rae et al. 2020, section 3.2, algorithm 2), [B], 0 for a sequence that forgets nothing:
  ///   mean over heads, channels and real queries of ( attn(h, old) - attn(h, compressed) )^2
  /// attn by content alone, without position terms. Rows and the attention's maps are constants: the gradient reaches
  /// `compressed`.
  at::Tensor reconstruction_loss(int64_t layer, const Forgotten& rows, const at::Tensor& compressed) const;

 private:
  struct Heads {
    at::Tensor q, k, v;  ///< [B,H,.,d]
  };
  Heads heads(int64_t layer, const at::Tensor& queries, const at::Tensor& rows) const;
  at::Tensor convolve(int64_t layer, const Forgotten& rows) const;
  at::Tensor most_used(int64_t layer, const Forgotten& rows) const;

  std::string function_;
  int64_t rate_;
  const core::Backbone* backbone_;
  std::vector<at::Tensor> weights_, biases_;  ///< of each layer that is served: [D,rate*D], [D]
};

}  // namespace mnemo::memory
