#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/text_table.h"
#include "cli/results.h"
#include "metrics/spread.h"

namespace mnemo::cli {

/// What a study measures.
struct StudyMetric {
  std::string name = "bits per character";
  std::string short_name = "bits/char";  ///< for a terminal's table
  std::string loss_name = "bits per character";  ///< unit of the training loss
  bool higher_is_better = false;
  bool percent = false;            ///< shown as a percentage
  bool generates = true;           ///< the models write text, so generation speed is measured
  std::optional<double> chance = {};    ///< what guessing gives
};

/// Whether a memory helps, against the study's first variant.
enum class Verdict { baseline, better, no_gain, worse, failed };

/// Several seeds: better or worse only where the means differ by more than the larger range (max - min) of the two over
/// their seeds. One seed has no spread, so `least_gain` decides: smaller differences are none.
Verdict judge(const metrics::Spread& baseline, const metrics::Spread& value, bool higher_is_better, double least_gain);
/// "yes", "no gain", "worse" …, for a table.
std::string verdict_text(Verdict verdict);

/// One variant over its seeds.
struct VariantSummary {
  std::string name = {}, about = {};
  std::string options = {};        ///< its memory as TOML
  metrics::Spread value = {};         ///< of the runs that did not fail
  std::optional<double> difference = {};  ///< to the first variant's mean
  Verdict verdict = Verdict::failed;
  std::vector<RunResult> runs = {};     ///< by seed

  bool failed() const { return value.count == 0; }
  /// The first run that did not fail, or the first.
  const RunResult& shown() const;
  /// Mean over the runs that have the number; nothing if none has.
  std::optional<double> mean(std::optional<double> RunResult::*number) const;
  int64_t peak_memory() const;
};

struct StudySummary {
  std::string name = {}, about = {};
  StudyMetric metric = {};
  double least_gain = 0;
  std::vector<VariantSummary> variants = {};

  /// One sentence: which variants beat the first, which do not.
  std::string conclusion() const;
};

struct Comparison {
  std::string name, about, command, date;
  std::vector<int64_t> seeds;
  int64_t jobs = 1, threads = 1;
  double seconds = 0;
  base::Node machine;
  std::string recipe;              ///< TOML, as used
  std::vector<StudySummary> studies;
};

/// Fills in value, difference and verdict of every variant from its runs.
void summarise(StudySummary& study);

/// The cells of the table that `compare` prints, a row a variant; a column that tells nothing is left out.
/// Columns: 0 name, 1 value, 2 difference, 3 verdict, then numbers.
struct StudyCells {
  std::vector<std::string> header;  ///< for a terminal
  std::vector<std::string> titles;  ///< the same in full
  std::vector<std::vector<std::string>> rows;
};
StudyCells study_cells(const StudySummary& study);
base::TextTable study_table(const StudySummary& study, bool in_full = false);

/// Headings, tables and conclusions as Markdown.
std::string to_markdown(const Comparison& comparison);
/// results.json.
base::Node to_node(const Comparison& comparison);

/// "2.604 ± 0.012", or a percentage "99.1 ± 0.3 %".
std::string value_text(const StudyMetric& metric, const metrics::Spread& value);
/// "-0.123", "+4.2 %"; of the baseline empty.
std::string difference_text(const StudyMetric& metric, const VariantSummary& variant);
/// "12,345"
std::string grouped(int64_t value);

}  // namespace mnemo::cli
