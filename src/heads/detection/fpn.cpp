#include "heads/detection/fpn.h"

#include <torch/types.h>

#include "base/error.h"

namespace mnemo::heads {

Fpn::Fpn(const FpnOptions& options, const layers::Scope& scope) : extra_(options.extra) {
  using Extra = FpnOptions::Extra;
  const int64_t width = options.out_channels;
  for (size_t l = 0; l < options.in_channels.size(); ++l) {
    const int64_t in = options.in_channels[l];
    const auto number = static_cast<int64_t>(l);
    lateral_.emplace_back(scope / "lateral" / number, in, width, 1, 1, kaiming_uniform(in));
    output_.emplace_back(scope / "output" / number, width, width, 3, 1, kaiming_uniform(width * 9));
  }
  if (extra_ != Extra::p6p7_from_c && extra_ != Extra::p6p7_from_p) return;
  const int64_t in = extra_ == Extra::p6p7_from_c ? options.in_channels.back() : width;
  p6_ = Convolution(scope / "p6", in, width, 3, 2, kaiming_uniform(in * 9));
  p7_ = Convolution(scope / "p7", width, width, 3, 2, kaiming_uniform(width * 9));
}

std::vector<at::Tensor> Fpn::operator()(std::span<const at::Tensor> maps) const {
  base::ensure(maps.size() == lateral_.size(), "FPN of {} maps, found {}", lateral_.size(), maps.size());
  std::vector<at::Tensor> out(maps.size());
  at::Tensor above;
  for (size_t l = maps.size(); l-- > 0;) {
    at::Tensor own = lateral_[l](maps[l]);
    if (above.defined()) own = own + at::upsample_nearest2d(above, {own.size(2), own.size(3)});
    above = own;
    out[l] = output_[l](own);
  }
  if (extra_ == FpnOptions::Extra::pool) out.push_back(out.back().slice(2, 0, {}, 2).slice(3, 0, {}, 2));
  if (!p6_.weight.defined()) return out;
  out.push_back(p6_(extra_ == FpnOptions::Extra::p6p7_from_c ? maps.back() : out.back()));
  out.push_back(p7_(at::relu(out.back())));
  return out;
}

}  // namespace mnemo::heads
