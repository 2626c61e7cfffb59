#include "train/low_rank.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/glob.h"
#include "weights/lora.h"

namespace mnemo::train {

LowRank::LowRank(const std::vector<layers::Parameter>& model, const LoraOptions& options, uint64_t seed)
    : scale_(options.alpha / static_cast<double>(options.rank)) {
  for (const std::string& pattern : options.targets) {
    base::require(std::any_of(model.begin(), model.end(),
                              [&](const layers::Parameter& one) { return base::matches(pattern, one.name); }),
                  "train.lora.targets: no parameter matches the pattern {}", base::in_quotes(pattern));
  }
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const layers::Parameter& parameter : model) {
    if (!base::matches_any(options.targets, parameter.name)) continue;
    const at::Tensor& weight = parameter.tensor;
    base::require(weight.dim() == 2, "train.lora.targets: expected matrices, found '{}' {}", parameter.name,
                  c10::str(weight.sizes()));
    const int64_t most = std::min(weight.size(0), weight.size(1));
    base::require(options.rank <= most, "train.lora.rank: expected at most {}, the rank of '{}' {}, found {}", most,
                  parameter.name, c10::str(weight.sizes()), options.rank);
    const double std = 1.0 / std::sqrt(static_cast<double>(options.rank));
    const at::Tensor
        a = at::randn({options.rank, weight.size(1)}, generator, at::kDouble).mul_(std).to(weight.options());
    const at::Tensor b = at::zeros({weight.size(0), options.rank}, weight.options());
    targets_.push_back({parameter.name, weight, weight.detach().clone(), a, b});
    factors_.push_back({parameter.name + std::string(weights::kLoraA), a, layers::ParameterKind::weight});
    factors_.push_back({parameter.name + std::string(weights::kLoraB), b, layers::ParameterKind::weight});
  }
  std::map<std::string, at::Tensor> starts;
  for (const Target& target : targets_) starts[target.name] = target.start;
  metadata_ = {{weights::kLoraScale, fmt::format("{}", scale_)}, {weights::kLoraStart, weights::digest_of(starts)}};
}

bool LowRank::has(const std::string& weight) const {
  return std::any_of(targets_.begin(), targets_.end(), [&](const Target& one) { return one.name == weight; });
}

void LowRank::take_gradients() const {
  const at::NoGradGuard no_grad;
  for (const Target& target : targets_) {
    const at::Tensor gradient = target.weight.grad();
    target.a.mutable_grad() = gradient.defined() ? at::matmul(target.b.t(), gradient).mul_(scale_) : at::Tensor();
    target.b.mutable_grad() = gradient.defined() ? at::matmul(gradient, target.a.t()).mul_(scale_) : at::Tensor();
    target.weight.mutable_grad() = at::Tensor();
  }
}

at::Tensor LowRank::merged(const Target& target) const {
  return weights::lora_weight(target.start, target.a, target.b, scale_);
}

void LowRank::merge() const {
  const at::NoGradGuard no_grad;
  for (const Target& target : targets_) at::Tensor(target.weight).copy_(merged(target));
}

void LowRank::require_same_start(const std::string& where) const {
  const at::NoGradGuard no_grad;
  for (const Target& target : targets_) {
    // To rounding: another number of threads may add in another order.
    base::require(at::allclose(merged(target), target.weight, 1e-4, 1e-6),
                  "{}: '{}' did not start from the weights that the recipe's [model] from, or train.seed, gives; they "
                  "must be those of the run",
                  where, target.name);
  }
}

}  // namespace mnemo::train
