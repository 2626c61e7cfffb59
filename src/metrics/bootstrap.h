#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace mnemo::metrics {

/// A score of a test set drawn from the sentences: indices, each as often as it was drawn.
using SampleScore = std::function<double(std::span<const int64_t> sentences)>;

/// Result of paired bootstrap resampling of systems A and B.
struct PairedBootstrap {
  double score_a = 0, score_b = 0;    ///< on the whole test set
  double better_a = 0, better_b = 0;  ///< fractions of the samples where that system is better
  double mean = 0;                    ///< of the samples' differences A - B
  double low = 0, high = 0;           ///< the middle 95 % of the samples' differences A - B
  double p = 1;                       ///< two-sided
};

/// Paired bootstrap resampling (Koehn 2004): draws `samples` test sets of the same size with replacement and scores
/// both systems on each.
///   p = (1 + #{ |d_i - mean d| >= |score_a - score_b| }) / (1 + samples),   d_i the difference on sample i
/// (Riezler and Maxwell 2005: the samples' differences, centred, are the distribution under no difference).
/// Equal seeds give equal results on any machine. Throws InputError for no sentences or fewer than 1 sample.
PairedBootstrap paired_bootstrap(int64_t sentences, const SampleScore& system_a, const SampleScore& system_b,
                                 int64_t samples = 1000, uint64_t seed = 12345);

}  // namespace mnemo::metrics
