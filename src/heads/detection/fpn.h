#pragma once

#include <span>
#include <vector>

#include "heads/detection/convolution.h"

namespace mnemo::heads {

struct FpnOptions {
  /// Maps beyond the last one.
  enum class Extra {
    none,
    pool,         ///< every second place of the last output
    p6p7_from_c,  ///< P6: a convolution of stride 2 of the last input; P7: one of relu(P6)
    p6p7_from_p   ///< P6 of the last output instead
  };
  std::vector<int64_t> in_channels;  ///< of the maps, the finest first
  int64_t out_channels = 256;
  Extra extra = Extra::none;
};

/// Feature pyramid network (Lin et al. 2017): maps of one width from maps of a backbone, the finest first.
///   m_l = W1_l x_l + nearest(m_{l+1}),   p_l = W3_l m_l;   row i of nearest is floor(i h_{l+1} / h_l)
class Fpn {
 public:
  /// Names lateral.K, output.K, p6, p7 under the scope.
  Fpn(const FpnOptions& options, const layers::Scope& scope);
  /// [B,C_l,H_l,W_l] -> [B,D,H_l,W_l], then the extra maps.
  std::vector<at::Tensor> operator()(std::span<const at::Tensor> maps) const;
  /// Extra maps.
  int64_t num_extra() const {
    return extra_ == FpnOptions::Extra::none ? 0 : extra_ == FpnOptions::Extra::pool ? 1 : 2;
  }

 private:
  FpnOptions::Extra extra_;
  std::vector<Convolution> lateral_, output_;
  Convolution p6_, p7_;
};

}  // namespace mnemo::heads
