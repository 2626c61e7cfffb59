#include "metrics/agreement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "metrics/sum.h"

namespace mnemo::metrics {
namespace {

double ratio(double part, double whole) { return whole == 0.0 ? 0.0 : part / whole; }

struct ClassCounts {
  double both = 0, predicted = 0, labelled = 0;
  double f1() const { return ratio(2.0 * both, predicted + labelled); }
};

void require_pairs(std::span<const double> x, std::span<const double> y) {
  base::require(x.size() == y.size(), "correlation: expected as many values on both sides, found {} and {}", x.size(),
                y.size());
  const auto finite = [](double v) { return std::isfinite(v); };
  base::require(std::all_of(x.begin(), x.end(), finite) && std::all_of(y.begin(), y.end(), finite),
                "correlation: expected finite values");
}

bool is_constant(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [&](double v) { return v == values.front(); });
}

/// The values minus their mean, scaled to a largest magnitude of 1, so that no square overflows or vanishes.
std::vector<double> centred(std::span<const double> values) {
  Sum sum;
  for (const double value : values) sum.add(value);
  const double mean = sum.value() / static_cast<double>(values.size());
  std::vector<double> out(values.begin(), values.end());
  double largest = 0.0;
  for (double& value : out) largest = std::max(largest, std::abs(value -= mean));
  for (double& value : out) value /= largest;
  return out;
}

double product(const std::vector<double>& x, const std::vector<double>& y) {
  Sum sum;
  for (size_t i = 0; i < x.size(); ++i) sum.add(x[i] * y[i]);
  return sum.value();
}

/// Ranks from 1; equal values share the mean of their ranks.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) out[order[i]] = 0.5 * static_cast<double>(begin + 1 + end);
  }
  return out;
}

}  // namespace

ClassScores class_scores(std::span<const int64_t> predictions, std::span<const int64_t> labels) {
  base::require(!labels.empty() && predictions.size() == labels.size(),
                "class_scores: expected a prediction for each of at least one label, found {} predictions of {} labels",
                predictions.size(), labels.size());
  std::map<int64_t, ClassCounts> classes;
  for (size_t i = 0; i < labels.size(); ++i) {
    ++classes[predictions[i]].predicted;
    ++classes[labels[i]].labelled;
    if (predictions[i] == labels[i]) ++classes[labels[i]].both;
  }
  const auto all = static_cast<double>(labels.size());
  double right = 0, f1_sum = 0, both = 0, predicted = 0, labelled = 0;
  for (const auto& [id, counts] : classes) {
    right += counts.both;
    f1_sum += counts.f1();
    both += counts.predicted * counts.labelled;
    predicted += counts.predicted * counts.predicted;
    labelled += counts.labelled * counts.labelled;
  }
  const auto one = classes.find(1);
  return {.accuracy = right / all,
          .f1 = one == classes.end() ? 0.0 : one->second.f1(),
          .macro_f1 = f1_sum / static_cast<double>(classes.size()),
          .matthews = ratio(right * all - both, std::sqrt((all * all - predicted) * (all * all - labelled)))};
}

std::optional<double> pearson(std::span<const double> x, std::span<const double> y) {
  require_pairs(x, y);
  if (x.size() < 2 || is_constant(x) || is_constant(y)) return {};
  const std::vector<double> a = centred(x), b = centred(y);
  return std::clamp(product(a, b) / (std::sqrt(product(a, a)) * std::sqrt(product(b, b))), -1.0, 1.0);
}

std::optional<double> spearman(std::span<const double> x, std::span<const double> y) {
  require_pairs(x, y);
  return pearson(ranks(x), ranks(y));
}

}  // namespace mnemo::metrics
