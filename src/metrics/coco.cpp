#include "metrics/coco.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "metrics/coco_iou.h"
#include "metrics/coco_match.h"

namespace mnemo::metrics {
namespace {

constexpr size_t kRecalls = 101, kLimits = 3;
constexpr std::array<int32_t, kLimits> kDetectionLimits = {1, 10, 100};

double recall_level(size_t i) { return i + 1 == kRecalls ? 1.0 : static_cast<double>(i) * 0.01; }

/// Precision at each recall level and the highest recall, for each threshold.
struct Curves {
  bool measured = false;
  std::array<std::array<double, kRecalls>, kCocoThresholds> precision{};
  std::array<double, kCocoThresholds> recall{};
};

/// The curves of one category, area and number of detections. `matches`: all detections, best score first.
Curves curves_of(const std::vector<CocoMatch>& matches, int64_t counted, int32_t limit) {
  Curves out;
  if (counted == 0) return out;
  out.measured = true;
  std::vector<double> precision, recall;
  for (size_t t = 0; t < kCocoThresholds; ++t) {
    precision.clear();
    recall.clear();
    double right = 0, wrong = 0;
    for (const CocoMatch& match : matches) {
      if (match.place >= limit) continue;
      if (!match.ignored[t]) (match.matched[t] ? right : wrong) += 1;
      recall.push_back(right / static_cast<double>(counted));
      precision.push_back(right / (wrong + right + std::numeric_limits<double>::epsilon()));
    }
    if (recall.empty()) continue;
    out.recall[t] = recall.back();
    for (size_t i = precision.size() - 1; i > 0; --i) precision[i - 1] = std::max(precision[i - 1], precision[i]);
    for (size_t r = 0; r < kRecalls; ++r) {
      const auto at = std::lower_bound(recall.begin(), recall.end(), recall_level(r)) - recall.begin();
      if (static_cast<size_t>(at) == recall.size()) break;
      out.precision[t][r] = precision[static_cast<size_t>(at)];
    }
  }
  return out;
}

/// Curves of one category: areas at 100 detections, and all areas at each number of detections.
struct CategoryCurves {
  std::array<Curves, kCocoAreas> of_area;
  std::array<Curves, kLimits> of_limit;
};

/// A mean; -1 of nothing.
struct Mean {
  double sum = 0;
  int64_t count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
  double value() const { return count == 0 ? -1.0 : sum / static_cast<double>(count); }
};

/// Mean precision at thresholds [first, end).
void add_precision(Mean& mean, const Curves& curves, size_t first, size_t end) {
  for (size_t t = first; curves.measured && t < end; ++t) {
    for (const double value : curves.precision[t]) mean.add(value);
  }
}

void add_recall(Mean& mean, const Curves& curves) {
  for (size_t t = 0; curves.measured && t < kCocoThresholds; ++t) mean.add(curves.recall[t]);
}

/// Objects and detections of one category, image after image.
struct Members {
  std::vector<size_t> objects, detections;
};

class Evaluation {
 public:
  Evaluation(const data::CocoSet& set, std::span<const data::CocoDetection> detections, data::CocoParts parts)
      : set_(set), detections_(detections), parts_(parts), members_(set.categories.size()) {
    for (const data::CocoDetection& found : detections)
      base::ensure(found.category >= 0 && found.category < std::ssize(set.categories),
                   "a detection of category {} of {}", found.category, set.categories.size());
    for (size_t i = 0; i < set.objects.size(); ++i) members_[of(set.objects[i])].objects.push_back(i);
    for (size_t i = 0; i < detections.size(); ++i) members_[of(detections[i])].detections.push_back(i);
    for (Members& members : members_) {
      std::stable_sort(members.objects.begin(), members.objects.end(),
                       [&](size_t a, size_t b) { return set.objects[a].image < set.objects[b].image; });
      std::stable_sort(members.detections.begin(), members.detections.end(), [&](size_t a, size_t b) {
        const data::CocoDetection &x = detections[a], &y = detections[b];
        return x.image != y.image ? x.image < y.image : x.score > y.score;
      });
    }
  }

  CategoryCurves category(size_t c) const {
    std::array<std::vector<CocoMatch>, kCocoAreas> matches;
    std::array<int64_t, kCocoAreas> counted{};
    const Members& members = members_[c];
    size_t object = 0, detection = 0;
    while (object < members.objects.size() || detection < members.detections.size()) {
      const int32_t image = next_image(members, object, detection);
      const auto objects = take(members.objects, object, image, set_.objects);
      auto found = take(members.detections, detection, image, detections_);
      if (found.size() > static_cast<size_t>(kCocoMostDetections)) found = found.first(kCocoMostDetections);
      const CocoGroup group = group_of(objects, found);
      for (size_t area = 0; area < kCocoAreas; ++area) {
        std::vector<CocoMatch> some = coco_match(group, area, counted[area]);
        for (size_t d = 0; d < some.size(); ++d) {
          some[d].score = detections_[found[d]].score;
          some[d].place = static_cast<int32_t>(d);
        }
        matches[area].insert(matches[area].end(), some.begin(), some.end());
      }
    }
    CategoryCurves out;
    for (size_t area = 0; area < kCocoAreas; ++area) {
      std::stable_sort(matches[area].begin(), matches[area].end(),
                       [](const CocoMatch& a, const CocoMatch& b) { return a.score > b.score; });
      out.of_area[area] = curves_of(matches[area], counted[area], kDetectionLimits.back());
    }
    for (size_t limit = 0; limit + 1 < kLimits; ++limit)
      out.of_limit[limit] = curves_of(matches[0], counted[0], kDetectionLimits[limit]);
    out.of_limit[kLimits - 1] = out.of_area[0];
    return out;
  }

 private:
  template <class T>
  static size_t of(const T& item) {
    return static_cast<size_t>(item.category);
  }

  int32_t next_image(const Members& members, size_t object, size_t detection) const {
    int32_t image = std::numeric_limits<int32_t>::max();
    if (object < members.objects.size()) image = set_.objects[members.objects[object]].image;
    if (detection < members.detections.size())
      image = std::min(image, detections_[members.detections[detection]].image);
    return image;
  }

  template <class List>
  static std::span<const size_t> take(const std::vector<size_t>& indices, size_t& at, int32_t image, const List& list) {
    const size_t first = at;
    while (at < indices.size() && list[indices[at]].image == image) ++at;
    return std::span(indices).subspan(first, at - first);
  }

  CocoGroup group_of(std::span<const size_t> objects, std::span<const size_t> found) const {
    CocoGroup group;
    for (const size_t g : objects) {
      group.object_areas.push_back(set_.objects[g].area);
      group.crowds.push_back(static_cast<char>(set_.objects[g].crowd));
    }
    for (const size_t d : found) {
      const data::CocoDetection& detection = detections_[d];
      group.detection_areas.push_back(parts_ == data::CocoParts::boxes
                                          ? detection.box[2] * detection.box[3]
                                          : static_cast<double>(data::rle_area(detection.mask)));
    }
    group.iou.reserve(objects.size() * found.size());
    if (parts_ == data::CocoParts::masks) {
      mask_overlaps(objects, found, group);
      return group;
    }
    for (const size_t d : found) {
      for (const size_t g : objects)
        group.iou.push_back(coco_iou(detections_[d].box, set_.objects[g].box, set_.objects[g].crowd));
    }
    return group;
  }

  void mask_overlaps(std::span<const size_t> objects, std::span<const size_t> found, CocoGroup& group) const {
    std::vector<CocoMask> masks;
    for (const size_t g : objects) masks.emplace_back(set_.mask(set_.objects[g]));
    for (const size_t d : found) {
      const CocoMask mask(detections_[d].mask);
      for (size_t g = 0; g < objects.size(); ++g) group.iou.push_back(coco_iou(mask, masks[g], group.crowds[g] != 0));
    }
  }

  const data::CocoSet& set_;
  std::span<const data::CocoDetection> detections_;
  data::CocoParts parts_;
  std::vector<Members> members_;
};

constexpr size_t kThreshold75 = 5;

}  // namespace

CocoScores coco_scores(const data::CocoSet& set, std::span<const data::CocoDetection> detections,
                       data::CocoParts parts) {
  const Evaluation evaluation(set, detections, parts);
  std::array<Mean, kCocoNames.size()> all;
  CocoScores scores;
  for (size_t c = 0; c < set.categories.size(); ++c) {
    const CategoryCurves curves = evaluation.category(c);
    std::array<Mean, kCocoCategoryNames.size()> own;
    for (auto* means : {all.data(), own.data()}) {
      add_precision(means[0], curves.of_area[0], 0, kCocoThresholds);
      add_precision(means[1], curves.of_area[0], 0, 1);
      add_precision(means[2], curves.of_area[0], kThreshold75, kThreshold75 + 1);
      for (size_t area = 1; area < kCocoAreas; ++area)
        add_precision(means[2 + area], curves.of_area[area], 0, kCocoThresholds);
    }
    for (size_t limit = 0; limit < kLimits; ++limit) add_recall(all[6 + limit], curves.of_limit[limit]);
    for (size_t area = 1; area < kCocoAreas; ++area) add_recall(all[8 + area], curves.of_area[area]);
    add_recall(own[6], curves.of_area[0]);
    auto& values = scores.of_category.emplace_back();
    std::transform(own.begin(), own.end(), values.begin(), [](const Mean& mean) { return mean.value(); });
  }
  std::transform(all.begin(), all.end(), scores.all.begin(), [](const Mean& mean) { return mean.value(); });
  return scores;
}

}  // namespace mnemo::metrics
