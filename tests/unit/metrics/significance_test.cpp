#include "metrics/significance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/error.h"

namespace mnemo::metrics {
namespace {

Spread over(const std::vector<double>& values) { return spread(values); }

/// P(|T| >= t) by Simpson's rule over the density, independent of beta functions except for their constant.
double by_integration(double t, double df) {
  const double front = std::exp(std::lgamma((df + 1) / 2) - std::lgamma(df / 2)) / std::sqrt(df * std::numbers::pi);
  const auto density = [&](double x) { return front * std::pow(1 + x * x / df, -(df + 1) / 2); };
  constexpr int kParts = 20'000;
  const double h = t / kParts;
  double sum = density(0) + density(t);
  for (int i = 1; i < kParts; ++i) sum += (i % 2 == 1 ? 4 : 2) * density(i * h);
  return 1 - 2 * sum * h / 3;
}

TEST(StudentT, ClosedForms) {
  for (const double t : {0.0, 0.3, 1.0, 2.5, 12.706, 400.0}) {
    EXPECT_NEAR(student_t_two_sided(t, 1), 1 - 2 / std::numbers::pi * std::atan(t), 1e-13) << t;
    EXPECT_NEAR(student_t_two_sided(t, 2), 1 - t / std::sqrt(2 + t * t), 1e-13) << t;
    EXPECT_EQ(student_t_two_sided(-t, 2), student_t_two_sided(t, 2));
  }
}

TEST(StudentT, TablesThatEveryBookHas) {
  // Two-sided 5 % points, and 1 % points.
  const std::pair<double, double> five[] = {{1, 12.706}, {2, 4.303},  {3, 3.182},  {4, 2.776},
                                            {5, 2.571},  {10, 2.228}, {30, 2.042}, {120, 1.980}};
  for (const auto& [df, t] : five) EXPECT_NEAR(student_t_two_sided(t, df), 0.05, 6e-5) << df;
  const std::pair<double, double> one[] = {{2, 9.925}, {4, 4.604}, {10, 3.169}, {30, 2.750}};
  for (const auto& [df, t] : one) EXPECT_NEAR(student_t_two_sided(t, df), 0.01, 2e-5) << df;
  EXPECT_NEAR(student_t_two_sided(1.959963984540054, 1e9), 0.05, 1e-7);
}

TEST(StudentT, AgreesWithIntegration) {
  for (const double df : {0.7, 1.5, 2.37, 3.9, 4.0, 17.2, 250.0}) {
    for (const double t : {0.01, 0.5, 1.7, 3.3, 6.0})
      EXPECT_NEAR(student_t_two_sided(t, df), by_integration(t, df), 1e-9) << t << " " << df;
  }
  EXPECT_EQ(student_t_two_sided(std::numeric_limits<double>::infinity(), 3), 0.0);
  EXPECT_TRUE(std::isnan(student_t_two_sided(std::nan(""), 3)));
  EXPECT_THROW(student_t_two_sided(1, 0), base::InputError);
}

TEST(IncompleteBeta, SymmetryAndPolynomials) {
  for (const double x : {0.0, 0.1, 0.5, 0.93, 1.0}) {
    EXPECT_NEAR(incomplete_beta(2.5, 4.0, x) + incomplete_beta(4.0, 2.5, 1 - x), 1, 1e-13);
    EXPECT_NEAR(incomplete_beta(1, 3, x), 1 - std::pow(1 - x, 3), 1e-13);
    EXPECT_NEAR(incomplete_beta(2, 2, x), x * x * (3 - 2 * x), 1e-13);
  }
  EXPECT_THROW(incomplete_beta(0, 1, 0.5), base::InputError);
  EXPECT_THROW(incomplete_beta(1, 1, 1.5), base::InputError);
}

TEST(Welch, ByHand) {
  // means 2 and 6, variances 1 and 4, three values each: t = -4 / sqrt(5/3), df = (5/3)^2 / ((1/3)^2/2 + (4/3)^2/2)
  const WelchTest test = welch(over({1, 2, 3}), over({4, 6, 8}));
  EXPECT_NEAR(test.t, -4 / std::sqrt(5.0 / 3), 1e-12);
  EXPECT_NEAR(test.df, 50.0 / 17, 1e-12);
  EXPECT_NEAR(test.p, by_integration(4 / std::sqrt(5.0 / 3), 50.0 / 17), 1e-9);
  // Equal sizes and variances: Student's own test, df = 4; t = 3 has p = 0.0399421
  const WelchTest equal = welch(over({0, 1, 2}), over({0 + std::sqrt(6.0), 1 + std::sqrt(6.0), 2 + std::sqrt(6.0)}));
  EXPECT_NEAR(equal.df, 4, 1e-12);
  EXPECT_NEAR(equal.t, -3, 1e-12);
  EXPECT_NEAR(equal.p, 0.0399421, 5e-7);
}

TEST(Welch, WithoutSpreadMeansDecide) {
  EXPECT_EQ(welch(over({1, 1, 1}), over({1, 1, 1})).p, 1.0);
  EXPECT_EQ(welch(over({1, 1, 1}), over({0.5, 0.5})).p, 0.0);
  EXPECT_NEAR(welch(over({1, 1, 1}), over({0.4, 0.5, 0.6})).df, 2, 1e-12);
  EXPECT_THROW(welch(over({1}), over({1, 2})), base::InputError);
}

TEST(Welch, ResolutionIsTheSmallestSignificantDifference) {
  // As below: t_{.975, 4} * 0.001 * sqrt(2/3) = 2.7764 * 0.00081650
  const Spread a = over({3.0, 3.001, 3.002}), b = over({3.0005, 3.0015, 3.0025});
  EXPECT_NEAR(resolution(a, b, 0.05), 2.7764 * 0.0008165, 1e-7);
  Spread apart = a;
  apart.mean += resolution(a, b, 0.01);
  EXPECT_NEAR(welch(a, apart).p, 0.01, 1e-9);
  EXPECT_EQ(resolution(over({1, 1}), over({2, 2}), 0.05), 0.0);
}

TEST(Welch, EquivalentWithinAnInterval) {
  // Deviation 0.001 of three seeds each: 0.0005 ± t_{.975, 4} * 0.001 * sqrt(2/3) = 0.0005 ± 2.7764 * 0.00081650
  const Spread a = over({3.0, 3.001, 3.002}), b = over({3.0005, 3.0015, 3.0025});
  EXPECT_TRUE(is_equivalent(a, b, 0.0005 + 2.7765 * 0.0008165, 0.05));
  EXPECT_FALSE(is_equivalent(a, b, 0.0005 + 2.7763 * 0.0008165, 0.05));
  EXPECT_FALSE(is_equivalent(a, b, 0.0004, 0.05));
  EXPECT_TRUE(is_equivalent(over({1, 1}), over({1.5, 1.5}), 0.5, 0.05));
  EXPECT_FALSE(is_equivalent(over({1, 1}), over({1.5, 1.5}), 0.4, 0.05));
}

TEST(Shares, ByHand) {
  // 1.96 standard errors of 0.01 above 0.1
  EXPECT_NEAR(above_chance(0.1 + 0.0196, 0.1, 900), 0.025, 1e-4);
  EXPECT_NEAR(above_chance(0.1 - 0.0196, 0.1, 900), 0.975, 1e-4);
  EXPECT_EQ(above_chance(0.1, 0.1, 900), 0.5);
  EXPECT_EQ(above_chance(1.0, 1.0, 9), 1.0);
  EXPECT_THROW(above_chance(0.1, 0.1, 0), base::InputError);
}

TEST(Holm, StepsDownAndStaysMonotone) {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005};
  const std::vector<double> corrected = holm(p);
  EXPECT_NEAR(corrected[3], 0.02, 1e-15);
  EXPECT_NEAR(corrected[0], 0.03, 1e-15);
  EXPECT_NEAR(corrected[2], 0.06, 1e-15);
  EXPECT_NEAR(corrected[1], 0.06, 1e-15);  // 0.04 on its own, but never below the previous one
  EXPECT_EQ(holm(std::vector<double>{0.6, 0.7})[1], 1.0);
  EXPECT_TRUE(holm({}).empty());
}

}  // namespace
}  // namespace mnemo::metrics
