#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace mnemo::metrics {

/// How well predicted classes agree with labels. A ratio 0/0 is 0.
struct ClassScores {
  double accuracy = 0;
  double f1 = 0;        ///< of class 1 against the rest: 2 TP / (2 TP + FP + FN)
  double macro_f1 = 0;  ///< mean F1 over the classes that occur in predictions or labels
  /// Matthews' correlation of all classes (Gorodkin 2004), with c right of s, p_k predicted and t_k labelled k:
  ///   (c s - sum_k p_k t_k) / sqrt((s^2 - sum_k p_k^2) (s^2 - sum_k t_k^2))
  double matthews = 0;
};

/// Throws InputError for no labels, or another number of predictions.
ClassScores class_scores(std::span<const int64_t> predictions, std::span<const int64_t> labels);

/// Pearson's correlation; nothing for fewer than two pairs or if a side is constant. Throws InputError if the numbers
/// of values differ or one is not finite.
std::optional<double> pearson(std::span<const double> x, std::span<const double> y);

/// Spearman's correlation: Pearson's of the ranks, where equal values share their mean rank. Errors as above.
std::optional<double> spearman(std::span<const double> x, std::span<const double> y);

}  // namespace mnemo::metrics
