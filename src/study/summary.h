#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/text_table.h"
#include "metrics/spread.h"
#include "study/results.h"

namespace mnemo::study {

/// What a study measures.
struct StudyMetric {
  std::string name = "bits per character";
  std::string short_name = "bits/char";          ///< for a terminal's table
  std::string loss_name = "bits per character";  ///< unit of the training loss
  std::string counted = "tokens";                ///< what a training is counted in
  bool higher_is_better = false;
  bool percent = false;               ///< shown as a percentage
  bool generates = true;              ///< the models write text, so generation speed is measured
  std::optional<double> chance = {};  ///< what guessing gives
};

/// Whether a memory helps, against the study's first variant.
enum class Verdict { baseline, better, no_gain, worse, failed };

/// Corrected p-values below this are taken for a difference.
inline constexpr double kSignificant = 0.05;

/// Several seeds: better or worse only where Welch's t-test against the baseline, corrected by Holm for all variants of
/// the table, says
/// so: p < kSignificant. One seed has no spread, so `least_gain` decides: smaller differences are none.
Verdict judge(double difference, std::optional<double> corrected_p, bool higher_is_better, double least_gain);
/// "yes", "no gain", "worse" …, for a table.
std::string verdict_text(Verdict verdict);

/// One variant over its seeds.
struct VariantSummary {
  std::string name = {}, about = {};
  size_t index = 0;                       ///< among all variants of the study
  std::string options = {};               ///< its memory as TOML
  metrics::Spread value = {};             ///< of the runs that did not fail
  std::optional<double> difference = {};  ///< to the first variant's mean
  std::optional<double> p = {};  ///< of Welch's two-sided t-test against the first variant; nothing for one seed
  std::optional<double> corrected_p = {};  ///< by Holm, over the variants of the table
  Verdict verdict = Verdict::failed;
  std::vector<RunResult> runs = {};  ///< by seed

  bool failed() const { return value.count == 0; }
  /// The first run that did not fail, or the first.
  const RunResult& shown() const;
  /// Mean over the runs that have the number; nothing if none has.
  std::optional<double> mean(std::optional<double> RunResult::*number) const;
  int64_t peak_memory() const;
};

/// One table: the variants of a study at one point of its sweep.
struct StudySummary {
  std::string name = {}, about = {};
  std::string point = {};  ///< "num_segments 9"; empty without a sweep
  StudyMetric metric = {};
  double least_gain = 0;
  std::vector<VariantSummary> variants = {};

  /// One sentence: which variants beat the first, which do not.
  std::string conclusion() const;
};

/// One direction of a sweep, as tables and figures show it.
struct AxisSummary {
  std::string name = {};
  std::vector<std::string> labels = {};
  std::vector<double> numbers = {};  ///< empty where some value is no number
};

/// A paper's number: its place on each axis as a label, and as a number where it is one.
struct PaperPoint {
  std::string variant = {};
  std::vector<std::string> labels = {};
  std::vector<std::optional<double>> numbers = {};
  double value = 0;
  std::optional<double> deviation = {};
  std::string metric = {}, source = {};
};

/// A study: one table a point.
struct StudyGrid {
  std::string name = {}, about = {};
  std::vector<std::string> variants = {};  ///< names, the baseline first
  std::vector<AxisSummary> axes = {};
  size_t x = 0;  ///< the axis of the figure
  std::string x_label = {};
  bool log_x = false;
  std::vector<StudySummary> points = {};     ///< one at least
  std::vector<std::vector<size_t>> at = {};  ///< the place of each point on each axis
  std::vector<PaperPoint> paper = {};

  bool swept() const { return points.size() > 1; }
  const StudyMetric& metric() const { return points.front().metric; }
};

struct Comparison {
  std::string name, about, command, date;
  std::string trainings;  ///< "24 trainings, seeds 0, 1, 2"
  int64_t jobs = 1, threads = 1;
  double seconds = 0;  ///< of all trainings together
  base::Node machine;
  std::string recipe;  ///< TOML, as used
  std::vector<StudyGrid> studies;
};

/// Fills in value, difference, p-values and verdict of every variant from its runs.
void summarise(StudySummary& study);

/// The cells of the table that `compare` prints, a row a variant; a column that tells nothing is left out.
/// Columns: 0 name, 1 value, 2 difference, 3 verdict, then numbers.
struct StudyCells {
  std::vector<std::string> header;  ///< for a terminal
  std::vector<std::string> titles;  ///< the same in full
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> best;  ///< rows with the best mean
};
StudyCells study_cells(const StudySummary& study);
base::TextTable study_table(const StudySummary& study, bool in_full = false);

/// A swept study in one table: a row a point, a column a variant; a column a paper's value where there is one.
struct GridCell {
  std::string text;
  bool best = false;
  Verdict verdict = Verdict::no_gain;
  std::string paper;  ///< "paper 97.7 %"
};
struct GridCells {
  std::vector<std::string> header;  ///< the axes with several values, then the variants
  size_t num_axes = 0;
  std::vector<std::vector<std::string>> labels;  ///< of each row
  std::vector<std::vector<GridCell>> rows;
};
GridCells grid_cells(const StudyGrid& study);
base::TextTable grid_table(const StudyGrid& study, bool markdown = false);
/// What the signs in a grid's table mean, and the test.
std::string grid_legend(const StudyGrid& study);
/// The tables of a study for a terminal.
std::string study_text(const StudyGrid& study);

/// Headings, tables and conclusions as Markdown.
std::string to_markdown(const Comparison& comparison);
/// results.json.
base::Node to_node(const Comparison& comparison);

/// "2.604 ± 0.012", or a percentage "99.1 ± 0.3 %".
std::string value_text(const StudyMetric& metric, const metrics::Spread& value);
/// "-0.123", "+4.2 %"; of the baseline empty.
std::string difference_text(const StudyMetric& metric, const VariantSummary& variant);
/// "0.012", "<0.001"; empty for none.
std::string p_text(std::optional<double> p);

}  // namespace mnemo::study
