#include "metrics/agreement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace mnemo::metrics {
namespace {

using Ints = std::vector<int64_t>;
using Reals = std::vector<double>;

TEST(ClassScores, AreTheirFormulas) {
  // TP 2, FP 1, FN 1, TN 1.
  const ClassScores scores = class_scores(Ints{1, 1, 1, 0, 0}, Ints{1, 1, 0, 1, 0});
  EXPECT_DOUBLE_EQ(scores.accuracy, 0.6);
  EXPECT_DOUBLE_EQ(scores.f1, 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(scores.macro_f1, (2.0 / 3.0 + 0.5) / 2.0);
  EXPECT_DOUBLE_EQ(scores.matthews, (2.0 * 1 - 1 * 1) / std::sqrt(3.0 * 3 * 2 * 2));
}

TEST(ClassScores, ARatioOfNothingIsZero) {
  const ClassScores one_class = class_scores(Ints{0, 0}, Ints{0, 0});
  EXPECT_EQ(one_class.accuracy, 1.0);
  EXPECT_EQ(one_class.f1, 0.0);
  EXPECT_EQ(one_class.macro_f1, 1.0);
  EXPECT_EQ(one_class.matthews, 0.0);
  EXPECT_EQ(class_scores(Ints{0, 1}, Ints{1, 0}).matthews, -1.0);
  EXPECT_THROW(class_scores(Ints{}, Ints{}), base::InputError);
  EXPECT_THROW(class_scores(Ints{1}, Ints{1, 0}), base::InputError);
}

TEST(Correlation, OfALineIsOneAndOfItsRanksToo) {
  EXPECT_NEAR(*pearson(Reals{1, 2, 3}, Reals{10, 20, 30}), 1.0, 1e-15);
  EXPECT_NEAR(*spearman(Reals{1, 2, 30}, Reals{3, 2, -1e9}), -1.0, 1e-15);
  // Ties share their mean rank: 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
  EXPECT_NEAR(*spearman(Reals{1, 2, 2, 3}, Reals{1, 2, 3, 4}), 4.5 / std::sqrt(4.5 * 5.0), 1e-15);
}

TEST(Correlation, OfAConstantOrOfOnePairIsUndefined) {
  EXPECT_FALSE(pearson(Reals{1, 1, 1}, Reals{1, 2, 3}));
  EXPECT_FALSE(spearman(Reals{1, 2}, Reals{0.1, 0.1}));
  EXPECT_FALSE(pearson(Reals{1}, Reals{2}));
  EXPECT_FALSE(pearson(Reals{}, Reals{}));
  EXPECT_THROW(pearson(Reals{1, 2}, Reals{1}), base::InputError);
  EXPECT_THROW(pearson(Reals{1, std::numeric_limits<double>::quiet_NaN()}, Reals{1, 2}), base::InputError);
}

TEST(Correlation, OfVerySmallAndVeryLargeValuesIsTheSame) {
  for (const double scale : {1e-200, 1.0, 1e200})
    EXPECT_NEAR(*pearson(Reals{1 * scale, 2 * scale, 4 * scale}, Reals{1, 2, 3}), std::sqrt(27.0 / 28.0), 1e-14);
}

}  // namespace
}  // namespace mnemo::metrics
