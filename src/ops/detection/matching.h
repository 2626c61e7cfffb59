#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// Values of a match that is no box.
inline constexpr int64_t kBackground = -1, kBetweenThresholds = -2;

struct MatchOptions {
  double high = 0.5;               ///< at least this IoU: matched
  double low = 0.5;                ///< less than this: background; between the two: neither
  bool allow_low_quality = false;  ///< every box gets the anchors of its highest IoU, whatever that is
};

/// Matches boxes [G,4] with anchors [N,4]: the index of the box with the highest IoU, the lower one among equals,
/// kBackground or kBetweenThresholds. With allow_low_quality every anchor that has the highest IoU of some box gets its
/// own best box, which may be another one; the anchors of a box that meets none are all those of IoU 0 with it.
/// Returns [N] int64; without boxes all are background. No table of G x N is made on the CPU.
/// Source: Ren et al. 2015, section 3.1.2; torchvision's Matcher. Naive reference: match_table(box_iou(boxes,
/// anchors)).
at::Tensor match_boxes(const at::Tensor& boxes, const at::Tensor& anchors, const MatchOptions& options);

/// Matches a table of IoU [G,N].
at::Tensor match_table(const at::Tensor& iou, const MatchOptions& options);

/// Which anchors take part in a loss, [N] bool each.
struct BalancedSample {
  at::Tensor positive, negative;
};

/// The number of positive and negative samples among that many candidates.
///   positive = min(|P|, int(size fraction)),  negative = min(|M|, size - positive)
struct SampleCounts {
  int64_t positive, negative;
};
SampleCounts sample_counts(int64_t positives, int64_t negatives, int64_t size, double fraction);

/// Chooses samples by labels [N] int64: at least 1 positive, 0 negative, less than 0 ignored. The permutations are of
/// the positive and of the negative indices in rising order; their first counts are chosen.
BalancedSample sample_balanced(const at::Tensor& labels, int64_t size, double fraction,
                               const at::Tensor& positive_order, const at::Tensor& negative_order);

}  // namespace mnemo::ops
