#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_value.h"
#include "base/progress.h"
#include "study/summary.h"

namespace mnemo::study {
namespace {

std::string first_error(const VariantSummary& variant) {
  for (const RunResult& run : variant.runs) {
    if (!run.error.empty()) return run.error;
  }
  return {};
}

base::Node optional_number(std::optional<double> value) { return value ? base::json_number(*value) : base::Node(); }

base::Node texts(const std::vector<std::string>& list) {
  base::Node node = base::Node::array();
  for (const std::string& text : list) node.push_back(text);
  return node;
}

base::Node variants_node(const StudySummary& study) {
  base::Node variants = base::Node::array();
  for (const VariantSummary& variant : study.variants) {
    base::Node runs = base::Node::array();
    for (const RunResult& run : variant.runs) runs.push_back(base::write_options(run));
    base::Node node = base::Node::table(
        {{"name", variant.name}, {"about", variant.about}, {"options", variant.options}});
    node.set("verdict", verdict_text(variant.verdict));
    node.set("value", variant.failed() ? base::Node() : base::json_number(variant.value.mean));
    node.set("deviation", base::json_number(variant.value.deviation));
    node.set("range", base::json_number(variant.value.range()));
    node.set("difference", optional_number(variant.difference));
    node.set("p", optional_number(variant.p));
    node.set("corrected_p", optional_number(variant.corrected_p));
    node.set("resolution", optional_number(variant.resolution));
    if (variant.seeds_needed) node.set("seeds_needed", *variant.seeds_needed);
    if (study.metric.chance) node.set("beats_chance", variant.beats_chance);
    node.set("runs", std::move(runs));
    variants.push_back(std::move(node));
  }
  return variants;
}

base::Node point_node(const StudyGrid& study, size_t p) {
  base::Node at = base::Node::table();
  for (size_t a = 0; a < study.axes.size(); ++a) {
    const AxisSummary& axis = study.axes[a];
    const size_t place = study.at[p][a];
    at.set(axis.name, axis.numbers.empty() ? base::Node(axis.labels[place]) : base::json_number(axis.numbers[place]));
  }
  base::Node node = base::Node::table({{"label", study.points[p].point}});
  node.set("point", std::move(at));
  node.set("chance", optional_number(study.points[p].metric.chance));
  node.set("conclusion", study.points[p].conclusion());
  node.set("variants", variants_node(study.points[p]));
  return node;
}

base::Node study_node(const StudyGrid& study) {
  const StudyMetric& metric = study.metric();
  base::Node node = base::Node::table({{"name", study.name},
                                       {"about", study.about},
                                       {"metric", metric.name},
                                       {"higher_is_better", metric.higher_is_better},
                                       {"chance", optional_number(study.chance())}});
  if (!study.swept()) {
    node.set("conclusion", study.points.front().conclusion());
    node.set("variants", variants_node(study.points.front()));
  } else {
    base::Node axes = base::Node::array(), points = base::Node::array();
    for (const AxisSummary& axis : study.axes)
      axes.push_back(base::Node::table({{"key", axis.name}, {"values", texts(axis.labels)}}));
    for (size_t p = 0; p < study.points.size(); ++p) points.push_back(point_node(study, p));
    node.set("axes", std::move(axes));
    node.set("points", std::move(points));
  }
  if (!study.paper.empty()) {
    base::Node paper = base::Node::array();
    for (const PaperPoint& value : study.paper) {
      paper.push_back(base::Node::table({{"variant", value.variant},
                                         {"point", texts(value.labels)},
                                         {"value", base::json_number(value.value)},
                                         {"deviation", optional_number(value.deviation)},
                                         {"metric", value.metric.empty() ? metric.name : value.metric},
                                         {"source", value.source}}));
    }
    node.set("paper", std::move(paper));
  }
  return node;
}

std::string study_markdown(const StudyGrid& study) {
  std::string text = fmt::format("## {}\n\n", study.name);
  if (!study.about.empty()) text += study.about + "\n\n";
  if (study.swept()) text += grid_table(study, true).markdown() + "\n" + grid_legend(study) + "\n\n";
  for (const StudySummary& point : study.points) {
    if (study.swept()) text += fmt::format("### {}\n\n", point.point);
    text += study_table(point, true).markdown() + "\n" + point.conclusion() + "\n\n";
    for (const VariantSummary& variant : point.variants) {
      if (const std::string error = first_error(variant); !error.empty())
        text += fmt::format("{}: {}\n\n", variant.name, error);
    }
  }
  return text;
}

}  // namespace

std::string to_markdown(const Comparison& comparison) {
  std::string text = fmt::format("# {}\n\n", comparison.name);
  if (!comparison.about.empty()) text += comparison.about + "\n\n";
  for (const StudyGrid& study : comparison.studies) text += study_markdown(study);
  const base::Node& machine = comparison.machine;
  auto word = [&](const char* key) {
    const base::Node* value = machine.find(key);
    return value != nullptr && value->is_string() ? value->as_string() : std::string("unknown");
  };
  text += fmt::format(
      "`{}`\n\n{}; {} at a time, {} each; {} of training in all. {} (LibTorch {} for {}), Mnemo {}. {}.\n",
      comparison.command, comparison.trainings, comparison.jobs,
      comparison.threads == 1 ? "one thread" : fmt::format("{} threads", comparison.threads),
      base::duration_text(comparison.seconds), word("cpu"), word("libtorch"), word("capability"), word("mnemo"),
      comparison.date);
  return text;
}

base::Node to_node(const Comparison& comparison) {
  base::Node studies = base::Node::array();
  for (const StudyGrid& study : comparison.studies) studies.push_back(study_node(study));
  return base::Node::table({{"name", comparison.name},
                            {"about", comparison.about},
                            {"command", comparison.command},
                            {"date", comparison.date},
                            {"trainings", comparison.trainings},
                            {"jobs", comparison.jobs},
                            {"threads", comparison.threads},
                            {"seconds", comparison.seconds},
                            {"machine", comparison.machine},
                            {"studies", std::move(studies)}});
}

}  // namespace mnemo::study
