#include "metrics/likelihood.h"

#include <numbers>

#include "base/error.h"
#include "base/ignore_target.h"
#include "data/batch.h"

namespace mnemo::metrics {

void Likelihood::add(double nll_sum, int64_t count) {
  base::ensure(count >= 0, "the likelihood of {} tokens", count);
  sum_.add(nll_sum);
  count_ += count;
}

void Likelihood::add(const at::Tensor& nll, const at::Tensor& targets) {
  if (nll.sizes() != targets.sizes()) {
    throw base::ShapeError(fmt::format("[likelihood] expected nll of the shape of targets, {} elements, found {}",
                                       targets.numel(), nll.numel()));
  }
  const at::Tensor kept = targets.ne(base::kIgnoreTarget);
  // Ignored positions may hold anything, even NaN, so they are masked rather than multiplied by zero.
  add(nll.to(at::kDouble).masked_fill(kept.logical_not(), 0).sum().item<double>(), kept.sum().item<int64_t>());
}

void Likelihood::add(const Likelihood& other) { add(other.nll_sum(), other.count_); }

double Likelihood::nll() const {
  return count_ == 0 ? std::numeric_limits<double>::quiet_NaN() : nll_sum() / static_cast<double>(count_);
}

double Likelihood::perplexity() const { return std::exp(nll()); }

double Likelihood::bits_per(double units_per_token) const { return nll() / std::numbers::ln2 / units_per_token; }

}  // namespace mnemo::metrics
