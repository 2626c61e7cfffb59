#include "study/report/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/html.h"
#include "base/json_value.h"
#include "inspect/draw/attention_picture.h"
#include "page/document.h"

namespace mnemo::study::report {
namespace {

using base::html_escape;

// Okabe and Ito's colours, which most colour-blind people can tell apart; grey for the baseline.
constexpr std::array<std::string_view, 9> kColours = {"#6b7480", "#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                      "#b8860b", "#56b4e9", "#7b4fb5", "#8c564b"};

std::string cell(std::string_view text, bool left = false) {
  return fmt::format("<td{}>{}</td>", left ? " class=\"left\"" : "", html_escape(text));
}

}  // namespace

std::string_view verdict_class(Verdict verdict) {
  switch (verdict) {
    case Verdict::better:
      return "better";
    case Verdict::worse:
      return "worse";
    case Verdict::failed:
      return "failed";
    default:
      return "none";
  }
}

std::string_view colour(size_t index) {
  return index == 0 ? kColours[0] : kColours[1 + (index - 1) % (kColours.size() - 1)];
}

double tick_step(double length) {
  const double raw = length / 5, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const auto& [most, step] : {std::pair(1.5, 1), std::pair(3.5, 2), std::pair(7.5, 5)}) {
    if (raw / power < most) return power * step;
  }
  return power * 10;
}

std::string tick_label(const StudyMetric& metric, double tick, double step) {
  const double scale = metric.percent ? 100 : 1;
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step * scale) - 1e-6)));
  const double shown = std::abs(tick) < 1e-6 * step ? 0 : tick * scale;
  return fmt::format("{:.{}f}{}", shown, digits, metric.percent ? " %" : "");
}

std::string table(const StudySummary& study) {
  const StudyCells plain = study_cells(study);
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (size_t i = 0; i < plain.titles.size(); ++i) {
    html += fmt::format("<th{}>{}</th>", i == 0 || i == 3 ? " class=\"left\"" : "", html_escape(plain.titles[i]));
  }
  html += "</tr></thead><tbody>\n";
  for (size_t row = 0; row < plain.rows.size(); ++row) {
    const std::vector<std::string>& cells = plain.rows[row];
    const Verdict verdict = study.variants[row].verdict;
    html += fmt::format("<tr><td class=\"left name\"><span class=\"key\" style=\"background:{}\"></span>{}</td>",
                        colour(study.variants[row].index), html_escape(cells[0]));
    html += plain.best[row] ? fmt::format("<td><b>{}</b></td>", html_escape(cells[1])) : cell(cells[1]);
    html += cell(cells[2]);
    html += fmt::format("<td class=\"left\"><span class=\"verdict {}\">{}</span></td>", verdict_class(verdict),
                        html_escape(cells[3]));
    for (size_t i = 4; i < cells.size(); ++i) html += cell(cells[i]);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

namespace {

/// Dots in a window of some width. A narrow one has the names above their rows.
std::string draw_dots(const StudySummary& study, bool narrow) {
  double low = INFINITY, high = -INFINITY;
  for (const VariantSummary& variant : study.variants) {
    if (variant.failed()) continue;
    low = std::min(low, variant.value.min);
    high = std::max(high, variant.value.max);
  }
  if (!(low <= high)) return {};
  if (study.metric.chance) low = std::min(low, *study.metric.chance);
  // Wide enough that a negligible difference does not look large.
  const double least = study.metric.percent ? 0.05 : 0.02;
  const double margin = std::max((high - low) * 0.06, (least - (high - low)) / 2);
  low -= margin;
  high += margin;

  constexpr double kTop = 8;
  const double width = narrow ? 360 : 760, row = narrow ? 42 : 24, right = narrow ? 62 : 90;
  size_t longest = 0;
  for (const VariantSummary& variant : study.variants) longest = std::max(longest, base::text_width(variant.name));
  const double left = narrow ? 14 : std::clamp(30 + 7.4 * static_cast<double>(longest), 120.0, 330.0);
  const double bottom = kTop + row * static_cast<double>(study.variants.size());
  auto x = [&](double value) { return left + (value - low) / (high - low) * (width - left - right); };
  auto label = [&](double value) { return value_text(study.metric, {.count = 1, .mean = value}); };
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
      "class=\"dots {3} ink\" font-size=\"13\">\n<title>{2} of each variant</title>\n",
      width, bottom + 26, html_escape(study.metric.name), narrow ? "narrow" : "wide");
  const double step = tick_step(high - low);
  for (double tick = std::ceil(low / step) * step; tick <= high; tick += step) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\" class=\"grid\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:.0f}\" text-anchor=\"middle\" class=\"soft\" font-size=\"12\">{4}</text>\n",
        x(tick), kTop, bottom, bottom + 18, tick_label(study.metric, tick, step));
  }
  if (study.metric.chance) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\" class=\"chance\" stroke-dasharray=\"2 3\">"
        "<title>guessing</title></line>\n",
        x(*study.metric.chance), kTop, bottom);
  }
  if (!study.variants.front().failed()) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\" stroke=\"{3}\" stroke-dasharray=\"5 4\"/>\n",
        x(study.variants.front().value.mean), kTop, bottom, colour(0));
  }
  for (size_t i = 0; i < study.variants.size(); ++i) {
    const VariantSummary& variant = study.variants[i];
    const double y = kTop + row * (static_cast<double>(i) + (narrow ? 0.72 : 0.5));
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", narrow ? 0 : left - 14,
                       narrow ? y - 12 : y + 4.5, narrow ? "start" : "end", html_escape(variant.name));
    if (variant.failed()) {
      svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" class=\"bad\">failed</text>\n", left, y + 4.5);
      continue;
    }
    svg += fmt::format(
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"3\" "
        "opacity=\"0.45\"/>",
        x(variant.value.min), x(variant.value.max), y, y, colour(variant.index));
    for (const RunResult& run : variant.runs) {
      if (!run.value || !run.error.empty() || !std::isfinite(*run.value)) continue;
      svg += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" fill=\"{}\"><title>seed {}: {}</title></circle>",
          x(*run.value), y, colour(variant.index), run.seed, label(*run.value));
    }
    // Edged with the colour of the page, which keeps it readable across a line.
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"soft edged\" stroke-width=\"5\" paint-order=\"stroke\" "
        "font-size=\"12\">{}</text>\n",
        x(variant.value.max) + 10, y + 4.5, label(variant.value.mean));
  }
  return svg + "</svg>\n";
}

}  // namespace

std::string dots(const StudySummary& study) { return draw_dots(study, false) + draw_dots(study, true); }

std::string card(const StudySummary& study, const VariantSummary& variant) {
  const RunResult& run = variant.shown();
  std::string html = fmt::format(
      "<section class=\"card\"><h4><span class=\"key\" style=\"background:{}\"></span>{}</h4>\n", colour(variant.index),
      html_escape(variant.name));
  if (!variant.about.empty()) html += fmt::format("<div class=\"about\">{}</div>\n", html_escape(variant.about));
  for (const RunResult& other : variant.runs) {
    if (!other.error.empty())
      html += fmt::format("<div class=\"error\">Seed {}: {}</div>\n", other.seed, html_escape(other.error));
  }
  if (!run.cache_share.empty())
    html += "<h5>σ(λ): fraction of each head's output that comes from the cache</h5>\n" +
            page::figure(inspect::svg_of(run.cache_share), "", variant.name + " sigma lambda") +
            inspect::to_html({inspect::scalars_at(run.steps, run.cache_share)});
  if (run.cache_share_curve.size() > 1) {
    std::vector<inspect::ScalarPoint> points;
    for (const CacheSharePoint& point : run.cache_share_curve)
      points.push_back(inspect::scalars_at(point.step, point.layers));
    html += "<h5>σ(λ) over training</h5>\n" +
            page::figure(page::picture(inspect::scalars_svg(points, 1), "sigma(lambda) over training"), "",
                         variant.name + " sigma lambda over training") +
            inspect::to_html(points);
  }
  if (!variant.options.empty()) {
    html += fmt::format("<details><summary>memory options</summary><pre>{}</pre></details>\n",
                        html_escape(variant.options));
  }
  if (study.metric.generates && !(run.prompt + run.sample).empty()) {
    html += fmt::format("<h5>Sample</h5><pre data-copy><span class=\"prompt\">{}</span>{}</pre>\n",
                        html_escape(run.prompt), html_escape(run.sample));
  }
  if (!run.page.empty())
    html += fmt::format("<p class=\"note\"><a href=\"{}\">The training</a></p>\n", html_escape(run.page));
  return html + "</section>\n";
}

std::string masks(const StudySummary& study) {
  struct Drawn {
    const MaskPicture* mask;
    std::vector<std::string> owners;
  };
  std::vector<Drawn> drawn;
  for (const VariantSummary& variant : study.variants) {
    const std::vector<MaskPicture>& all = variant.shown().masks;
    for (const MaskPicture& mask : all) {
      const std::string owner = all.size() == 1 ? variant.name
                                                : fmt::format("{} ({} {})", variant.name,
                                                              mask.layers.size() == 1 ? "layer" : "layers",
                                                              fmt::join(mask.layers, ", "));
      const auto found = std::find_if(drawn.begin(), drawn.end(),
                                      [&](const Drawn& other) { return other.mask->svg == mask.svg; });
      if (found == drawn.end())
        drawn.push_back({&mask, {owner}});
      else
        found->owners.push_back(owner);
    }
  }
  std::string html;
  for (const Drawn& of : drawn) {
    const std::string owners = fmt::format("{}", fmt::join(of.owners, "; "));
    html += "<section class=\"card\">" +
            page::figure(page::picture(of.mask->svg, "attention mask of " + owners), owners,
                         "mask of " + of.owners.front()) +
            fmt::format("<details><summary>as text</summary><pre>{}</pre></details></section>\n",
                        html_escape(of.mask->text));
  }
  return html.empty() ? html : "<div class=\"cards\">\n" + html + "</div>\n";
}

base::Node curves(const StudySummary& study, const std::string& id) {
  auto optional = [](const std::optional<double>& value) { return value ? base::json_number(*value) : base::Node(); };
  base::Node series = base::Node::array();
  for (size_t i = 0; i < study.variants.size(); ++i) {
    base::Node points = base::Node::array();
    for (const CurvePoint& point : study.variants[i].shown().curve) {
      points.push_back(base::Node::table({{"step", point.step},
                                          {"tokens", point.tokens},
                                          {"seconds", base::json_number(point.seconds)},
                                          {"train", optional(point.train)},
                                          {"held_out", optional(point.held_out)}}));
    }
    // The title names the seed of the first.
    const int64_t seed = study.variants[i].shown().seed;
    const bool other = seed != study.variants.front().shown().seed;
    series.push_back(
        base::Node::table({{"name", study.variants[i].name + (other ? fmt::format(", seed {}", seed) : "")},
                           {"colour", colour(study.variants[i].index)},
                           {"points", std::move(points)}}));
  }
  const auto choice = [](std::string key, std::string label) {
    return base::Node::table({{"key", std::move(key)}, {"label", std::move(label)}});
  };
  base::Node held_out = choice("held_out", "held-out " + study.metric.name);
  if (study.metric.percent) {
    held_out.set("scale", 100);
    held_out.set("unit", " %");
  }
  held_out.set("digits", study.metric.percent ? 1 : 3);
  base::Node y = base::Node::array(), x = base::Node::array();
  y.push_back(std::move(held_out));
  y.push_back(choice("train", "training loss, " + study.metric.loss_name));
  x.push_back(choice("tokens", "training " + study.metric.counted));
  x.push_back(choice("step", "steps"));
  x.push_back(choice("seconds", "seconds of training"));
  return base::Node::table({{"id", id},
                            {"title", study.name + (study.point.empty() ? "" : ", " + study.point)},
                            {"y", std::move(y)},
                            {"x", std::move(x)},
                            {"series", std::move(series)}});
}

}  // namespace mnemo::study::report
