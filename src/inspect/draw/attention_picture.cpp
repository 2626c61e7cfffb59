#include "inspect/draw/attention_picture.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "inspect/draw/canvas.h"
#include "inspect/draw/scalar_picture.h"

namespace mnemo::inspect {
namespace {

using core::MapAxis;
using core::SpanKind;

constexpr double kMargin = 16, kGap = 26, kTitle = 30, kStrip = 5;
constexpr double kMapSize = 240;  // longer side, unless cells would be too large
constexpr double kLargestCell = 12;
constexpr int64_t kMaxDots = 480;               // per side; larger maps show the largest weight of each block
constexpr double kWordStep = 6, kWordSize = 9;  // a word each kWordStep pixels at most
constexpr double kScaleWidth = 80, kScaleDot = 2;
constexpr Colour kGrey{0x5b, 0x68, 0x78}, kBorder{0xd1, 0x3c, 0x2b}, kFrame{0xb9, 0xc3, 0xce};

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

/// The words along one edge of a map: every n-th, where rows are too small for all.
struct EdgeWords {
  std::vector<std::string> words;  ///< of all rows; empty between those that are written
  double size = 0, room = 0;       ///< of the letters; for the longest word
};

EdgeWords words_along(const AttentionSummary& facts, const HeadMap& map, MapAxis axis, int64_t count, double unit) {
  const auto every = static_cast<size_t>(std::max(1.0, std::ceil(kWordStep / unit)));
  EdgeWords edge{labels_of(facts, map.layer, axis, count), std::min(kWordSize, unit * static_cast<double>(every))};
  for (size_t i = 0; i < edge.words.size(); ++i) {
    edge.words[i] = i % every == 0 ? short_word(edge.words[i]) : "";
    edge.room = std::max(edge.room, width_of(edge.words[i], edge.size) + 4);
  }
  return edge;
}

/// Position of a map in the picture.
struct Place {
  int64_t block = 1;  ///< weights per dot along each side
  double cell = 1;
  double width = 0, height = 0;
  double past = 0;          ///< room for the column of rows that are no longer keys
  EdgeWords rows, columns;  ///< to the left and below

  double unit() const { return cell / static_cast<double>(block); }
};

Place place_of(const AttentionSummary& facts, const HeadMap& map) {
  const int64_t rows = map.weights.size(0), columns = map.weights.size(1),
                longest = std::max<int64_t>(1, std::max(rows, columns));
  Place place;
  place.block = (longest + kMaxDots - 1) / kMaxDots;
  const double dots = static_cast<double>((longest + place.block - 1) / place.block);
  place.cell = std::clamp(std::floor(2 * kMapSize / dots) / 2, 0.5, kLargestCell);
  place.width = place.cell * static_cast<double>((columns + place.block - 1) / place.block);
  place.height = place.cell * static_cast<double>((rows + place.block - 1) / place.block);
  if (map.past.defined()) place.past = std::max(place.cell, 6.0) + 4;
  place.rows = words_along(facts, map, map.rows, rows, place.unit());
  place.columns = words_along(facts, map, map.columns, columns, place.unit());
  return place;
}

double panel_width(const Place& place) {
  return std::max(place.rows.room + place.past + place.width + kStrip + 3, 150.0);
}

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

/// The colours of the weights from 0 to the largest.
void draw_scale(Canvas& canvas, double left, double top, double largest) {
  const auto count = static_cast<int64_t>(kScaleWidth / kScaleDot);
  Raster colours{count, 3, {}};
  for (int64_t i = 0; i < 3 * count; ++i)
    colours.dots.push_back(shade(static_cast<double>(i % count), static_cast<double>(count - 1)));
  canvas.text(left, top + 7, "0", 8, Anchor::left, kGrey);
  canvas.cells(left + 8, top + 1, kScaleDot, colours, Cells::weights);
  canvas.text(left + kScaleWidth + 12, top + 7, fmt::format("{:.3g}", largest), 8, Anchor::left, kGrey);
}

/// Colours of the spans along the edges, and lines between them.
void draw_spans(Canvas& canvas, const AttentionSummary& facts, const HeadMap& map, const Place& place,
                Canvas::Point at_map) {
  const double x = at_map.x, y = at_map.y, unit = place.unit();
  const auto along = [&](MapAxis axis, int64_t count, bool vertical) {
    const std::vector<core::Span> spans = spans_of(facts.masks.at(map.layer), axis, count);
    double at = 0;
    for (const core::Span& span : spans) {
      const double length = unit * static_cast<double>(span.length);
      if (length == 0) continue;
      const Colour colour = axis == MapAxis::slots || axis == MapAxis::cache ? kGrey : colour_of(span);
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
  along(map.rows, map.weights.size(0), true);
  along(map.columns, map.weights.size(1), false);
}

void draw_map(Canvas& canvas, const AttentionSummary& facts, const HeadMap& map, const Place& place, double left,
              double top) {
  double largest = map.weights.numel() == 0 ? 0 : map.weights.max().item<double>();
  if (map.past.defined()) largest = std::max(largest, map.past.max().item<double>());
  canvas.text(left, top + 11, fmt::format("layer {} head {}", map.layer, map.head), 11);
  draw_scale(canvas, left, top + 15, largest);
  const double x = left + place.rows.room + place.past + kStrip + 2, y = top + kTitle + kStrip + 1;
  canvas.line({{x, y}, {x + place.width, y}, {x + place.width, y + place.height}, {x, y + place.height}, {x, y}},
              kFrame, 0.5);
  if (map.weights.numel() > 0)
    canvas.cells(x, y, place.cell, dots_of(map.weights, place.block, largest), Cells::weights);
  draw_spans(canvas, facts, map, place, {x, y});
  if (map.past.defined()) {
    const double column = x - kStrip - 2 - place.past;
    canvas.cells(column, y, place.cell, dots_of(map.past.unsqueeze(1), place.block, largest), Cells::weights);
    canvas.text(column, y - 2, "past", 7, Anchor::left, kGrey);
  }
  const auto middle = [&](size_t i) { return place.unit() * (static_cast<double>(i) + 0.5) + 3; };
  const auto write = [&](const EdgeWords& edge, size_t i, double across, double down, bool upwards) {
    if (!edge.words[i].empty()) canvas.text(across, down, edge.words[i], edge.size, Anchor::right, kGrey, upwards);
  };
  for (size_t i = 0; i < place.rows.words.size(); ++i)
    write(place.rows, i, left + place.rows.room - 3, y + middle(i), false);
  for (size_t i = 0; i < place.columns.words.size(); ++i)
    write(place.columns, i, x + middle(i), y + place.height + 3, true);
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

/// Returns the lower right corner.
Size draw_legend(Canvas& canvas, const AttentionSummary& facts, double x, double y) {
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
  return {x, y + 10};
}

Size draw_maps(Canvas& canvas, const AttentionSummary& facts, double y) {
  Size size = draw_legend(canvas, facts, kMargin, y + 12);
  std::vector<std::string> names;
  for (const HeadMap& map : facts.maps) {
    if (std::find(names.begin(), names.end(), map.name) == names.end()) names.push_back(map.name);
  }
  for (const std::string& name : names) {
    const std::string said = about(name) == nullptr ? name : about(name);
    canvas.text(kMargin, size.height + 20, said, 12);
    size.width = std::max(size.width, kMargin + width_of(said, 12));
    double x = kMargin, top = size.height + 30, bottom = top;
    int64_t layer = -1;
    for (const HeadMap& map : facts.maps) {
      if (map.name != name) continue;
      if (map.layer != layer && layer >= 0) x = kMargin, top = bottom + kGap;
      layer = map.layer;
      const Place place = place_of(facts, map);
      draw_map(canvas, facts, map, place, x, top);
      x += panel_width(place) + kGap;
      bottom = std::max(bottom, top + kTitle + kStrip + place.height + place.columns.room + 2);
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
    const Canvas::Point end = draw_scalars(canvas, *picture.scalars, picture.columns, kMargin, size.height);
    size = {std::max(size.width, kMargin + end.x), end.y};
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
