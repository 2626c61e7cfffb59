#include "study/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/html.h"
#include "base/node.h"
#include "base/progress.h"
#include "page/embedded.h"
#include "study/report/figure.h"
#include "study/report/parts.h"

namespace mnemo::study::report {
namespace {

using base::html_escape;

std::string machine_word(const Comparison& comparison, const char* key) {
  const base::Node* value = comparison.machine.find(key);
  if (value == nullptr) return "unknown";
  return value->is_string() ? value->as_string() : std::to_string(value->as_int());
}

std::string facts(const Comparison& comparison) {
  auto fact = [](std::string_view name, std::string_view value) {
    return fmt::format("<dt>{}</dt><dd>{}</dd>\n", html_escape(name), html_escape(value));
  };
  const base::Node* memory = comparison.machine.find("memory");
  std::string html = "<h2>How this was made</h2>\n<dl class=\"facts\">\n";
  html += fact("command", comparison.command);
  html += fact("date", comparison.date);
  html += fact("trainings", comparison.trainings);
  html += fact("processes",
               fmt::format("{} at a time, {} each", comparison.jobs,
                           comparison.threads == 1 ? "one thread" : fmt::format("{} threads", comparison.threads)));
  html += fact("time in training", base::duration_text(comparison.seconds));
  html += fact("processor", fmt::format("{}, {} cores used ({})", machine_word(comparison, "cpu"),
                                        machine_word(comparison, "cores"), machine_word(comparison, "features")));
  if (memory != nullptr) html += fact("memory", fmt::format("{:.1f} GB", memory->as_double() / 1e9));
  html += fact("system", machine_word(comparison, "system"));
  html += fact("versions", fmt::format("Mnemo {}, LibTorch {} for {}", machine_word(comparison, "mnemo"),
                                       machine_word(comparison, "libtorch"), machine_word(comparison, "capability")));
  html += "</dl>\n";
  html += fmt::format("<details><summary>the recipe</summary><pre>{}</pre></details>\n",
                      html_escape(comparison.recipe));
  return html;
}

std::string legend(const StudySummary& study) {
  std::string metric = study.metric.name;
  metric[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(metric[0])));
  const size_t seeds = study.variants.empty() ? 0 : study.variants.front().runs.size();
  std::string text = seeds > 1
                         ? fmt::format(
                               "{}: mean ± standard deviation over {} seeds; “helps” means that Welch's t-test "
                               "against {} gives p < {:g} "
                               "after Holm's correction for all variants of the table; the best in bold. ",
                               metric, seeds, study.variants.front().name, kSignificant)
                         : fmt::format("{}: better or worse means different from {} {}. ", metric,
                                       study.variants.empty() ? "" : study.variants.front().name, one_seed_rule(study));
  text += "State: bytes that one sequence carries between segments once its memory is full. ";
  if (study.metric.generates) {
    text += "Generation: one token at a time, starting at the position given. ";
  }
  text += "Peak memory: of the training process, including LibTorch.";
  return fmt::format("<p class=\"note\">{}</p>\n", html_escape(text));
}

/// The table of one point, with its seeds and curves.
std::string point_section(const StudySummary& study, const std::string& id) {
  std::string html = fmt::format("<div class=\"conclusion\">{}</div>\n", html_escape(study.conclusion()));
  html += report::table(study) + legend(study);
  html += "<h3>Every seed</h3>\n<div class=\"scroll\">" + report::dots(study) + "</div>\n";
  html += fmt::format("<h3>Training curves{}</h3>\n<div id=\"{}\"><noscript>Curves need JavaScript.</noscript></div>\n",
                      study.variants.empty() || study.variants.front().runs.size() < 2
                          ? std::string()
                          : fmt::format(" of seed {}", study.variants.front().shown().seed),
                      id);
  return html;
}

std::string models_section(const StudySummary& study) {
  std::string html = fmt::format("<h3>The models{}</h3>\n",
                                 study.point.empty() ? "" : " at " + html_escape(study.point));
  if (std::any_of(study.variants.begin(), study.variants.end(),
                  [](const VariantSummary& variant) { return !variant.shown().span_svg.empty(); })) {
    html +=
        "<p class=\"note\">Each row is a query and each column a key; a coloured cell means that the query may attend "
        "to the key. The picture shows one segment once all memories are full.</p>\n";
  }
  html += "<div class=\"cards\">\n";
  for (const VariantSummary& variant : study.variants) html += report::card(study, variant);
  return html + "</div>\n";
}

std::string section(const StudyGrid& study, size_t number, base::Node& curves) {
  std::string html = fmt::format("<h2>{}</h2>\n", html_escape(study.name));
  if (!study.about.empty()) html += fmt::format("<p class=\"lead\">{}</p>\n", html_escape(study.about));
  if (study.swept()) {
    html += report::figure(study) + report::grid(study);
    html += fmt::format(
        "<p class=\"note\">Mean ± standard deviation over the seeds; the best of a row in bold. {}</p>\n",
        html_escape(grid_legend(study)));
  }
  html += report::paper(study);
  for (size_t p = 0; p < study.points.size(); ++p) {
    const std::string id = fmt::format("curves-{}-{}", number, p);
    if (study.swept())
      html += fmt::format("<details class=\"point\"><summary>{}</summary>\n", html_escape(study.points[p].point));
    html += point_section(study.points[p], id);
    if (study.swept()) html += "</details>\n";
    curves.push_back(report::curves(study.points[p], id));
  }
  return html + models_section(study.points.back());
}

}  // namespace

std::string report_html(const Comparison& comparison) {
  base::Node curves = base::Node::array();
  std::string body;
  for (size_t i = 0; i < comparison.studies.size(); ++i) {
    body += section(comparison.studies[i], i, curves);
  }
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n",
      html_escape(comparison.name));
  html += fmt::format("<style>\n{}\n{}\n</style>\n</head>\n<body>\n<main>\n", page::embedded_file("dygraph.css"),
                      page::embedded_file("report.css"));
  html += fmt::format("<h1>{}</h1>\n", html_escape(comparison.name));
  if (!comparison.about.empty()) html += fmt::format("<p class=\"lead\">{}</p>\n", html_escape(comparison.about));
  html += body + facts(comparison) + "</main>\n";
  html += fmt::format("<script type=\"application/json\" id=\"curves\">{}</script>\n",
                      base::script_escape(base::to_json(curves, -1)));
  html += fmt::format("<script>\n{}\n</script>\n<script>\n{}\n</script>\n</body>\n</html>\n",
                      page::embedded_file("dygraph.min.js"), page::embedded_file("report.js"));
  return html;
}

}  // namespace mnemo::study::report
