#include "metrics/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "metrics/sum.h"

namespace mnemo::metrics {

PairedBootstrap paired_bootstrap(int64_t sentences, const SampleScore& system_a, const SampleScore& system_b,
                                 int64_t samples, uint64_t seed) {
  base::require(sentences > 0, "paired bootstrap: expected at least one sentence, found {}", sentences);
  base::require(samples > 0, "paired bootstrap: samples: expected at least 1, found {}", samples);
  std::vector<int64_t> drawn(static_cast<size_t>(sentences));
  std::iota(drawn.begin(), drawn.end(), int64_t{0});
  PairedBootstrap out{.score_a = system_a(drawn), .score_b = system_b(drawn)};

  base::Random random({seed});
  std::vector<double> differences;
  Sum sum;
  int64_t a_wins = 0, b_wins = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (int64_t& sentence : drawn) sentence = static_cast<int64_t>(random.below(static_cast<uint64_t>(sentences)));
    const double a = system_a(drawn), b = system_b(drawn);
    a_wins += a > b;
    b_wins += b > a;
    sum.add(differences.emplace_back(a - b));
  }
  const auto count = static_cast<double>(samples);
  const double mean = sum.value() / count, observed = std::abs(out.score_a - out.score_b);
  const auto extreme = std::count_if(differences.begin(), differences.end(),
                                     [&](double d) { return std::abs(d - mean) >= observed; });
  std::sort(differences.begin(), differences.end());
  const auto quantile = [&](double q) { return differences[static_cast<size_t>(std::lround(q * (count - 1.0)))]; };
  out.mean = mean;
  out.better_a = static_cast<double>(a_wins) / count;
  out.better_b = static_cast<double>(b_wins) / count;
  out.low = quantile(0.025);
  out.high = quantile(0.975);
  out.p = (1.0 + static_cast<double>(extreme)) / (1.0 + count);
  return out;
}

}  // namespace mnemo::metrics
