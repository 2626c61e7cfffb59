#include "data/answers/quadratic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "data/answers/algorithmic.h"

namespace mnemo::data {
namespace {

/// Evaluates arithmetic as written: sums of products of factors; a factor is a number, a sum in parentheses, or a power
/// of either.
class Arithmetic {
 public:
  static double value(std::string_view text) {
    Arithmetic reader(text);
    const double found = reader.sum();
    EXPECT_EQ(reader.at_, text.size()) << text;
    return found;
  }

 private:
  explicit Arithmetic(std::string_view text) : text_(text) {}
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  double sum() {
    double total = product();
    while (next() == '+' || next() == '-') total += text_[at_++] == '+' ? product() : -product();
    return total;
  }
  double product() {
    double total = power();
    while (next() == '*' || next() == '/') {
      if (text_[at_++] == '*')
        total *= power();
      else
        total /= power();
    }
    return total;
  }
  double power() {
    double base = factor();
    while (next() == '^') {
      ++at_;
      base = std::pow(base, factor());
    }
    return base;
  }
  double factor() {
    if (next() == '-') return ++at_, -factor();
    if (next() == '(') {
      ++at_;
      const double inner = sum();
      EXPECT_EQ(next(), ')');
      ++at_;
      return inner;
    }
    EXPECT_TRUE(std::isdigit(next())) << text_;
    double number = 0;
    while (std::isdigit(next())) number = 10 * number + (text_[at_++] - '0');
    return number;
  }
  std::string_view text_;
  size_t at_ = 0;
};

/// The coefficients of "a*x^2+b*x+c=0", read from the text alone.
std::array<int64_t, 3> coefficients(std::string text) {
  const size_t square = text.find("x^2"), linear = text.find("*x", square + 3), end = text.find("=0");
  EXPECT_NE(square, std::string::npos) << text;
  EXPECT_NE(linear, std::string::npos) << text;
  EXPECT_EQ(end + 2, text.size()) << text;
  std::string first = text.substr(0, square);
  if (first.ends_with('*')) first.pop_back();
  if (first.empty() || first == "-") first += '1';
  return {std::stoll(first), std::stoll(text.substr(square + 3, linear - square - 3)),
          std::stoll(text.substr(linear + 2, end - linear - 2))};
}

struct Fields {
  std::string equation;
  std::vector<std::string> steps;
};

Fields fields(const std::vector<int64_t>& tokens) {
  EXPECT_EQ(tokens.size(), 181U);
  EXPECT_EQ(tokens[30], 1);
  Fields out{quadratic_text(std::span(tokens).first(30)), {}};
  for (size_t i = 0; i < 5; ++i) {
    const auto field = std::span(tokens).subspan(31 + 30 * i, 30);
    out.steps.push_back(quadratic_text(field));
    // Padding is only on the right.
    for (size_t t = out.steps.back().size(); t < 30; ++t) EXPECT_EQ(field[t], 0);
  }
  return out;
}

TEST(Quadratic, EverySampleIsSolvedAgainFromItsText) {
  std::set<int64_t> multipliers;
  int64_t without_roots = 0;
  for (uint64_t number = 0; number < 5000; ++number) {
    base::Random random{7, number};
    const Fields found = fields(make_quadratic(random));
    const auto [a, b, c] = coefficients(found.equation);
    const int64_t d = b * b - 4 * a * c;
    if (d < 0) {
      ++without_roots;
      for (const std::string& step : found.steps) EXPECT_EQ(step, "") << found.equation;
      EXPECT_LT(std::abs(b), 200 * std::abs(a));
      EXPECT_LT(std::abs(c), 10000 * std::abs(a));
      continue;
    }
    // The quadratic formula, in doubles.
    const double root = std::sqrt(static_cast<double>(d));
    double low = (static_cast<double>(-b) - root) / static_cast<double>(2 * a),
           high = (static_cast<double>(-b) + root) / static_cast<double>(2 * a);
    if (high < low) std::swap(low, high);
    EXPECT_EQ(found.steps[4], fmt::format("{},{}", std::llround(low), std::llround(high))) << found.equation;
    EXPECT_EQ(low, std::round(low));
    EXPECT_LT(std::max(std::abs(low), std::abs(high)), 100);

    const auto [one, b1, c1] = coefficients(found.steps[0]);
    EXPECT_EQ(one, 1);
    EXPECT_EQ(b1 * a, b);
    EXPECT_EQ(c1 * a, c);
    multipliers.insert(a);

    // Both sides of every "=" in a step have the same value.
    for (size_t i = 1; i < 4; ++i) {
      std::string_view step = found.steps[i];
      ASSERT_TRUE(step.starts_with(i == 1 ? "D=" : "x=")) << step;
      step.remove_prefix(2);
      const double expected = i == 1 ? static_cast<double>(b1 * b1 - 4 * c1) : i == 2 ? low : high;
      while (!step.empty()) {
        const size_t equals = std::min(step.find('='), step.size());
        EXPECT_NEAR(Arithmetic::value(step.substr(0, equals)), expected, 1e-9) << found.steps[i];
        step.remove_prefix(std::min(equals + 1, step.size()));
      }
    }
  }
  EXPECT_EQ(multipliers.size(), 20U);  // -10 to 10 without 0
  EXPECT_NEAR(static_cast<double>(without_roots), 1000, 5 * std::sqrt(5000 * 0.2 * 0.8));
}

TEST(Quadratic, RootsAndMultipliersAreDistributedAsStated) {
  std::map<int64_t, int64_t> roots, multipliers;
  int64_t with_roots = 0;
  constexpr uint64_t kSamples = 40000;
  for (uint64_t number = 0; number < kSamples; ++number) {
    base::Random random{3, number};
    const Fields found = fields(make_quadratic(random));
    ++multipliers[coefficients(found.equation)[0]];
    if (found.steps[4].empty()) continue;
    ++with_roots;
    const size_t comma = found.steps[4].find(',');
    ++roots[std::stoll(found.steps[4].substr(0, comma))];
    ++roots[std::stoll(found.steps[4].substr(comma + 1))];
  }
  const auto near = [](int64_t count, double probability, double draws) {
    EXPECT_NEAR(static_cast<double>(count), probability * draws,
                5 * std::sqrt(draws * probability * (1 - probability)));
  };
  EXPECT_EQ(roots.size(), 199U);
  for (const auto& [root, count] : roots) near(count, root == 0 ? 0.01 : 0.005, static_cast<double>(2 * with_roots));
  for (const auto& [multiplier, count] : multipliers) {
    near(count, std::abs(multiplier) == 1 || std::abs(multiplier) == 10 ? 1.0 / 36 : 1.0 / 18, kSamples);
  }
}

TEST(Quadratic, TheExampleOfThePaperIsWrittenLikeThis) {
  // Eventually, the roots 6 and 92 with a factor of -4 occur.
  for (uint64_t number = 0;; ++number) {
    ASSERT_LT(number, 4'000'000U);
    base::Random random{11, number};
    const std::vector<int64_t> tokens = make_quadratic(random);
    if (quadratic_text(std::span(tokens).subspan(151, 30)) != "6,92" ||
        coefficients(quadratic_text(std::span(tokens).first(30)))[0] != -4)
      continue;
    EXPECT_EQ(quadratic_text(tokens),
              "-4*x^2+392*x-2208=0gx^2-98*x+552=0D=98^2-4*1*552=7396=86^2x=(98-86)/2=6x=(98+86)/2=926,92");
    break;
  }
}

TEST(Quadratic, AsATaskPaddingIsLearnedAndNotScored) {
  const AlgorithmicTask task({.task = "quadratic"}, 5);
  EXPECT_EQ(task.vocabulary_size(), 24);
  EXPECT_EQ(task.length(), 180);
  EXPECT_EQ(task.answer_length(), 150);
  EXPECT_EQ(task.result_length(), 30);
  const SampleBatch batch = task.batch(Part::train, 0, 16);
  EXPECT_EQ(batch.answer.sum().item<int64_t>(), 16 * 150);
  EXPECT_FALSE(batch.answer.narrow(1, 0, 30).any().item<bool>());
  EXPECT_EQ(batch.inputs.select(1, 30).ne(1).sum().item<int64_t>(), 0);
  EXPECT_TRUE(batch.scored.eq(batch.answer.logical_and(batch.targets.ne(0))).all().item<bool>());
  EXPECT_LT(batch.scored.sum().item<int64_t>(), 16 * 150);
}

}  // namespace
}  // namespace mnemo::data
