#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "metrics/spread.h"

namespace mnemo::metrics {

/// I_x(a, b), the regularised incomplete beta function, by Lentz's continued fraction; a, b > 0, 0 <= x <= 1.
double incomplete_beta(double a, double b, double x);

/// P(|T| >= |t|) of Student's t distribution:  I_{df / (df + t^2)}(df / 2, 1 / 2).  df > 0; 0 for an infinite t, NaN
/// for a NaN.
double student_t_two_sided(double t, double df);

/// Welch's t-test for the difference of two means with unequal variances (Welch 1947).
///   t = (mean_a - mean_b) / sqrt(u + v),   u = s_a^2 / n_a,  v = s_b^2 / n_b
///   df = (u + v)^2 / (u^2 / (n_a - 1) + v^2 / (n_b - 1))
/// If neither side has any spread, p is 1 for equal means and 0 otherwise, and df is n_a + n_b - 2.
struct WelchTest {
  double t = 0, df = 0;
  double p = 1;      ///< two-sided
  double error = 0;  ///< sqrt(u + v), the standard error of the difference
};
/// Throws InputError for fewer than two values on a side. NaN stays NaN.
WelchTest welch(const Spread& a, const Spread& b);

/// The smallest difference of two means that would be significant (p < alpha) with these spreads and counts: the test's
/// resolution, t_{1 - alpha / 2, df} error. Throws InputError as welch() does.
double resolution(const Spread& a, const Spread& b, double alpha);

/// Whether the two-sided 1 - alpha interval of the difference of two means (Welch's) lies within ±margin. Throws
/// InputError as welch() does.
bool is_equivalent(const Spread& a, const Spread& b, double margin, double alpha);

/// One-sided p-value of a share of n samples against a known probability: how often guessing reaches it.
///   z = (share - probability) / sqrt(probability (1 - probability) / n),   p = erfc(z / sqrt(2)) / 2
/// share, probability in [0, 1], n > 0, else InputError.
double above_chance(double share, double probability, int64_t n);

/// Holm's correction (1979) for a family of tests: of m sorted p-values the i-th (from 1) becomes
///   max_{j <= i} min(1, (m - j + 1) p_j).
/// The result has the order of the input.
std::vector<double> holm(std::span<const double> p);

}  // namespace mnemo::metrics
