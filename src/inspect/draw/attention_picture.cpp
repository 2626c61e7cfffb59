#include "inspect/draw/attention_picture.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "inspect/draw/canvas.h"

namespace mnemo::inspect {
namespace {

using core::MapAxis;
using core::SpanKind;

constexpr double kMargin = 16, kGap = 26, kTitle = 30, kStrip = 5;
constexpr double kMapSize = 240;  // longer side, unless cells would be too large
constexpr double kLargestCell = 12;
constexpr int64_t kMaxDots = 480;  // per side; larger maps show the largest weight of each block
constexpr double kWords = 84;      // room for row labels
constexpr double kWordSize = 9;
constexpr double kChartWidth = 480, kChartHeight = 150;
constexpr Colour kGrey{0x5b, 0x68, 0x78}, kBorder{0xd1, 0x3c, 0x2b}, kFrame{0xb9, 0xc3, 0xce}, kNone{0xf4, 0xf4, 0xf4};
// Okabe and Ito's colours.
constexpr std::array<Colour, 8> kLines = {Colour{0x00, 0x72, 0xb2}, Colour{0xd5, 0x5e, 0x00}, Colour{0x00, 0x9e, 0x73},
                                          Colour{0xcc, 0x79, 0xa7}, Colour{0xb8, 0x86, 0x0b}, Colour{0x56, 0xb4, 0xe9},
                                          Colour{0x7b, 0x4f, 0xb5}, Colour{0x8c, 0x56, 0x4b}};

Colour colour_of(const core::Span& span) {
  if (span.kind == SpanKind::cache && span.tag == kCompressed) return {0x4a, 0x2c, 0x5e};
  const bool of_class = span.kind == SpanKind::tokens && span.tag == core::kClassRow;
  switch (of_class ? SpanKind::class_token : span.kind) {
    case SpanKind::cache:
      return {0x7a, 0x51, 0x95};
    case SpanKind::read:
      return {0x2f, 0x8f, 0x5b};
    case SpanKind::tokens:
      return {0x2f, 0x6f, 0xb3};
    case SpanKind::write:
      return {0xd1, 0x66, 0x2a};
    case SpanKind::class_token:
      return {0xb8, 0x86, 0x0b};
    case SpanKind::memory:
      return {0xcc, 0x79, 0xa7};
  }
  return {};
}

/// White to dark blue; small weights are amplified, since many keys share the total.
Colour shade(double weight, double largest) {
  const double part = largest > 0 ? std::sqrt(std::clamp(weight / largest, 0.0, 1.0)) : 0.0;
  const auto mix = [&](double from, double to) { return static_cast<uint8_t>(std::lround(from + part * (to - from))); };
  return {mix(255, 8), mix(255, 48), mix(255, 107)};
}

/// Position of a map in the picture.
struct Place {
  int64_t block = 1;  ///< weights per dot along each side
  double cell = 1;
  double width = 0, height = 0;
  double words = 0;  ///< room for labels on the left
  double past = 0;   ///< room for the column of rows that are no longer keys
};

Place place_of(const HeadMap& map) {
  const int64_t rows = map.weights.size(0), columns = map.weights.size(1),
                longest = std::max<int64_t>(1, std::max(rows, columns));
  Place place;
  place.block = (longest + kMaxDots - 1) / kMaxDots;
  const double dots = static_cast<double>((longest + place.block - 1) / place.block);
  place.cell = std::clamp(std::floor(2 * kMapSize / dots) / 2, 0.5, kLargestCell);
  place.width = place.cell * static_cast<double>((columns + place.block - 1) / place.block);
  place.height = place.cell * static_cast<double>((rows + place.block - 1) / place.block);
  if (place.cell >= 8 && place.block == 1) place.words = kWords;
  if (map.past.defined()) place.past = std::max(place.cell, 6.0) + 4;
  return place;
}

double panel_width(const Place& place) { return std::max(place.words + place.past + place.width + kStrip + 3, 150.0); }

Raster dots_of(const at::Tensor& weights, int64_t block, double largest) {
  const int64_t rows = weights.size(0), columns = weights.size(1);
  Raster raster{(columns + block - 1) / block, (rows + block - 1) / block, {}};
  raster.dots.resize(static_cast<size_t>(raster.width * raster.height));
  const double* data = weights.const_data_ptr<double>();
  for (int64_t y = 0; y < raster.height; ++y) {
    for (int64_t x = 0; x < raster.width; ++x) {
      double most = 0;
      for (int64_t i = y * block; i < std::min(rows, (y + 1) * block); ++i) {
        for (int64_t j = x * block; j < std::min(columns, (x + 1) * block); ++j)
          most = std::max(most, data[i * columns + j]);
      }
      raster.at(x, y) = shade(most, largest);
    }
  }
  return raster;
}

/// The word, shortened to fit beside a map.
std::string short_word(const std::string& word) {
  constexpr size_t kMax = 12;
  std::string start;
  size_t letters = 0;
  for (const char c : word) {
    if ((static_cast<uint8_t>(c) & 0xc0) != 0x80 && ++letters > kMax) return start + "..";
    start += c;
  }
  return start;
}

void draw_map(Canvas& canvas, const AttentionSummary& facts, const HeadMap& map, double left, double top) {
  const Place place = place_of(map);
  double largest = map.weights.numel() == 0 ? 0 : map.weights.max().item<double>();
  if (map.past.defined()) largest = std::max(largest, map.past.max().item<double>());
  canvas.text(left, top + 11, fmt::format("layer {} head {}", map.layer, map.head), 11);
  canvas.text(left, top + 22, fmt::format("largest {:.3f}", largest), 8, Anchor::left, kGrey);
  const double x = left + place.words + place.past + kStrip + 2, y = top + kTitle + kStrip + 1;
  canvas.line({{x, y}, {x + place.width, y}, {x + place.width, y + place.height}, {x, y + place.height}, {x, y}},
              kFrame, 0.5);
  if (map.weights.numel() > 0) canvas.cells(x, y, place.cell, dots_of(map.weights, place.block, largest));
  const double unit = place.cell / static_cast<double>(place.block);
  const auto spans_along = [&](MapAxis axis, int64_t count, bool vertical) {
    const std::vector<core::Span> spans = spans_of(facts.masks.at(map.layer), axis, count);
    double at = 0;
    for (size_t s = 0; s < spans.size(); ++s) {
      const double length = unit * static_cast<double>(spans[s].length);
      if (length == 0) continue;
      const Colour colour = axis == MapAxis::slots || axis == MapAxis::cache ? kGrey : colour_of(spans[s]);
      if (vertical)
        canvas.rectangle(x - kStrip - 1, y + at, kStrip, length, colour);
      else
        canvas.rectangle(x + at, y - kStrip - 1, length, kStrip, colour);
      at += length;
      const bool inner = at + unit / 2 < unit * static_cast<double>(count);
      if (inner && vertical) canvas.line({{x, y + at}, {x + place.width, y + at}}, kBorder, 1);
      if (inner && !vertical) canvas.line({{x + at, y}, {x + at, y + place.height}}, kBorder, 1);
    }
  };
  spans_along(map.rows, map.weights.size(0), true);
  spans_along(map.columns, map.weights.size(1), false);
  if (map.past.defined()) {
    const double column = x - kStrip - 2 - place.past;
    canvas.cells(column, y, place.cell, dots_of(map.past.unsqueeze(1), place.block, largest));
    canvas.text(column, y - 2, "past", 7, Anchor::left, kGrey);
  }
  if (place.words > 0) {
    const std::vector<std::string> words = labels_of(facts, map.layer, map.rows, map.weights.size(0));
    for (size_t i = 0; i < words.size(); ++i) {
      canvas.text(left + place.words - 3, y + place.cell * (static_cast<double>(i) + 0.5) + 3, short_word(words[i]),
                  std::min(kWordSize, place.cell), Anchor::right, kGrey);
    }
  }
}

struct Size {
  double width = 0, height = 0;
};

const char* about(const std::string& map) {
  if (map == "attention") return "attention: rows are queries, columns are keys";
  if (map == "grc_cache") return "grc_cache: rows are queries, columns are rows of the gated recurrent cache";
  if (map == "written")
    return "written: rows are tokens, columns are slots; the fraction of a slot that was new after the token was "
           "written";
  if (map == "held")
    return "held: rows are tokens, columns are slots; the fraction of a slot that the token makes up at the end of the "
           "segment";
  return nullptr;
}

double draw_legend(Canvas& canvas, const AttentionSummary& facts, double x, double y) {
  std::vector<std::string> kinds;
  for (const auto& [layer, mask] : facts.masks) {
    for (const core::Span& span : spans_of(mask, MapAxis::keys, mask.table.num_keys())) {
      const std::string kind = kind_of(span);
      if (span.length == 0 || std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
      kinds.push_back(kind);
      canvas.rectangle(x, y - 8, 10, 10, colour_of(span));
      canvas.text(x + 14, y, kind, 10);
      x += 76;
    }
  }
  return y + 10;
}

void draw_chart(Canvas& canvas, const std::vector<ScalarPoint>& points, size_t scalar, double left, double top) {
  const core::Scalar& first = points.front().scalars[scalar];
  canvas.text(left, top + 11, first.name, 11);
  const double x = left + 34, y = top + 22, width = kChartWidth - 130, height = kChartHeight;
  double low = 1, high = 0;
  for (const ScalarPoint& point : points) {
    if (scalar >= point.scalars.size()) continue;
    for (const double value : point.scalars[scalar].values) {
      if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
    }
  }
  // Shares lie between 0 and 1; a change of less than 0.1 must not look large.
  const double middle = (low + high) / 2, half = std::max((high - low) / 2 * 1.1, 0.05);
  low = middle - half, high = middle + half;
  const auto first_step = static_cast<double>(points.front().step), last_step = static_cast<double>(points.back().step);
  const auto at = [&](int64_t step, double value) {
    const double along = last_step > first_step ? (static_cast<double>(step) - first_step) / (last_step - first_step)
                                                : 0.5;
    return Canvas::Point{x + along * width, y + (high - value) / (high - low) * height};
  };
  for (int tick = 0; tick <= 4; ++tick) {
    const double value = low + (high - low) * tick / 4, row = y + height * (4 - tick) / 4;
    canvas.line({{x, row}, {x + width, row}}, {0xe6, 0xeb, 0xf0}, 1);
    canvas.text(x - 4, row + 3, fmt::format("{:.3f}", value), 8, Anchor::right, kGrey);
  }
  canvas.text(x, y + height + 12, fmt::format("step {}", points.front().step), 8, Anchor::left, kGrey);
  canvas.text(x + width, y + height + 12, fmt::format("{}", points.back().step), 8, Anchor::right, kGrey);
  for (size_t head = 0; head < first.values.size(); ++head) {
    std::vector<Canvas::Point> line;
    for (const ScalarPoint& point : points) {
      if (scalar >= point.scalars.size() || head >= point.scalars[scalar].values.size() ||
          !std::isfinite(point.scalars[scalar].values[head]))
        continue;
      line.push_back(at(point.step, point.scalars[scalar].values[head]));
    }
    if (line.empty()) continue;
    const Colour colour = kLines[head % kLines.size()];
    canvas.line(line, colour, 1.5);
    canvas.rectangle(x + width + 8, y + 12 * static_cast<double>(head), 8, 8, colour);
    canvas.text(x + width + 19, y + 12 * static_cast<double>(head) + 7, fmt::format("head {}", head), 8, Anchor::left,
                kGrey);
  }
}

double draw_gauges(Canvas& canvas, const std::vector<ScalarPoint>& points, size_t columns, double y) {
  const size_t count = points.front().scalars.size();
  for (size_t scalar = 0; scalar < count; ++scalar) {
    draw_chart(canvas, points, scalar, kMargin + static_cast<double>(scalar % columns) * kChartWidth,
               y + static_cast<double>(scalar / columns) * (kChartHeight + 50));
  }
  return y + static_cast<double>((count + columns - 1) / columns) * (kChartHeight + 50);
}

Size draw_maps(Canvas& canvas, const AttentionSummary& facts, double y) {
  Size size{0, draw_legend(canvas, facts, kMargin, y + 12)};
  std::vector<std::string> names;
  for (const HeadMap& map : facts.maps) {
    if (std::find(names.begin(), names.end(), map.name) == names.end()) names.push_back(map.name);
  }
  for (const std::string& name : names) {
    canvas.text(kMargin, size.height + 20, about(name) == nullptr ? name : about(name), 12);
    double x = kMargin, top = size.height + 30, bottom = top;
    int64_t layer = -1;
    for (const HeadMap& map : facts.maps) {
      if (map.name != name) continue;
      if (map.layer != layer && layer >= 0) x = kMargin, top = bottom + kGap;
      layer = map.layer;
      const Place place = place_of(map);
      draw_map(canvas, facts, map, x, top);
      x += panel_width(place) + kGap;
      bottom = std::max(bottom, top + kTitle + kStrip + place.height);
      size.width = std::max(size.width, x);
    }
    size.height = bottom + kGap;
  }
  return size;
}

Size draw_picture(Canvas& canvas, const AttentionPicture& picture) {
  Size size{360, kMargin};
  if (picture.attention != nullptr) {
    const Size maps = draw_maps(canvas, *picture.attention, size.height);
    size = {std::max(size.width, maps.width), maps.height};
  }
  if (picture.image != nullptr) {
    const Canvas::Point end = draw_image_attention(canvas, *picture.image, kMargin, size.height);
    size = {std::max(size.width, end.x), end.y};
  }
  if (picture.scalars != nullptr && !picture.scalars->empty()) {
    size.height = draw_gauges(canvas, *picture.scalars, picture.columns, size.height);
    size.width = std::max(size.width, 2 * kMargin + static_cast<double>(picture.columns) * kChartWidth);
  }
  return size;
}

}  // namespace

std::string svg_of(const AttentionPicture& picture) {
  Canvas canvas;
  const Size size = draw_picture(canvas, picture);
  return canvas.svg(size.width, size.height);
}

std::string scalars_svg(const std::vector<ScalarPoint>& points, size_t columns) {
  return points.empty() ? std::string() : svg_of({nullptr, nullptr, &points, columns});
}

}  // namespace mnemo::inspect
