#include "backbones/pvt_stages.h"

#include <cmath>
#include <numeric>

#include "backbones/pvt_stage_options.h"
#include "backbones/pyramid.h"
#include "base/error.h"

namespace mnemo::backbones {

void PvtStageOptions::validate(const base::Where& where) const {
  where.require(image_size.size() == 2, "image_size", "expected [height, width], found {} numbers", image_size.size());
  where.require(!depths.empty(), "depths", "expected at least one stage");
  const size_t stages = depths.size();
  require_stages(where, "dims", dims.size(), stages);
  require_stages(where, "num_heads", num_heads.size(), stages);
  require_stages(where, "mlp_ratios", mlp_ratios.size(), stages);
  require_stages(where, "sr_ratios", sr_ratios.size(), stages);
  for (size_t s = 0; s < stages; ++s) {
    where.require(dims[s] % num_heads[s] == 0, "num_heads", "expected a divisor of dims[{}] = {}, found {}", s, dims[s],
                  num_heads[s]);
    where.require(ffn_dim(s) >= 1, "mlp_ratios", "gives no hidden width: {} * {}", mlp_ratios[s], dims[s]);
  }
}

int64_t PvtStageOptions::num_layers() const { return std::accumulate(depths.begin(), depths.end(), int64_t{0}); }

int64_t PvtStageOptions::ffn_dim(size_t stage) const {
  return std::llround(mlp_ratios[stage] * static_cast<double>(dims[stage]));
}

void require_grids(const char* who, const at::Tensor& pixels, const std::vector<core::Grid>& grids,
                   const std::vector<int64_t>& sr_ratios) {
  for (size_t s = 0; s < grids.size(); ++s) {
    base::require(grids[s].height >= sr_ratios[s] && grids[s].width >= sr_ratios[s],
                  "[{}] an image of {} x {} gives a grid of {} x {} in stage {}, smaller than its sr_ratio of {}", who,
                  pixels.size(2), pixels.size(3), grids[s].height, grids[s].width, s, sr_ratios[s]);
  }
}

}  // namespace mnemo::backbones
