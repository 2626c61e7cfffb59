#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/node.h"
#include "base/text_table.h"
#include "metrics/spread.h"
#include "study/results.h"

namespace mnemo::study {

/// The metric of a study.
struct StudyMetric {
  std::string key = {};  ///< name in an evaluation ("result_accuracy"); empty: the task's own metric
  std::string name = "bits per character";
  std::string short_name = "bits/char";          ///< for tables in a terminal
  std::string loss_name = "bits per character";  ///< unit of the training loss
  std::string counted = "tokens";                ///< unit in which training progress is counted
  bool higher_is_better = false;
  bool percent = false;               ///< shown as a percentage
  bool share = percent;               ///< of the predictions, so the sampling error is known
  bool generates = true;              ///< the models write text, so generation speed is measured
  std::optional<double> chance = {};  ///< value reached by guessing
};

/// A variant compared with the study's first one.
enum class Verdict {
  baseline,
  better,         ///< significantly, over the seeds
  worse,          ///< significantly, over the seeds
  no_difference,  ///< not significantly, and the interval of the difference lies within ±least_gain
  undecided,      ///< neither: more seeds would decide
  one_seed,       ///< a single value on either side has no spread, so nothing is said
  failed
};

/// Corrected p-values below this count as significant; intervals are of 1 minus this.
inline constexpr double kSignificant = 0.05;

/// Of a variant with two values or more on both sides.
Verdict judge(double difference, double corrected_p, bool higher_is_better, bool is_equivalent);
/// "better", "no difference" …, for a table.
std::string verdict_text(Verdict verdict);
/// ▲, ▼, = or ?, for the cells of a sweep; empty for other verdicts.
std::string_view verdict_sign(Verdict verdict);

inline constexpr int64_t kManySeeds = 100;

/// One variant over its seeds.
struct VariantSummary {
  std::string name = {}, about = {};
  size_t index = 0;                        ///< index among all variants of the study
  std::string options = {};                ///< its memory options as TOML
  metrics::Spread value = {};              ///< over the runs that did not fail
  std::optional<double> difference = {};   ///< from the first variant's mean
  std::optional<double> p = {};            ///< Welch's two-sided t-test against the first variant; unset for one seed
  bool beats_chance = true;                ///< false: guessing as often reaches as much (p >= kSignificant)
  std::optional<double> corrected_p = {};  ///< after Holm's correction over the variants of the table
  Verdict verdict = Verdict::failed;
  /// With `undecided`: seeds with which this mean and spread would give another verdict; unset: more than kManySeeds.
  std::optional<int64_t> seeds_needed = {};
  /// The smallest difference that these seeds would have shown, after the same correction; set where there is p.
  std::optional<double> resolution = {};
  std::vector<RunResult> runs = {};  ///< one per seed

  bool failed() const { return value.count == 0; }
  /// The first successful run, or else the first run.
  const RunResult& shown() const;
  /// Mean over the runs that have this number; nothing if none has.
  std::optional<double> mean(std::optional<double> RunResult::*number) const;
  int64_t peak_memory() const;
};

/// One table: the variants of a study at one point of its sweep.
struct StudySummary {
  std::string name = {}, about = {};
  std::string point = {};  ///< "num_segments 9"; empty without a sweep
  StudyMetric metric = {};
  double least_gain = 0;  ///< the smallest difference that matters
  std::vector<VariantSummary> variants = {};

  /// A few sentences: which variants beat the first one and which do not.
  std::string conclusion() const;
};

/// One axis of a sweep, as shown in tables and figures.
struct AxisSummary {
  std::string name = {};
  std::vector<std::string> labels = {};
  std::vector<double> numbers = {};  ///< empty if some value is not a number
};

/// A number from the paper: its position on each axis as a label, and as a number if it is one.
struct PaperPoint {
  std::string variant = {};
  std::vector<std::string> labels = {};
  std::vector<std::optional<double>> numbers = {};
  double value = 0;
  std::optional<double> deviation = {};
  std::string metric = {}, source = {};
};

/// A study: one table per point of its sweep.
struct StudyGrid {
  std::string name = {}, about = {};
  std::vector<std::string> variants = {};  ///< names, the baseline first
  std::vector<AxisSummary> axes = {};
  size_t x = 0;  ///< index of the figure's x axis
  std::string x_label = {};
  bool log_x = false;
  std::vector<StudySummary> points = {};     ///< at least one
  std::vector<std::vector<size_t>> at = {};  ///< the index of each point on each axis
  std::vector<PaperPoint> paper = {};

  bool swept() const { return points.size() > 1; }
  const StudyMetric& metric() const { return points.front().metric; }
  /// The chance that all points share; unset where points differ, as when the number of classes is swept.
  std::optional<double> chance() const;
};

struct Comparison {
  std::string name, about, command, date;
  std::string trainings;  ///< "24 trainings, seeds 0, 1, 2"
  int64_t jobs = 1, threads = 1;
  double seconds = 0;  ///< total over all trainings
  base::Node machine;
  std::string recipe;  ///< TOML, as used
  std::vector<StudyGrid> studies;
};

/// Makes the study's metric the value of a run. If the run was recorded without it, `error` says so.
void take_metric(RunResult& run, const StudyMetric& metric);

/// Computes value, difference, p-values and verdict of every variant from its runs. Welch's t-test against the first
/// variant decides, with Holm's correction over all variants; where it does not, the 95 % interval of the difference
/// tells no difference from undecided. Nothing that guessing reaches too is better than anything, or makes anything
/// worse.
void summarise(StudySummary& study);

/// "±0.01", "±2 points": the differences that do not matter.
std::string margin_text(const StudySummary& study);

/// The cells of the table that `compare` prints, one row per variant; columns without information are left out.
/// Columns: 0 name, 1 value, 2 difference, 3 verdict, then numbers.
struct StudyCells {
  std::vector<std::string> header;  ///< for a terminal
  std::vector<std::string> titles;  ///< the same, not abbreviated
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> best;  ///< rows with the best mean
};
StudyCells study_cells(const StudySummary& study);
base::TextTable study_table(const StudySummary& study, bool in_full = false);

/// A sweep in one table: one row per point, one column per variant, plus a column for the paper's value if there is
/// one.
struct GridCell {
  std::string text;
  bool best = false;
  Verdict verdict = Verdict::one_seed;
  std::string paper;  ///< "paper 97.7 %"
};
struct GridCells {
  std::vector<std::string> header;  ///< the axes with several values, then the variants
  size_t num_axes = 0;
  std::vector<std::vector<std::string>> labels;  ///< labels of each row
  std::vector<std::vector<GridCell>> rows;
};
GridCells grid_cells(const StudyGrid& study);
base::TextTable grid_table(const StudyGrid& study, bool markdown = false);
/// Legend of the signs in a grid's table, and the test used.
std::string grid_legend(const StudyGrid& study);
/// The tables of a study for a terminal.
std::string study_text(const StudyGrid& study);

/// Headings, tables and conclusions as Markdown.
std::string to_markdown(const Comparison& comparison);
/// results.json.
base::Node to_node(const Comparison& comparison);

/// "2.604 ± 0.012", or a percentage "99.1 ± 0.3 %".
std::string value_text(const StudyMetric& metric, const metrics::Spread& value);
/// "-0.123", "+4.2 %"; empty for the baseline.
std::string difference_text(const StudyMetric& metric, const VariantSummary& variant);
/// "0.012", "<0.001"; empty for none.
std::string p_text(std::optional<double> p);

}  // namespace mnemo::study
