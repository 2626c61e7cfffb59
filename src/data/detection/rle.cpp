#include "data/detection/rle.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace mnemo::data {
namespace {

/// Appends runs; neighbours of one value are joined, and the first run is of zeros.
class RunWriter {
 public:
  RunWriter(int64_t height, int64_t width) : rle_{height, width, {}} {}
  void add(bool value, int64_t length) {
    if (length == 0) return;
    if (value != value_) {
      rle_.counts.push_back(static_cast<uint32_t>(length_));
      value_ = value;
      length_ = 0;
    }
    length_ += length;
  }
  Rle take() {
    rle_.counts.push_back(static_cast<uint32_t>(length_));
    return std::move(rle_);
  }

 private:
  Rle rle_;
  bool value_ = false;
  int64_t length_ = 0;
};

/// Walks over two masks of one size: run(first, second, length) with the values of each.
template <class F>
void walk(const Rle& a, const Rle& b, F&& run) {
  size_t i = 0, j = 0;
  int64_t left_a = a.counts.empty() ? 0 : a.counts[0], left_b = b.counts.empty() ? 0 : b.counts[0];
  while (i < a.counts.size() && j < b.counts.size()) {
    const int64_t length = std::min(left_a, left_b);
    run(i % 2 == 1, j % 2 == 1, length);
    left_a -= length;
    left_b -= length;
    if (left_a == 0 && ++i < a.counts.size()) left_a = a.counts[i];
    if (left_b == 0 && ++j < b.counts.size()) left_b = b.counts[j];
  }
}

void require_size(int64_t height, int64_t width, const std::string& where) {
  base::require(height > 0 && width > 0 && height <= kMaxMaskPixels && width <= kMaxMaskPixels / height,
                "{}: expected a mask of 1 to {} pixels, found {} x {}", where, kMaxMaskPixels, height, width);
}

/// Adds a count to a mask that is read; throws if it does not fit.
void push_count(Rle& rle, int64_t count, int64_t& total, const std::string& where) {
  const int64_t pixels = rle.height * rle.width;
  base::require(count >= 0 && count <= pixels - total,
                "{}: counts: expected a mask of {} x {}, found a run of {} at {}", where, rle.height, rle.width, count,
                total);
  total += count;
  rle.counts.push_back(static_cast<uint32_t>(count));
}

void require_total(const Rle& rle, int64_t total, const std::string& where) {
  base::require(total == rle.height * rle.width, "{}: counts: expected {} x {} = {} pixels, found {}", where,
                rle.height, rle.width, rle.height * rle.width, total);
}

/// The crossings of an outline with the columns of pixels, as places x * height + y.
class Crossings {
 public:
  Crossings(int64_t height, int64_t width) : height_(height), width_(width) {}
  /// The next place of the outline, in fifths of a pixel.
  void visit(int64_t u, int64_t v) {
    if (started_ && u != u_) cross(u < u_ ? u : u - 1, std::min(v, v_));
    started_ = true;
    u_ = u;
    v_ = v;
  }
  std::vector<int64_t> places = {};

 private:
  static constexpr double kScale = 5.0;
  void cross(int64_t u, int64_t v) {
    const double x = (static_cast<double>(u) + 0.5) / kScale - 0.5;
    if (std::floor(x) != x || x < 0 || x > static_cast<double>(width_ - 1)) return;
    const double y = std::ceil(
        std::clamp((static_cast<double>(v) + 0.5) / kScale - 0.5, 0.0, static_cast<double>(height_)));
    places.push_back(static_cast<int64_t>(x) * height_ + static_cast<int64_t>(y));
  }

  int64_t height_, width_, u_ = 0, v_ = 0;
  bool started_ = false;
};

/// Visits the places of an edge in its own direction; they are computed from its lower end.
void walk_edge(int64_t x1, int64_t y1, int64_t x2, int64_t y2, Crossings& crossings) {
  const int64_t dx = std::abs(x2 - x1), dy = std::abs(y2 - y1), steps = std::max(dx, dy);
  const bool flat = dx >= dy, backwards = flat ? x1 > x2 : y1 > y2;
  if (backwards) {
    std::swap(x1, x2);
    std::swap(y1, y2);
  }
  const double slope = steps == 0 ? 0.0 : static_cast<double>(flat ? y2 - y1 : x2 - x1) / static_cast<double>(steps);
  for (int64_t d = 0; d <= steps; ++d) {
    const int64_t t = backwards ? steps - d : d;
    const auto other = static_cast<int64_t>(static_cast<double>(flat ? y1 : x1) + slope * static_cast<double>(t) + 0.5);
    if (flat) {
      crossings.visit(x1 + t, other);
    } else {
      crossings.visit(other, y1 + t);
    }
  }
}

/// The points in fifths of a pixel, rounded as pycocotools rounds them, and the length of the outline checked.
std::vector<int64_t> scaled_points(std::span<const double> points, const std::string& where) {
  constexpr double kFarthest = 1 << 24;
  base::require(points.size() >= 6 && points.size() % 2 == 0,
                "{}: expected x and y of at least three points, found {} numbers", where, points.size());
  std::vector<int64_t> scaled;
  for (const double value : points) {
    base::require(std::abs(value) <= kFarthest, "{}: expected coordinates of at most {} pixels, found {}", where,
                  kFarthest, value);
    scaled.push_back(static_cast<int64_t>(5.0 * value + 0.5));
  }
  int64_t outline = 0;
  for (size_t i = 0; i < scaled.size(); i += 2) {
    const size_t next = (i + 2) % scaled.size();
    outline += 1 + std::max(std::abs(scaled[i] - scaled[next]), std::abs(scaled[i + 1] - scaled[next + 1]));
    base::require(outline <= kMaxOutline, "{}: the outline is longer than {} pixels", where, kMaxOutline / 5);
  }
  return scaled;
}

}  // namespace

Rle rle_encode(const uint8_t* mask, int64_t height, int64_t width) {
  RunWriter runs(height, width);
  for (int64_t x = 0; x < width; ++x) {
    for (int64_t y = 0; y < height; ++y) runs.add(mask[y * width + x] != 0, 1);
  }
  return runs.take();
}

void rle_decode(const Rle& rle, uint8_t* mask) {
  int64_t x = 0, y = 0;
  for (size_t i = 0; i < rle.counts.size(); ++i) {
    for (uint32_t k = 0; k < rle.counts[i]; ++k) {
      mask[y * rle.width + x] = static_cast<uint8_t>(i % 2);
      if (++y == rle.height) y = 0, ++x;
    }
  }
}

std::string rle_text(const Rle& rle) {
  std::string text;
  for (size_t i = 0; i < rle.counts.size(); ++i) {
    int64_t value = rle.counts[i];
    if (i > 2) value -= rle.counts[i - 2];
    for (bool more = true; more;) {
      int64_t group = value & 0x1f;
      value >>= 5;
      more = (group & 0x10) != 0 ? value != -1 : value != 0;
      if (more) group |= 0x20;
      text.push_back(static_cast<char>(group + 48));
    }
  }
  return text;
}

Rle rle_parse(std::string_view text, int64_t height, int64_t width, const std::string& where) {
  require_size(height, width, where);
  Rle rle{height, width, {}};
  int64_t total = 0;
  for (size_t at = 0; at < text.size();) {
    int64_t value = 0;
    int shift = 0;
    for (bool more = true; more; shift += 5) {
      base::require(at < text.size() && shift < 40,
                    "{}: counts: expected a number, found the end of the text or more than 40 bits", where);
      const int64_t group = static_cast<unsigned char>(text[at]) - int64_t{48};
      base::require(group >= 0 && group < 64, "{}: counts: expected characters '0' to 'o', found byte {} at {}", where,
                    static_cast<int>(static_cast<unsigned char>(text[at])), at);
      ++at;
      value |= (group & 0x1f) << shift;
      more = (group & 0x20) != 0;
      if (!more && (group & 0x10) != 0) value |= -(int64_t{1} << (shift + 5));
    }
    if (rle.counts.size() > 2) value += rle.counts[rle.counts.size() - 2];
    push_count(rle, value, total, where);
  }
  require_total(rle, total, where);
  return rle;
}

Rle rle_of_counts(std::span<const int64_t> counts, int64_t height, int64_t width, const std::string& where) {
  require_size(height, width, where);
  Rle rle{height, width, {}};
  int64_t total = 0;
  for (const int64_t count : counts) push_count(rle, count, total, where);
  require_total(rle, total, where);
  return rle;
}

int64_t rle_area(const Rle& rle) {
  int64_t area = 0;
  for (size_t i = 1; i < rle.counts.size(); i += 2) area += rle.counts[i];
  return area;
}

XywhBox rle_box(const Rle& rle) {
  int64_t left = rle.width, top = rle.height, right = -1, bottom = -1, start = 0;
  for (size_t i = 0; i < rle.counts.size(); start += rle.counts[i], ++i) {
    if (i % 2 == 0 || rle.counts[i] == 0) continue;
    const int64_t last = start + rle.counts[i] - 1, first_x = start / rle.height, last_x = last / rle.height;
    left = std::min(left, first_x);
    right = std::max(right, last_x);
    top = first_x < last_x ? 0 : std::min(top, start % rle.height);
    bottom = first_x < last_x ? rle.height - 1 : std::max(bottom, last % rle.height);
  }
  if (right < 0) return {0, 0, 0, 0};
  return {static_cast<double>(left), static_cast<double>(top), static_cast<double>(right - left + 1),
          static_cast<double>(bottom - top + 1)};
}

Rle rle_merge(std::span<const Rle> masks, RleMerge how) {
  Rle out = masks[0];
  for (const Rle& next : masks.subspan(1)) {
    base::ensure(next.height == out.height && next.width == out.width, "rle_merge: masks of {} x {} and {} x {}",
                 out.height, out.width, next.height, next.width);
    RunWriter runs(out.height, out.width);
    walk(out, next,
         [&](bool a, bool b, int64_t length) { runs.add(how == RleMerge::unite ? a || b : a && b, length); });
    out = runs.take();
  }
  return out;
}

int64_t rle_shared(const Rle& a, const Rle& b) {
  int64_t shared = 0;
  walk(a, b, [&](bool first, bool second, int64_t length) { shared += first && second ? length : 0; });
  return shared;
}

Rle rle_of_polygon(std::span<const double> points, int64_t height, int64_t width, const std::string& where) {
  require_size(height, width, where);
  const std::vector<int64_t> scaled = scaled_points(points, where);
  Crossings crossings(height, width);
  for (size_t i = 0; i < scaled.size(); i += 2) {
    const size_t next = (i + 2) % scaled.size();
    walk_edge(scaled[i], scaled[i + 1], scaled[next], scaled[next + 1], crossings);
  }
  std::vector<int64_t>& places = crossings.places;
  std::sort(places.begin(), places.end());
  places.push_back(height * width);
  RunWriter runs(height, width);
  int64_t from = 0;
  for (size_t i = 0; i < places.size(); from = places[i], ++i) runs.add(i % 2 == 1, places[i] - from);
  return runs.take();
}

void require_polygon(std::span<const double> points, const std::string& where) { scaled_points(points, where); }

Rle rle_of_box(const XywhBox& box, int64_t height, int64_t width, const std::string& where) {
  const double left = box[0], top = box[1], right = box[0] + box[2], bottom = box[1] + box[3];
  const std::array<double, 8> corners = {left, top, left, bottom, right, bottom, right, top};
  return rle_of_polygon(corners, height, width, where);
}

}  // namespace mnemo::data
