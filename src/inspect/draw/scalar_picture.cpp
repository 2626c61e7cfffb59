#include "inspect/draw/scalar_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace mnemo::inspect {
namespace {

constexpr double kChartWidth = 480, kChartHeight = 150;
constexpr Colour kAxisGrey{0x5b, 0x68, 0x78};
// Okabe and Ito's colours.
constexpr std::array<Colour, 8> kLines = {Colour{0x00, 0x72, 0xb2}, Colour{0xd5, 0x5e, 0x00}, Colour{0x00, 0x9e, 0x73},
                                          Colour{0xcc, 0x79, 0xa7}, Colour{0xb8, 0x86, 0x0b}, Colour{0x56, 0xb4, 0xe9},
                                          Colour{0x7b, 0x4f, 0xb5}, Colour{0x8c, 0x56, 0x4b}};

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
    canvas.text(x - 4, row + 3, fmt::format("{:.3f}", value), 8, Anchor::right, kAxisGrey);
  }
  canvas.text(x, y + height + 12, fmt::format("step {}", points.front().step), 8, Anchor::left, kAxisGrey);
  canvas.text(x + width, y + height + 12, fmt::format("{}", points.back().step), 8, Anchor::right, kAxisGrey);
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
    canvas.text(x + width + 19, y + 12 * static_cast<double>(head) + 7,
                has_heads(first) ? fmt::format("head {}", head) : first.name, 8, Anchor::left, kAxisGrey);
  }
}

}  // namespace

Canvas::Point draw_scalars(Canvas& canvas, const std::vector<ScalarPoint>& points, size_t columns, double left,
                           double top) {
  const size_t count = points.front().scalars.size();
  for (size_t scalar = 0; scalar < count; ++scalar) {
    draw_chart(canvas, points, scalar, left + static_cast<double>(scalar % columns) * kChartWidth,
               top + static_cast<double>(scalar / columns) * (kChartHeight + 50));
  }
  return {left + static_cast<double>(columns) * kChartWidth,
          top + static_cast<double>((count + columns - 1) / columns) * (kChartHeight + 50)};
}

}  // namespace mnemo::inspect
