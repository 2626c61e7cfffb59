#include "backbones/batch_norm.h"

#include <torch/types.h>

#include "base/error.h"

namespace mnemo::backbones {
namespace {

/// The values of each channel of maps [B,C,h,w] that are not padding.
int64_t count_cells(const at::Tensor& x, const core::RealCells& real) {
  int64_t cells = real.all() ? x.size(0) * x.size(2) * x.size(3) : 0;
  for (const core::Grid& each : real.images) cells += each.size();
  return cells;
}

}  // namespace

BatchNorm::BatchNorm(const BatchNormOptions& options, const layers::Scope& scope, int64_t channels)
    : options_(options),
      name_(scope.prefix()),
      weight_(scope.add("weight", {channels}, layers::constant(1.0), layers::ParameterKind::norm)),
      bias_(scope.add("bias", {channels}, layers::constant(0.0), layers::ParameterKind::norm)) {
  if (options.frozen) {
    weight_.set_requires_grad(false);
    bias_.set_requires_grad(false);
  }
  scope.reserve_state("running_mean", {channels});
  scope.reserve_state("running_var", {channels});
}

BatchNormState BatchNorm::initial_state() const {
  const auto options = weight_.options().requires_grad(false);
  return {at::zeros(weight_.sizes(), options), at::ones(weight_.sizes(), options)};
}

at::Tensor BatchNorm::over_real(const at::Tensor& x, BatchNormState& state, const core::RealCells& real) const {
  const int64_t cells = count_cells(x, real);
  const auto count = static_cast<double>(cells);
  const at::Tensor mean = real.keep_map(x).sum({0, 2, 3}, true) / count;
  const at::Tensor away = real.keep_map(x - mean), squares = away.square().sum({0, 2, 3});
  const double momentum = options_.momentum;
  state.mean = state.mean * (1 - momentum) + mean.detach().flatten() * momentum;
  state.variance = state.variance * (1 - momentum) + squares.detach() * (momentum / static_cast<double>(cells - 1));
  const at::Tensor scale = weight_ / (squares / count + options_.eps).sqrt();
  return away * scale.view({1, -1, 1, 1}) + bias_.view({1, -1, 1, 1});
}

at::Tensor BatchNorm::operator()(const at::Tensor& x, BatchNormState& state, core::Mode mode,
                                 const core::RealCells& real) const {
  base::require(x.dim() == 4 && x.size(1) == weight_.size(0) && state.mean.defined() &&
                    state.mean.sizes() == weight_.sizes() && state.variance.sizes() == weight_.sizes(),
                "[batch_norm] expected maps and statistics of {} channels, found {}", weight_.size(0),
                c10::str(x.sizes()));
  if (mode == core::Mode::evaluate || options_.running || options_.frozen) {
    return at::batch_norm(x, weight_, bias_, state.mean, state.variance, false, options_.momentum, options_.eps, false);
  }
  base::require(count_cells(x, real) > 1,
                "[batch_norm] {}: one value of each channel has no variance: expected several images in each part "
                "of a batch (train.batch_size, train.accumulate), or larger images",
                name_);
  if (!real.all()) return over_real(x, state, real);
  state = {state.mean.clone(), state.variance.clone()};
  return at::batch_norm(x, weight_, bias_, state.mean, state.variance, true, options_.momentum, options_.eps, false);
}

}  // namespace mnemo::backbones
