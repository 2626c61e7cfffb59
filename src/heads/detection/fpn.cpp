#include "heads/detection/fpn.h"

#include <torch/types.h>

#include "base/error.h"

namespace mnemo::heads {

using Extra = FpnOptions::Extra;

ExtraMaps::ExtraMaps(const FpnOptions& options, const layers::Scope& scope) : extra_(options.extra) {
  if (extra_ != Extra::p6p7_from_c && extra_ != Extra::p6p7_from_p) return;
  const int64_t width = options.out_channels, in = extra_ == Extra::p6p7_from_c ? options.in_channels.back() : width;
  p6_ = Convolution(scope / "p6", in, width, 3, 2, kaiming_uniform(in * 9));
  p7_ = Convolution(scope / "p7", width, width, 3, 2, kaiming_uniform(width * 9));
}

void ExtraMaps::append(std::vector<at::Tensor>& maps, const at::Tensor& last_input, RealLevels real) const {
  if (extra_ == Extra::pool) maps.push_back(maps.back().slice(2, 0, {}, 2).slice(3, 0, {}, 2));
  if (!p6_.weight.defined()) return;
  const size_t last = maps.size() - 1;
  const std::vector<core::RealCells> own = this->real(real);
  maps.push_back(p6_(keep_real(extra_ == Extra::p6p7_from_c ? last_input : maps.back(), own, last)));
  maps.push_back(p7_(at::relu(keep_real(maps.back(), own, last + 1))));
}

std::vector<core::RealCells> ExtraMaps::real(RealLevels maps) const {
  std::vector<core::RealCells> all(maps.begin(), maps.end());
  for (int64_t extra = 0; !maps.empty() && extra < num_extra(extra_); ++extra) {
    const core::Grid last = all.back().grid;
    all.push_back(all.back().reduced(2, {(last.height + 1) / 2, (last.width + 1) / 2}));
  }
  return all;
}

Fpn::Fpn(const FpnOptions& options, const layers::Scope& scope) {
  const int64_t width = options.out_channels;
  for (size_t l = 0; l < options.in_channels.size(); ++l) {
    const int64_t in = options.in_channels[l];
    const auto number = static_cast<int64_t>(l);
    lateral_.emplace_back(scope / "lateral" / number, in, width, 1, 1, kaiming_uniform(in));
    output_.emplace_back(scope / "output" / number, width, width, 3, 1, kaiming_uniform(width * 9));
  }
  extra_ = ExtraMaps(options, scope);
}

std::vector<at::Tensor> Fpn::operator()(std::span<const at::Tensor> maps, RealLevels real) const {
  base::ensure(maps.size() == lateral_.size(), "FPN of {} maps, found {}", lateral_.size(), maps.size());
  std::vector<at::Tensor> out(maps.size());
  at::Tensor above;
  for (size_t l = maps.size(); l-- > 0;) {
    at::Tensor own = lateral_[l](maps[l]);
    if (above.defined()) own = own + at::upsample_nearest2d(above, {own.size(2), own.size(3)});
    above = own;
    out[l] = output_[l](keep_real(own, real, l));
  }
  extra_.append(out, maps.back(), real);
  return out;
}

}  // namespace mnemo::heads
