#include "study/report/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/html.h"
#include "page/document.h"
#include "study/report/parts.h"

namespace mnemo::study::report {
namespace {

using base::html_escape;

constexpr double kPanelWidth = 560, kPanelHeight = 340, kPanelLeft = 66, kPanelRight = 16, kPanelTop = 14,
                 kPanelBottom = 50;

/// One point of a line.
struct Mark {
  double x = 0, value = 0, deviation = 0;
  std::string title;
};

struct Line {
  size_t variant = 0;
  bool paper = false;
  std::vector<Mark> marks;
};

/// One plot: the points that agree on every axis except the figure's x axis.
struct Panel {
  std::string title;
  std::vector<Line> lines;
};

/// Position of a swept value on the x axis: the number itself, or its index in the list if some value is not a number.
class Positions {
 public:
  explicit Positions(const StudyGrid& study) : study_(study) {
    if (study.axes.empty()) return;
    log_ = study.log_x && numeric() &&
           std::all_of(axis().numbers.begin(), axis().numbers.end(), [](double x) { return x > 0; });
  }
  bool numeric() const { return !axis().numbers.empty(); }
  double of(size_t place) const { return numeric() ? scaled(axis().numbers[place]) : static_cast<double>(place); }
  std::optional<double> of(const PaperPoint& value) const {
    if (numeric()) {
      const auto& number = value.numbers[study_.x];
      if (!number || (log_ && *number <= 0)) return std::nullopt;
      return scaled(*number);
    }
    const auto found = std::find(axis().labels.begin(), axis().labels.end(), value.labels[study_.x]);
    return found == axis().labels.end() ? std::nullopt
                                        : std::optional<double>(static_cast<double>(found - axis().labels.begin()));
  }

 private:
  const AxisSummary& axis() const { return study_.axes[study_.x]; }
  double scaled(double x) const { return log_ ? std::log2(x) : x; }

  const StudyGrid& study_;
  bool log_ = false;
};

std::string value_label(const StudyGrid& study, double value) {
  return value_text(study.metric(), {.count = 1, .mean = value});
}

std::string panel_title(const StudyGrid& study, const std::vector<std::string>& labels) {
  std::string title;
  for (size_t a = 0; a < study.axes.size(); ++a) {
    if (a == study.x || study.axes[a].labels.size() < 2) continue;
    title += fmt::format("{}{} {}", title.empty() ? "" : ", ", study.axes[a].name, labels[a]);
  }
  return title;
}

std::vector<Panel> panels_of(const StudyGrid& study, const Positions& positions) {
  std::vector<Panel> panels;
  const auto panel_of = [&](const std::vector<std::string>& labels) -> Panel& {
    const std::string title = panel_title(study, labels);
    const auto found = std::find_if(panels.begin(), panels.end(),
                                    [&](const Panel& panel) { return panel.title == title; });
    if (found != panels.end()) return *found;
    panels.push_back({title, {}});
    return panels.back();
  };
  const auto line_of = [](Panel& panel, size_t variant, bool paper) -> Line& {
    const auto found = std::find_if(panel.lines.begin(), panel.lines.end(),
                                    [&](const Line& line) { return line.variant == variant && line.paper == paper; });
    if (found != panel.lines.end()) return *found;
    panel.lines.push_back({variant, paper, {}});
    return panel.lines.back();
  };
  for (size_t p = 0; p < study.points.size(); ++p) {
    std::vector<std::string> labels;
    for (size_t a = 0; a < study.axes.size(); ++a) labels.push_back(study.axes[a].labels[study.at[p][a]]);
    for (const VariantSummary& variant : study.points[p].variants) {
      if (variant.failed()) continue;
      const std::string title = fmt::format("{}, {}: {}, {} {}", variant.name, study.points[p].point,
                                            value_text(study.metric(), variant.value), variant.value.count,
                                            variant.value.count == 1 ? "seed" : "seeds");
      line_of(panel_of(labels), variant.index, false)
          .marks.push_back({positions.of(study.at[p][study.x]), variant.value.mean, variant.value.deviation, title});
    }
  }
  const size_t own = panels.size();
  for (const PaperPoint& value : study.paper) {
    const std::optional<double> x = positions.of(value);
    if (!x || !value.metric.empty()) continue;
    const auto variant = std::find(study.variants.begin(), study.variants.end(), value.variant);
    Panel& panel = panel_of(value.labels);
    if (panels.size() > own) {  // we have no result to compare it with
      panels.pop_back();
      continue;
    }
    const std::string title = fmt::format("{}, the paper: {} ({})", value.variant, value_label(study, value.value),
                                          value.source);
    line_of(panel, static_cast<size_t>(variant - study.variants.begin()), true)
        .marks.push_back({*x, value.value, value.deviation.value_or(0), title});
  }
  for (Panel& panel : panels) {
    for (Line& line : panel.lines) {
      std::stable_sort(line.marks.begin(), line.marks.end(), [](const Mark& a, const Mark& b) { return a.x < b.x; });
    }
  }
  return panels;
}

/// The range of one axis and its ticks.
struct Scale {
  double low = 0, high = 1, step = 1;
};

Scale scale_of(const StudyGrid& study, const std::vector<Panel>& panels) {
  double low = INFINITY, high = -INFINITY;
  for (const Panel& panel : panels) {
    for (const Line& line : panel.lines) {
      for (const Mark& mark : line.marks) {
        low = std::min(low, mark.value - mark.deviation);
        high = std::max(high, mark.value + mark.deviation);
      }
    }
  }
  if (!(low <= high)) return {};
  if (study.metric().percent) return {0, std::max(1.03, high), high > 2 ? tick_step(high) : 0.2};
  const double margin = std::max({(high - low) * 0.08, 0.01 * std::max(std::abs(low), std::abs(high)), 1e-3});
  return {low - margin, high + margin, tick_step(high - low + 2 * margin)};
}

std::string draw_line(const Line& line, const std::function<double(double)>& x, const std::function<double(double)>& y,
                      double shift) {
  const std::string_view ink = colour(line.variant);
  std::string path, svg;
  for (const Mark& mark : line.marks) path += fmt::format("{:.1f},{:.1f} ", x(mark.x) + shift, y(mark.value));
  svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}/>\n", path, ink,
                     line.paper ? 1.4 : 2, line.paper ? " stroke-dasharray=\"5 4\" opacity=\"0.75\"" : "");
  for (const Mark& mark : line.marks) {
    const double at = x(mark.x) + shift;
    if (mark.deviation > 0) {
      const double top = y(mark.value + mark.deviation), bottom = y(mark.value - mark.deviation);
      svg += fmt::format(
          "<path d=\"M{0:.1f} {1:.1f}V{2:.1f}M{3:.1f} {1:.1f}H{4:.1f}M{3:.1f} {2:.1f}H{4:.1f}\" stroke=\"{5}\" "
          "stroke-width=\"1.3\" fill=\"none\"/>",
          at, top, bottom, at - 4, at + 4, ink);
    }
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"{} stroke=\"{}\" "
        "stroke-width=\"1.5\"><title>{}</title></circle>\n",
        at, y(mark.value), line.paper ? " class=\"hollow\"" : fmt::format(" fill=\"{}\"", ink), ink,
        html_escape(mark.title));
  }
  return svg;
}

/// The x axis: a label for each marked position, at least one, and its name.
struct Axis {
  std::map<double, std::string> ticks;
  std::string label;
};

/// A tick for every swept value, and for the paper's values.
Axis swept_axis(const StudyGrid& study, const Positions& positions) {
  Axis made{{}, study.x_label};
  const AxisSummary& axis = study.axes[study.x];
  for (size_t i = 0; i < axis.labels.size(); ++i) made.ticks[positions.of(i)] = axis.labels[i];
  for (const PaperPoint& value : study.paper) {
    if (const auto at = positions.of(value); at && value.metric.empty()) made.ticks.emplace(*at, value.labels[study.x]);
  }
  return made;
}

std::string draw(const StudyGrid& study, const Panel& panel, const Axis& axis, const Scale& scale) {
  const std::map<double, std::string>& ticks = axis.ticks;
  const double first = ticks.begin()->first, last = ticks.rbegin()->first;
  const double inner = kPanelWidth - kPanelLeft - kPanelRight, pad = 26;
  const auto x = [&](double value) {
    return last > first ? kPanelLeft + pad + (value - first) / (last - first) * (inner - 2 * pad)
                        : kPanelLeft + inner / 2;
  };
  const auto y = [&](double value) {
    const double share = std::clamp((value - scale.low) / (scale.high - scale.low), 0.0, 1.0);
    return kPanelHeight - kPanelBottom - share * (kPanelHeight - kPanelTop - kPanelBottom);
  };
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" font-size=\"12\" "
      "class=\"soft\">\n"
      "<title>{2} over {3}</title>\n",
      kPanelWidth, kPanelHeight, html_escape(study.metric().name), html_escape(axis.label));
  for (double tick = std::ceil(scale.low / scale.step - 1e-9) * scale.step; tick <= scale.high + 1e-9;
       tick += scale.step) {
    svg += fmt::format(
        "<path d=\"M{:.0f} {:.1f}H{:.0f}\" class=\"grid\"/><text x=\"{:.0f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>\n",
        kPanelLeft, y(tick), kPanelWidth - kPanelRight, kPanelLeft - 8, y(tick) + 4,
        tick_label(study.metric(), tick, scale.step));
  }
  double free_from = -INFINITY;
  for (const auto& [at, label] : ticks) {
    svg += fmt::format("<path d=\"M{0:.1f} {1:.0f}v5\" class=\"axis\"/>", x(at), kPanelHeight - kPanelBottom);
    const double half = 3.6 * static_cast<double>(label.size());
    if (x(at) - half < free_from) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n", x(at),
                       kPanelHeight - kPanelBottom + 18, html_escape(label));
    free_from = x(at) + half + 4;
  }
  svg += fmt::format(
      "<path d=\"M{0:.0f} {1:.0f}H{2:.0f}\" class=\"axis\"/><text x=\"{3:.0f}\" y=\"{4:.0f}\" "
      "text-anchor=\"middle\" font-size=\"13\">{5}</text>\n",
      kPanelLeft, kPanelHeight - kPanelBottom, kPanelWidth - kPanelRight, kPanelLeft + inner / 2, kPanelHeight - 10,
      html_escape(axis.label));
  svg += fmt::format(
      "<text transform=\"translate(14 {:.0f}) rotate(-90)\" text-anchor=\"middle\" font-size=\"13\">{}</text>\n",
      kPanelTop + (kPanelHeight - kPanelTop - kPanelBottom) / 2, html_escape(study.metric().name));
  if (const auto chance = study.chance()) {
    svg += fmt::format(
        "<path d=\"M{:.0f} {:.1f}H{:.0f}\" class=\"chance\" stroke-dasharray=\"2 "
        "3\"><title>guessing</title></path>\n",
        kPanelLeft, y(*chance), kPanelWidth - kPanelRight);
  }
  const auto variants = static_cast<double>(study.variants.size());
  for (const Line& line : panel.lines) {
    // Shifted slightly, so that bars at the same height can be told apart.
    svg += draw_line(line, x, y, 3.0 * (static_cast<double>(line.variant) - (variants - 1) / 2));
  }
  return svg + "</svg>\n";
}

std::string key_of(const StudyGrid& study) {
  std::string html = "<div class=\"legend\">";
  for (size_t v = 0; v < study.variants.size(); ++v) {
    html += fmt::format("<span><span class=\"key\" style=\"background:{}\"></span>{}</span>", colour(v),
                        html_escape(study.variants[v]));
  }
  return html;
}

/// The metric over a number of each variant, at every point; empty unless that number differs.
std::string plot_over(const StudyGrid& study, const std::string& label,
                      const std::function<std::optional<double>(const VariantSummary&)>& number) {
  Panel panel{"over " + label, {}};
  Axis axis{{}, label};
  for (size_t v = 0; v < study.variants.size(); ++v) {
    Line line{v, false, {}};
    for (const StudySummary& point : study.points) {
      for (const VariantSummary& variant : point.variants) {
        const std::optional<double> x = variant.index == v && !variant.failed() ? number(variant) : std::nullopt;
        if (!x) continue;
        axis.ticks[*x] = fmt::format("{:.4g}", *x);
        line.marks.push_back({*x, variant.value.mean, variant.value.deviation,
                              fmt::format("{}{}{}: {}, {:.4g} {}", variant.name, point.point.empty() ? "" : ", ",
                                          point.point, value_text(study.metric(), variant.value), *x, label)});
      }
    }
    std::stable_sort(line.marks.begin(), line.marks.end(), [](const Mark& a, const Mark& b) { return a.x < b.x; });
    if (!line.marks.empty()) panel.lines.push_back(std::move(line));
  }
  if (axis.ticks.size() < 2) return {};
  return page::figure(draw(study, panel, axis, scale_of(study, {panel})), panel.title, study.name + ", " + panel.title);
}

}  // namespace

std::string trade_offs(const StudyGrid& study) {
  const std::string& counted = study.metric().counted;
  std::string plots = plot_over(study, "visible context in training, tokens", [](const VariantSummary& variant) {
    const std::optional<int64_t> tokens = variant.shown().visible_context;
    return tokens ? std::optional<double>(static_cast<double>(*tokens)) : std::nullopt;
  });
  plots += plot_over(study, "MFLOPs a " + counted.substr(0, counted.size() - 1),
                     [](const VariantSummary& variant) { return variant.mean(&RunResult::mflops); });
  if (plots.empty()) return {};
  return key_of(study) + "</div>\n<div class=\"panels\">\n" + plots + "</div>\n";
}

std::string figure(const StudyGrid& study) {
  const Positions positions(study);
  const std::vector<Panel> panels = panels_of(study, positions);
  const Scale scale = scale_of(study, panels);
  const Axis axis = swept_axis(study, positions);
  std::string html = key_of(study);
  const bool has_paper = std::any_of(panels.begin(), panels.end(), [](const Panel& panel) {
    return std::any_of(panel.lines.begin(), panel.lines.end(), [](const Line& line) { return line.paper; });
  });
  if (has_paper) html += "<span>dashed and hollow: the paper's values</span>";
  html += "</div>\n<div class=\"panels\">\n";
  for (const Panel& panel : panels) {
    html += page::figure(draw(study, panel, axis, scale), panel.title,
                         study.name + (panel.title.empty() ? "" : ", " + panel.title));
  }
  return html + "</div>\n";
}

std::string grid(const StudyGrid& study) {
  const GridCells cells = grid_cells(study);
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (size_t i = 0; i < cells.header.size(); ++i)
    html += fmt::format("<th{}>{}</th>", i < cells.num_axes ? " class=\"left\"" : "", html_escape(cells.header[i]));
  html += "</tr></thead><tbody>\n";
  for (size_t row = 0; row < cells.rows.size(); ++row) {
    html += "<tr>";
    for (const std::string& label : cells.labels[row])
      html += fmt::format("<td class=\"left name\">{}</td>", html_escape(label));
    for (const GridCell& cell : cells.rows[row]) {
      const std::string text = html_escape(cell.text);
      html += fmt::format("<td>{}", cell.best ? "<b>" + text + "</b>" : text);
      if (const std::string_view sign = verdict_sign(cell.verdict); !sign.empty())
        html += fmt::format(" <span class=\"sign {}\">{}</span>", verdict_class(cell.verdict), sign);
      if (!cell.paper.empty()) html += fmt::format(" <span class=\"paper\">[{}]</span>", html_escape(cell.paper));
      html += "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string paper(const StudyGrid& study) {
  if (study.paper.empty()) return {};
  std::string html =
      "<details><summary>the paper's values</summary>\n<div class=\"scroll\"><table><thead><tr><th "
      "class=\"left\">variant</th>";
  for (const AxisSummary& axis : study.axes) html += fmt::format("<th>{}</th>", html_escape(axis.name));
  html += "<th>value</th><th class=\"left\">metric</th><th class=\"left\">source</th></tr></thead><tbody>\n";
  for (const PaperPoint& value : study.paper) {
    html += fmt::format("<tr><td class=\"left name\">{}</td>", html_escape(value.variant));
    for (const std::string& label : value.labels) html += fmt::format("<td>{}</td>", html_escape(label));
    const metrics::Spread spread{
        .count = value.deviation ? 2 : 1, .mean = value.value, .deviation = value.deviation.value_or(0)};
    const std::string number = value.metric.empty() ? value_text(study.metric(), spread)
                                                    : value_text({.percent = false}, spread);
    html += fmt::format("<td>{}</td><td class=\"left\">{}</td><td class=\"left\">{}</td></tr>\n", html_escape(number),
                        html_escape(value.metric.empty() ? study.metric().name : value.metric),
                        html_escape(value.source));
  }
  return html + "</tbody></table></div></details>\n";
}

}  // namespace mnemo::study::report
