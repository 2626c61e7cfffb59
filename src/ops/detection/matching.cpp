#include "ops/detection/matching.h"

#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/detection/boxes.h"

namespace mnemo::ops {
namespace {

constexpr int64_t kBlock = 512;

/// Anchors as one array for each coordinate.
template <class T>
struct Columns {
  std::vector<T> x1, y1, x2, y2, area;
  explicit Columns(const at::Tensor& boxes) {
    const int64_t n = boxes.size(0);
    for (auto* column : {&x1, &y1, &x2, &y2, &area}) column->resize(static_cast<size_t>(n));
    const T* at = boxes.const_data_ptr<T>();
    for (int64_t i = 0; i < n; ++i, at += 4) {
      const auto k = static_cast<size_t>(i);
      x1[k] = at[0], y1[k] = at[1], x2[k] = at[2], y2[k] = at[3], area[k] = (at[2] - at[0]) * (at[3] - at[1]);
    }
  }
};

/// IoU of one box with `size` anchors from `first` on.
template <class T>
void iou_block(const T* box, const Columns<T>& anchors, int64_t first, int64_t size, T* out) {
  const T x1 = box[0], y1 = box[1], x2 = box[2], y2 = box[3], area = (x2 - x1) * (y2 - y1);
  const T *ax1 = anchors.x1.data() + first, *ay1 = anchors.y1.data() + first, *ax2 = anchors.x2.data() + first,
          *ay2 = anchors.y2.data() + first, *own = anchors.area.data() + first;
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    const T width = std::max(std::min(x2, ax2[i]) - std::max(x1, ax1[i]), T(0)),
            height = std::max(std::min(y2, ay2[i]) - std::max(y1, ay1[i]), T(0));
    const T shared = width * height, together = area + own[i] - shared;
    out[i] = shared / (together == T(0) ? T(1) : together);
  }
}

/// The best anchors of a box so far.
template <class T>
struct BestAnchors {
  T value = T(0);
  std::vector<int64_t> at = {};  ///< empty while the value is 0: then all are equal

  void note(const T* iou, int64_t first, int64_t size, T most) {
    if (most < value || most <= T(0)) return;
    if (most > value) at.clear();
    value = most;
    for (int64_t i = 0; i < size; ++i) {
      if (iou[i] == most) at.push_back(first + i);
    }
  }
};

template <class T>
T highest_of(const T* values, int64_t size) {
  T most = values[0];
  for (int64_t i = 1; i < size; ++i) most = std::max(most, values[i]);
  return most;
}

template <class T>
void match_rows(const at::Tensor& boxes, const at::Tensor& anchors, const MatchOptions& options, int64_t* matches) {
  const int64_t count = boxes.size(0), places = anchors.size(0);
  const T* box = boxes.const_data_ptr<T>();
  const Columns<T> columns(anchors);
  const int64_t blocks = (places + kBlock - 1) / kBlock;
  std::vector<int64_t> best(static_cast<size_t>(places));
  std::vector<BestAnchors<T>> of_box(static_cast<size_t>(count));
  T iou[kBlock], most[kBlock];
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * kBlock, size = std::min(kBlock, places - first);
    int64_t* index = best.data() + first;
    for (int64_t g = 0; g < count; ++g) {
      iou_block(box + 4 * g, columns, first, size, g == 0 ? most : iou);
      if (g > 0) {
        for (int64_t i = 0; i < size; ++i) {
          index[i] = iou[i] > most[i] ? g : index[i];
          most[i] = std::max(most[i], iou[i]);
        }
      }
      if (options.allow_low_quality) {
        const T* row = g == 0 ? most : iou;
        of_box[static_cast<size_t>(g)].note(row, first, size, highest_of(row, size));
      }
    }
    const T high = static_cast<T>(options.high), low = static_cast<T>(options.low);
    for (int64_t i = 0; i < size; ++i)
      matches[first + i] = most[i] < low ? kBackground : most[i] < high ? kBetweenThresholds : index[i];
  }
  if (!options.allow_low_quality) return;
  for (const BestAnchors<T>& each : of_box) {
    if (each.at.empty()) std::copy(best.begin(), best.end(), matches);
    for (const int64_t i : each.at) matches[i] = best[static_cast<size_t>(i)];
  }
}

}  // namespace

at::Tensor match_table(const at::Tensor& iou, const MatchOptions& options) {
  const at::TensorOptions integers = iou.options().dtype(at::kLong).requires_grad(false);
  if (iou.size(0) == 0) return at::full({iou.size(1)}, kBackground, integers);
  const auto [most, best] = iou.max(0);
  at::Tensor matches = best.masked_fill(most < options.high, kBetweenThresholds)
                           .masked_fill(most < options.low, kBackground);
  if (!options.allow_low_quality || iou.size(1) == 0) return matches;
  const at::Tensor restored = (iou == std::get<0>(iou.max(1, true))).any(0);
  return at::where(restored, best, matches);
}

at::Tensor match_boxes(const at::Tensor& boxes, const at::Tensor& anchors, const MatchOptions& options) {
  if (!anchors.is_cpu() || boxes.size(0) == 0) return match_table(box_iou(boxes, anchors), options);
  const at::Tensor from = boxes.detach().contiguous(), to = anchors.detach().contiguous();
  at::Tensor matches = at::empty({anchors.size(0)}, at::kLong);
  AT_DISPATCH_FLOATING_TYPES(to.scalar_type(), "match_boxes", [&] {
    match_rows<scalar_t>(from.to(to.scalar_type()), to, options, matches.mutable_data_ptr<int64_t>());
  });
  return matches;
}

SampleCounts sample_counts(int64_t positives, int64_t negatives, int64_t size, double fraction) {
  const int64_t positive = std::min(positives, static_cast<int64_t>(static_cast<double>(size) * fraction));
  return {positive, std::min(negatives, size - positive)};
}

BalancedSample sample_balanced(const at::Tensor& labels, int64_t size, double fraction,
                               const at::Tensor& positive_order, const at::Tensor& negative_order) {
  const at::Tensor positives = at::nonzero(labels >= 1).squeeze(1), negatives = at::nonzero(labels == 0).squeeze(1);
  const SampleCounts counts = sample_counts(positives.size(0), negatives.size(0), size, fraction);
  const auto chosen = [&](const at::Tensor& indices, const at::Tensor& order, int64_t count) {
    at::Tensor mask = at::zeros(labels.sizes(), labels.options().dtype(at::kBool));
    return mask.index_fill_(0, indices.index_select(0, order.slice(0, 0, count).to(indices.device())), true);
  };
  return {chosen(positives, positive_order, counts.positive), chosen(negatives, negative_order, counts.negative)};
}

}  // namespace mnemo::ops
