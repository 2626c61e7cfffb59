#include "inspect/draw/span_picture.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>

namespace mnemo::inspect {

namespace {

/// Whether row i may attend to key j, by the table's rules alone.
bool allowed(const core::AttendTable& table, int64_t i, int64_t j) {
  const std::vector<core::Span> keys = table.keys();
  const int64_t distance = i + table.num_context() - j;
  size_t q = 0, k = 0;
  while (i >= table.rows()[q].length) i -= table.rows()[q++].length;
  while (j >= keys[k].length) j -= keys[k++].length;
  const core::Rule& rule = table.rule(q, k);
  switch (rule.kind) {
    case core::Rule::Kind::none:
      return false;
    case core::Rule::Kind::all:
      return true;
    case core::Rule::Kind::causal:
      return distance >= 0;
    case core::Rule::Kind::band:
      return distance >= 0 && distance < rule.width;
    case core::Rule::Kind::pattern:
      return rule.matrix[i][j].item<bool>();
  }
  return false;
}

}  // namespace

std::string svg_of(const core::AttendTable& table) {
  // A larger table is drawn by every step-th row and key.
  constexpr int64_t kMaxCells = 1024;
  const std::vector<core::Span> all = table.keys();
  const int64_t step = (std::max(table.num_rows(), table.num_keys()) + kMaxCells - 1) / kMaxCells;
  const int64_t cells = std::max(table.num_rows(), table.num_keys());
  const double cell = std::clamp(480.0 / static_cast<double>(std::max<int64_t>(cells, 1)),
                                 1.0 / static_cast<double>(step), 14.0);
  const double left = 70, top = 58;
  const double width = left + cell * static_cast<double>(table.num_keys()) + 46;  // the last label leans over the edge
  const double height = top + cell * static_cast<double>(table.num_rows()) + 10;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"spans\" viewBox=\"0 0 {0:.1f} {1:.1f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"10\">\n<style>.spans text {{ fill: #1d2733 }} "
      "@media (prefers-color-scheme: dark) {{ .spans text {{ fill: #dce3ea }} }}</style>\n",
      width, height);
  auto colour = [](core::SpanKind kind) {
    switch (kind) {
      case core::SpanKind::cache:
        return "#7a5195";
      case core::SpanKind::read:
        return "#2f8f5b";
      case core::SpanKind::tokens:
        return "#2f6fb3";
      case core::SpanKind::write:
        return "#d1662a";
      case core::SpanKind::class_token:
        return "#b8860b";
      case core::SpanKind::memory:
        return "#cc79a7";
    }
    return "#000";
  };
  double x = left, next_label = left;  // short spans have their labels side by side
  for (const core::Span& span : all) {
    const double w = cell * static_cast<double>(span.length);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"5\" fill=\"{}\"/>", x, top - 7, w,
                       colour(span.kind));
    if (span.length > 0) {
      const double at = std::max(x + 8, next_label);
      svg += fmt::format("<text x=\"{0:.1f}\" y=\"{1:.1f}\" transform=\"rotate(-40 {0:.1f} {1:.1f})\">{2}</text>\n", at,
                         top - 10, core::label(span));
      next_label = at + 17;
    }
    x += w;
  }
  double y = top;
  for (const core::Span& span : table.rows()) {
    const double h = cell * static_cast<double>(span.length);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"5\" height=\"{:.1f}\" fill=\"{}\"/>", left - 7, y, h,
                       colour(span.kind));
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 10, y + h / 2 + 4,
                       core::label(span));
    y += h;
  }
  // Adjacent cells of a row are merged into one rectangle, which keeps the picture of a [T,T] mask small.
  int64_t query = 0;
  for (const core::Span& span : table.rows()) {
    for (int64_t i = 0; i < span.length; ++i, ++query) {
      if (query % step != 0) continue;
      for (int64_t j = 0; j < table.num_keys();) {
        const bool sees = allowed(table, query, j);
        int64_t end = j;
        while (end < table.num_keys() && allowed(table, query, end) == sees) end += step;
        end = std::min(end, table.num_keys());
        if (sees) {
          svg += fmt::format(
              "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
              "opacity=\"0.75\"/>",
              left + cell * static_cast<double>(j), top + cell * static_cast<double>(query),
              cell * static_cast<double>(end - j), std::max(cell * static_cast<double>(step) - 0.6, 0.8),
              colour(span.kind));
        }
        j = end;
      }
      svg += '\n';
    }
  }
  return svg + "</svg>\n";
}

}  // namespace mnemo::inspect
