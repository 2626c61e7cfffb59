#include "metrics/significance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace mnemo::metrics {
namespace {

/// The continued fraction of I_x(a, b); fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kMaxTerms = 10'000;
  const auto away_from_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double fraction = d;
  for (int m = 1; m <= kMaxTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double change = 1;
    for (const double term : {even, odd}) {
      d = 1 / away_from_zero(1 + term * d);
      c = away_from_zero(1 + term / c);
      change = c * d;
      fraction *= change;
    }
    if (std::abs(change - 1) < std::numeric_limits<double>::epsilon()) break;
  }
  return fraction;
}

}  // namespace

double incomplete_beta(double a, double b, double x) {
  base::require(a > 0 && b > 0 && x >= 0 && x <= 1,
                "the incomplete beta function of a = {}, b = {}, x = {}: expected a, b > 0 and 0 <= x <= 1", a, b, x);
  if (x == 0 || x == 1) return x;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) +
                                b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_t_two_sided(double t, double df) {
  if (std::isnan(t) || std::isnan(df)) return std::numeric_limits<double>::quiet_NaN();
  base::require(df > 0, "Student's t with {} degrees of freedom: expected more than 0", df);
  if (std::isinf(t)) return 0;
  return incomplete_beta(df / 2, 0.5, df / (df + t * t));
}

WelchTest welch(const Spread& a, const Spread& b) {
  base::require(a.count >= 2 && b.count >= 2, "Welch's test: expected two values or more on each side, found {} and {}",
                a.count, b.count);
  const auto n = static_cast<double>(a.count), m = static_cast<double>(b.count);
  const double u = a.deviation * a.deviation / n, v = b.deviation * b.deviation / m;
  const double difference = a.mean - b.mean;
  if (u + v == 0) {
    return difference == 0
               ? WelchTest{0, n + m - 2, 1}
               : WelchTest{std::copysign(std::numeric_limits<double>::infinity(), difference), n + m - 2, 0};
  }
  WelchTest test{difference / std::sqrt(u + v), (u + v) * (u + v) / (u * u / (n - 1) + v * v / (m - 1)), 1,
                 std::sqrt(u + v)};
  test.p = student_t_two_sided(test.t, test.df);
  return test;
}

double resolution(const Spread& a, const Spread& b, double alpha) {
  const WelchTest test = welch(a, b);
  double low = 0, high = 1;
  while (student_t_two_sided(high, test.df) > alpha) high *= 2;
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (student_t_two_sided(middle, test.df) > alpha ? low : high) = middle;
  }
  return high * test.error;
}

bool is_equivalent(const Spread& a, const Spread& b, double margin, double alpha) {
  const WelchTest test = welch(a, b);
  const double room = margin - std::abs(a.mean - b.mean);
  if (test.error == 0) return room >= 0;
  return room > 0 && student_t_two_sided(room / test.error, test.df) <= alpha;
}

double above_chance(double share, double probability, int64_t n) {
  base::require(share >= 0 && share <= 1 && probability >= 0 && probability <= 1 && n > 0,
                "a share {} of {} samples against {}: expected shares from 0 to 1 of 1 sample or more", share, n,
                probability);
  const double variance = probability * (1 - probability) / static_cast<double>(n);
  if (variance == 0) return share > probability ? 0 : 1;
  return std::erfc((share - probability) / std::sqrt(2 * variance)) / 2;
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return p[i] < p[j]; });
  std::vector<double> out(p.size());
  double highest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    highest = std::max(highest, std::min(1.0, static_cast<double>(p.size() - rank) * p[order[rank]]));
    out[order[rank]] = highest;
  }
  return out;
}

}  // namespace mnemo::metrics
