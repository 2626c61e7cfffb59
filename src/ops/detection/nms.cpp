#include "ops/detection/nms.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace mnemo::ops {
namespace {

template <class T>
std::vector<int64_t> by_falling_value(const T* values, int64_t size) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[a] > values[b] || (std::isnan(values[b]) && !std::isnan(values[a]));
  });
  return order;
}

/// Boxes of one label, best first, with one array for each coordinate so that the loop over them is vectorised.
template <class T>
class Suppression {
 public:
  /// Marks in `kept` which of the boxes stay. `chosen` are their indices, best first.
  void operator()(const T* boxes, const std::vector<int64_t>& chosen, double threshold, std::vector<char>& kept) {
    const size_t n = chosen.size();
    for (auto* column : {&x1_, &y1_, &x2_, &y2_, &area_}) column->resize(n);
    dropped_.assign(n, T(0));
    for (size_t i = 0; i < n; ++i) {
      const T* box = boxes + 4 * chosen[i];
      x1_[i] = box[0], y1_[i] = box[1], x2_[i] = box[2], y2_[i] = box[3];
      area_[i] = (box[2] - box[0]) * (box[3] - box[1]);
    }
    for (size_t i = 0; i < n; ++i) {
      if (dropped_[i] != T(0)) continue;
      kept[static_cast<size_t>(chosen[i])] = 1;
      drop_after(i, n, threshold);
    }
  }

 private:
  void drop_after(size_t i, size_t n, double threshold) {
    // The least T above the threshold: iou > threshold is then iou >= least, in T alone.
    T least = static_cast<T>(threshold);
    if (!(static_cast<double>(least) > threshold)) least = std::nextafter(least, std::numeric_limits<T>::infinity());
    const T a = x1_[i], b = y1_[i], c = x2_[i], d = y2_[i], own = area_[i];
    const T *x1 = x1_.data(), *y1 = y1_.data(), *x2 = x2_.data(), *y2 = y2_.data(), *area = area_.data();
    T* dropped = dropped_.data();
#pragma omp simd
    for (size_t j = i + 1; j < n; ++j) {
      const T width = std::max(std::min(c, x2[j]) - std::max(a, x1[j]), T(0)),
              height = std::max(std::min(d, y2[j]) - std::max(b, y1[j]), T(0));
      const T shared = width * height, iou = shared / (own + area[j] - shared);
      dropped[j] = iou >= least ? T(1) : dropped[j];
    }
  }

  std::vector<T> x1_, y1_, x2_, y2_, area_, dropped_;
};

template <class T>
std::vector<int64_t> nms_rows(const T* boxes, const T* scores, const int64_t* labels, int64_t n, double threshold) {
  const std::vector<int64_t> order = by_falling_value(scores, n);
  std::vector<char> kept(static_cast<size_t>(n), 0);
  Suppression<T> suppress;
  if (labels == nullptr) {
    suppress(boxes, order, threshold, kept);
  } else {
    std::vector<int64_t> by_label = order;
    std::stable_sort(by_label.begin(), by_label.end(), [&](int64_t a, int64_t b) { return labels[a] < labels[b]; });
    std::vector<int64_t> group;
    for (size_t i = 0; i < by_label.size(); ++i) {
      group.push_back(by_label[i]);
      if (i + 1 < by_label.size() && labels[by_label[i + 1]] == labels[by_label[i]]) continue;
      suppress(boxes, group, threshold, kept);
      group.clear();
    }
  }
  std::vector<int64_t> out;
  for (const int64_t i : order) {
    if (kept[static_cast<size_t>(i)] != 0) out.push_back(i);
  }
  return out;
}

}  // namespace

at::Tensor nms(const at::Tensor& boxes, const at::Tensor& scores, const at::Tensor& labels, double threshold) {
  const at::Tensor rows = boxes.detach().to(at::kCPU).contiguous(),
                   values = scores.detach().to(at::kCPU, rows.scalar_type()).contiguous(),
                   groups = labels.defined() ? labels.to(at::kCPU).contiguous() : labels;
  std::vector<int64_t> kept;
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "nms", [&] {
    kept = nms_rows(rows.const_data_ptr<scalar_t>(), values.const_data_ptr<scalar_t>(),
                    groups.defined() ? groups.const_data_ptr<int64_t>() : nullptr, rows.size(0), threshold);
  });
  return at::tensor(kept, at::kLong).to(boxes.device());
}

at::Tensor falling_order(const at::Tensor& values) {
  const at::Tensor list = values.detach().to(at::kCPU).contiguous();
  std::vector<int64_t> order;
  AT_DISPATCH_FLOATING_TYPES(list.scalar_type(), "falling_order",
                             [&] { order = by_falling_value(list.const_data_ptr<scalar_t>(), list.numel()); });
  return at::tensor(order, at::kLong).to(values.device());
}

}  // namespace mnemo::ops
