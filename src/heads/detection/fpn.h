#pragma once

#include <span>
#include <vector>

#include "heads/detection/convolution.h"
#include "heads/detection/parts.h"

namespace mnemo::heads {

struct FpnOptions {
  /// Maps beyond the last one.
  enum class Extra {
    none,
    pool,         ///< every second place of the last output
    p6p7_from_c,  ///< P6: a convolution of stride 2 of the last input; P7: one of relu(P6), as in Lin et al. 2017;
                  ///< mmdetection leaves the relu out
    p6p7_from_p   ///< P6 of the last output instead
  };
  std::vector<int64_t> in_channels;  ///< of the maps, the finest first
  int64_t out_channels = 256;
  Extra extra = Extra::none;
};

inline int64_t num_extra(FpnOptions::Extra extra) {
  return extra == FpnOptions::Extra::none ? 0 : extra == FpnOptions::Extra::pool ? 1 : 2;
}

/// The maps of a pyramid beyond the last one.
class ExtraMaps {
 public:
  ExtraMaps() = default;
  /// Names p6, p7 under the scope.
  ExtraMaps(const FpnOptions& options, const layers::Scope& scope);
  /// Appends them to the outputs `maps`. last_input: of the pyramid; real: of the outputs.
  void append(std::vector<at::Tensor>& maps, const at::Tensor& last_input, RealLevels real) const;
  /// The real cells of all maps, from those of the outputs.
  std::vector<core::RealCells> real(RealLevels maps) const;

 private:
  FpnOptions::Extra extra_ = FpnOptions::Extra::none;
  Convolution p6_, p7_;
};

/// Maps of one width from the maps of a backbone.
class Neck {
 public:
  virtual ~Neck() = default;
  /// [B,C_l,H_l,W_l], the finest first -> [B,D,H_l,W_l] and the extra maps. Convolutions read zeros in padding.
  virtual std::vector<at::Tensor> operator()(std::span<const at::Tensor> maps, RealLevels real = {}) const = 0;
  /// The real cells of its maps, from those of the maps that it reads.
  virtual std::vector<core::RealCells> real(RealLevels maps) const = 0;
};

/// Feature pyramid network (Lin et al. 2017).
///   m_l = W1_l x_l + nearest(m_{l+1}),   p_l = W3_l m_l;   row i of nearest is floor(i h_{l+1} / h_l)
class Fpn final : public Neck {
 public:
  /// Names lateral.K, output.K, p6, p7 under the scope.
  Fpn(const FpnOptions& options, const layers::Scope& scope);
  std::vector<at::Tensor> operator()(std::span<const at::Tensor> maps, RealLevels real = {}) const override;
  std::vector<core::RealCells> real(RealLevels maps) const override { return extra_.real(maps); }

 private:
  std::vector<Convolution> lateral_, output_;
  ExtraMaps extra_;
};

}  // namespace mnemo::heads
