#include <fmt/format.h>

#include <algorithm>

#include "base/output.h"
#include "study/summary.h"

namespace mnemo::study {
namespace {

/// The paper's value for a variant at a point, in the study's own metric.
std::string paper_at(const StudyGrid& study, size_t point, const std::string& variant) {
  for (const PaperPoint& value : study.paper) {
    if (value.variant != variant || !value.metric.empty()) continue;
    bool here = true;
    for (size_t a = 0; a < study.axes.size(); ++a)
      here = here && value.labels[a] == study.axes[a].labels[study.at[point][a]];
    if (!here) continue;
    const metrics::Spread spread{
        .count = value.deviation ? 2 : 1, .mean = value.value, .deviation = value.deviation.value_or(0)};
    return value_text(study.metric(), spread);
  }
  return {};
}

bool any_variant(const StudyGrid& study, bool (*is_so)(const VariantSummary&)) {
  return std::any_of(study.points.begin(), study.points.end(), [&](const StudySummary& point) {
    return std::any_of(point.variants.begin(), point.variants.end(), is_so);
  });
}

bool is_tested(const VariantSummary& variant) { return variant.corrected_p.has_value(); }
bool is_one_seed(const VariantSummary& variant) { return variant.verdict == Verdict::one_seed; }

}  // namespace

std::optional<double> StudyGrid::chance() const {
  const bool all = std::ranges::all_of(points,
                                       [&](const auto& point) { return point.metric.chance == metric().chance; });
  return all ? metric().chance : std::nullopt;
}

GridCells grid_cells(const StudyGrid& study) {
  GridCells cells;
  for (size_t a = 0; a < study.axes.size(); ++a) {
    if (study.axes[a].labels.size() > 1) cells.header.push_back(a == study.x ? study.x_label : study.axes[a].name);
  }
  cells.num_axes = cells.header.size();
  cells.header.insert(cells.header.end(), study.variants.begin(), study.variants.end());
  for (size_t p = 0; p < study.points.size(); ++p) {
    std::vector<std::string> labels;
    for (size_t a = 0; a < study.axes.size(); ++a) {
      if (study.axes[a].labels.size() > 1) labels.push_back(study.axes[a].labels[study.at[p][a]]);
    }
    const StudySummary& point = study.points[p];
    const std::vector<bool> best = study_cells(point).best;
    std::vector<GridCell> row(study.variants.size());
    for (size_t i = 0; i < point.variants.size(); ++i) {
      const VariantSummary& variant = point.variants[i];
      row[variant.index] = {
          variant.failed() ? "failed" : value_text(point.metric, variant.value), best[i], variant.verdict, {}};
    }
    for (size_t v = 0; v < row.size(); ++v) row[v].paper = paper_at(study, p, study.variants[v]);
    cells.labels.push_back(std::move(labels));
    cells.rows.push_back(std::move(row));
  }
  return cells;
}

base::TextTable grid_table(const StudyGrid& study, bool markdown) {
  const GridCells cells = grid_cells(study);
  base::TextTable table(cells.header,
                        std::vector<base::TextTable::Align>(cells.header.size(), base::TextTable::Align::right));
  for (size_t row = 0; row < cells.rows.size(); ++row) {
    std::vector<std::string> texts = cells.labels[row];
    for (const GridCell& cell : cells.rows[row]) {
      std::string text = markdown && cell.best ? "**" + cell.text + "**" : cell.text;
      if (const std::string_view sign = verdict_sign(cell.verdict); !sign.empty()) text += fmt::format(" {}", sign);
      if (!cell.paper.empty()) text += fmt::format(" [{}]", cell.paper);
      texts.push_back(std::move(text));
    }
    table.add_row(std::move(texts));
  }
  return table;
}

std::string grid_legend(const StudyGrid& study) {
  if (study.variants.size() < 2) return {};
  std::string text;
  if (any_variant(study, is_tested)) {
    text = fmt::format(
        "▲ better, ▼ worse than {}: Welch's t-test over the seeds, p < {:g} after Holm's correction for the variants "
        "of a row; = no difference (its 95 % interval is within {}), ? undecided.",
        study.variants.front(), kSignificant, margin_text(study.points.front()));
  } else if (any_variant(study, is_one_seed)) {
    text = "One seed says neither better nor worse (--seeds 3 trains three).";
  } else {
    text = "Nothing could be compared.";
  }
  const bool has_paper = std::any_of(study.paper.begin(), study.paper.end(),
                                     [](const PaperPoint& value) { return value.metric.empty(); });
  if (has_paper) text += " In brackets: values of the paper.";
  if (const auto chance = study.chance())
    text += fmt::format(" Guessing gives {}.", value_text(study.metric(), {.count = 1, .mean = *chance}));
  return text;
}

std::string study_text(const StudyGrid& study) {
  const size_t width = base::output_columns();
  if (study.swept())
    return fmt::format("{}\n\n{}\n{}\n", study.name, grid_table(study).text(width), grid_legend(study));
  const StudySummary& only = study.points.front();
  return fmt::format("{}\n\n{}\n{}\n", study.name, study_table(only).text(width), only.conclusion());
}

}  // namespace mnemo::study
