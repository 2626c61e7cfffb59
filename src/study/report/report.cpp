#include "study/report/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/html.h"
#include "base/node.h"
#include "base/progress.h"
#include "page/document.h"
#include "page/table.h"
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
  std::string html = "<h2>How this was made</h2>\n" + page::listing(comparison.command) + "<dl class=\"facts\">\n";
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
  return html + "<details><summary>the recipe</summary>" + page::listing(comparison.recipe) + "</details>\n";
}

std::string legend(const StudySummary& study) {
  const std::string metric = page::capitalised(study.metric.name);
  int64_t seeds = 0;
  for (const VariantSummary& variant : study.variants) seeds = std::max(seeds, variant.value.count);
  std::string text =
      seeds > 1 ? fmt::format(
                      "{}: mean ± standard deviation over {} seeds, or those that ended well; better or worse means "
                      "that Welch's t-test against "
                      "{} gives p < {:g} after Holm's correction for all variants of the table, no difference that the "
                      "95 % interval of the difference lies within {}, undecided that neither does; the best in bold. ",
                      metric, seeds, study.variants.front().name, kSignificant, margin_text(study))
                : fmt::format("{} of one seed, which says neither better nor worse. ", metric);
  text += "State: bytes that one sequence carries between segments once its memory is full. ";
  if (study.metric.generates) {
    text += "Generation: one token at a time, starting at the position given. ";
  }
  text += "Peak memory: of the training process, including LibTorch.";
  return fmt::format("<p class=\"note\">{}</p>\n", html_escape(text));
}

/// The numbers shown as dots of every seed.
std::string seed_numbers(const StudySummary& study) {
  page::Table table{{"variant", "seed", study.metric.name}, {}, 1};
  for (const VariantSummary& variant : study.variants) {
    for (const RunResult& run : variant.runs) {
      const bool failed = !run.value || !run.error.empty();
      table.rows.push_back(
          {variant.name, std::to_string(run.seed), failed ? "failed" : fmt::format("{:.6g}", *run.value)});
    }
  }
  return page::folded(table, "the numbers of every seed");
}

/// The table of one point, with its seeds and curves.
std::string point_section(const StudySummary& study, const std::string& id) {
  std::string html = fmt::format("<div class=\"conclusion\">{}</div>\n", html_escape(study.conclusion()));
  html += report::table(study) + legend(study);
  html += "<h3>Every seed</h3>\n" + page::figure(report::dots(study), "", study.name + " every seed") +
          seed_numbers(study);
  html += fmt::format("<h3>Training curves{}</h3>\n<div id=\"{}\"><noscript>Curves need JavaScript.</noscript></div>\n",
                      study.variants.empty() || study.variants.front().runs.size() < 2
                          ? std::string()
                          : fmt::format(" of seed {}", study.variants.front().shown().seed),
                      id);
  return html;
}

std::string models_section(const StudySummary& study) {
  const std::string at = study.point.empty() ? "" : " at " + html_escape(study.point);
  std::string html;
  if (const std::string masks = report::masks(study); !masks.empty()) {
    html += fmt::format(
        "<h3>Attention masks{}</h3>\n<p class=\"note\">Each row is a query and each column a key; a coloured cell "
        "means "
        "that the query may attend to the key. The picture shows one segment once all memories are full.</p>\n{}",
        at, masks);
  }
  html += fmt::format("<h3>The models{}</h3>\n<div class=\"cards\">\n", at);
  for (const VariantSummary& variant : study.variants) html += report::card(study, variant);
  return html + "</div>\n";
}

void add_section(const StudyGrid& study, size_t number, page::Document& page, base::Node& curves) {
  std::string html = fmt::format("<h2>{}</h2>\n", html_escape(study.name));
  if (!study.about.empty()) html += fmt::format("<p class=\"lead\">{}</p>\n", html_escape(study.about));
  if (study.swept()) {
    html += report::figure(study) + report::grid(study);
    html += fmt::format(
        "<p class=\"note\">Mean ± standard deviation over the seeds; the best of a row in bold. {}</p>\n",
        html_escape(grid_legend(study)));
  }
  if (const std::string plots = report::trade_offs(study); !plots.empty())
    html += "<details><summary>over context and cost</summary>\n" + plots + "</details>\n";
  html += report::paper(study);
  for (size_t p = 0; p < study.points.size(); ++p) {
    const std::string id = fmt::format("curves-{}-{}", number, p);
    if (study.swept())
      html += fmt::format("<details class=\"point\"><summary>{}</summary>\n", html_escape(study.points[p].point));
    html += point_section(study.points[p], id);
    if (study.swept()) html += "</details>\n";
    curves.push_back(report::curves(study.points[p], id));
  }
  page.add(html, "the tables of " + study.name);
  page.add(models_section(study.points.back()), "the models of " + study.name);
}

}  // namespace

std::string report_html(const Comparison& comparison) {
  page::Document page(comparison.name);
  if (!comparison.about.empty())
    page.add(fmt::format("<p class=\"lead\">{}</p>\n", html_escape(comparison.about)), "what it is for");
  base::Node curves = base::Node::array();
  for (size_t i = 0; i < comparison.studies.size(); ++i) add_section(comparison.studies[i], i, page, curves);
  page.add(facts(comparison), "how this was made");
  if (page.add_data("curves", curves, "the curves")) page.use("charts.js");
  return page.html();
}

}  // namespace mnemo::study::report
