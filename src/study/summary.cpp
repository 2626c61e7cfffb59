#include "study/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/text_format.h"
#include "metrics/significance.h"

namespace mnemo::study {
namespace {

const std::string kMissing = "–";
constexpr const char* kMinus = "−";

std::string with_sign(double value, int digits) {
  const std::string text = fmt::format("{:.{}f}", std::abs(value), digits);
  const bool zero = text.find_first_not_of("0.") == std::string::npos;
  return (zero ? "±" : value < 0 ? kMinus : "+") + text;
}

std::string speed(std::optional<double> value) {
  return value ? base::grouped(static_cast<int64_t>(std::llround(*value))) : kMissing;
}

std::string megabytes(int64_t bytes) {
  return bytes > 0 ? fmt::format("{:.0f}", static_cast<double>(bytes) / 1e6) : kMissing;
}

/// "a", "a and b", "a, b and c"
std::string listed(const std::vector<std::string>& names) {
  if (names.size() < 2) return names.empty() ? "" : names.front();
  return fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

}  // namespace

Verdict judge(double difference, double corrected_p, bool higher_is_better, bool is_equivalent) {
  if (corrected_p >= kSignificant) return is_equivalent ? Verdict::no_difference : Verdict::undecided;
  return (difference > 0) == higher_is_better ? Verdict::better : Verdict::worse;
}

std::string verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::baseline:
      return "baseline";
    case Verdict::better:
      return "better";
    case Verdict::worse:
      return "worse";
    case Verdict::no_difference:
      return "no difference";
    case Verdict::undecided:
      return "undecided";
    case Verdict::one_seed:
      return "one seed";
    case Verdict::failed:
      return "failed";
  }
  return {};
}

std::string_view verdict_sign(Verdict verdict) {
  switch (verdict) {
    case Verdict::better:
      return "▲";
    case Verdict::worse:
      return "▼";
    case Verdict::no_difference:
      return "=";
    case Verdict::undecided:
      return "?";
    default:
      return "";
  }
}

const RunResult& VariantSummary::shown() const {
  base::ensure(!runs.empty(), "a variant without runs");
  const auto good = std::find_if(runs.begin(), runs.end(), [](const RunResult& run) { return run.error.empty(); });
  return good == runs.end() ? runs.front() : *good;
}

std::optional<double> VariantSummary::mean(std::optional<double> RunResult::*number) const {
  double sum = 0;
  int64_t count = 0;
  for (const RunResult& run : runs) {
    if (!(run.*number).has_value()) continue;
    sum += *(run.*number);
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional<double>(sum / static_cast<double>(count));
}

int64_t VariantSummary::peak_memory() const {
  int64_t peak = 0;
  for (const RunResult& run : runs) peak = std::max(peak, run.peak_memory);
  return peak;
}

void take_metric(RunResult& run, const StudyMetric& metric) {
  if (metric.key.empty() || !run.error.empty()) return;
  const auto found = std::find_if(run.metrics.begin(), run.metrics.end(),
                                  [&](const MeasuredMetric& one) { return one.name == metric.key; });
  run.value = found == run.metrics.end() ? std::nullopt : found->value;
  if (found == run.metrics.end())
    run.error = fmt::format("recorded without {}; --again repeats it", metric.key);
  else if (!run.value)
    run.error = metric.key + " is not finite";
  run.predictions = 0;  // they are of the task's own metric: symbols, where this one counts answers
  for (CurvePoint& point : run.curve) point.held_out.reset();
}

namespace {

/// Holm's correction of the p-values of some variants.
using TestedVariants = std::vector<std::pair<VariantSummary*, double>>;
std::vector<double> corrected(const TestedVariants& tested) {
  std::vector<double> p;
  for (const auto& [variant, value] : tested) p.push_back(value);
  return metrics::holm(p);
}

/// Predictions of which a variant's metric is a share; 0 if it is none, or of runs that do not say it.
int64_t samples_of(const StudyMetric& metric, const VariantSummary& variant) {
  return metric.share && !variant.failed() ? variant.shown().predictions : 0;
}

/// The number of seeds of each with which a difference of these means and spreads would be significant after a
/// correction for `tests` variants, or its interval within ±margin.
std::optional<int64_t> seeds_to_decide(metrics::Spread a, metrics::Spread b, double margin, size_t tests) {
  for (int64_t seeds = std::min(a.count, b.count) + 1; seeds <= kManySeeds; ++seeds) {
    a.count = b.count = seeds;
    const double p = metrics::welch(a, b).p * static_cast<double>(tests);
    if (p < kSignificant || metrics::is_equivalent(a, b, margin, kSignificant)) return seeds;
  }
  return std::nullopt;
}

/// Takes back verdicts in favour of variants that are no better than guessing.
void require_more_than_chance(StudySummary& study) {
  if (!study.metric.chance) return;
  for (VariantSummary& variant : study.variants) {
    const int64_t samples = samples_of(study.metric, variant);
    variant.beats_chance = samples == 0 ||
                           metrics::above_chance(variant.value.mean, *study.metric.chance, samples) < kSignificant;
  }
  for (VariantSummary& variant : study.variants) {
    const bool lacks = (variant.verdict == Verdict::better && !variant.beats_chance) ||
                       (variant.verdict == Verdict::worse && !study.variants.front().beats_chance);
    if (lacks) variant.verdict = Verdict::undecided;
  }
}

}  // namespace

void summarise(StudySummary& study) {
  for (VariantSummary& variant : study.variants) {
    std::vector<double> values;
    for (const RunResult& run : variant.runs) {
      if (run.error.empty() && run.value && std::isfinite(*run.value)) values.push_back(*run.value);
    }
    variant.value = values.empty() ? metrics::Spread{} : metrics::spread(values);
    variant.difference.reset();
    variant.p.reset();
    variant.corrected_p.reset();
    variant.beats_chance = true;
    variant.seeds_needed.reset();
    variant.resolution.reset();
    variant.verdict = variant.failed() ? Verdict::failed : Verdict::one_seed;
  }
  if (study.variants.empty() || study.variants.front().failed()) return;
  const metrics::Spread baseline = study.variants.front().value;
  study.variants.front().verdict = Verdict::baseline;
  TestedVariants tested;
  for (size_t i = 1; i < study.variants.size(); ++i) {
    VariantSummary& variant = study.variants[i];
    if (variant.failed()) continue;
    variant.difference = variant.value.mean - baseline.mean;
    if (baseline.count < 2 || variant.value.count < 2) continue;
    variant.p = metrics::welch(baseline, variant.value).p;
    tested.emplace_back(&variant, *variant.p);
  }
  const std::vector<double> p = corrected(tested);
  const auto open = static_cast<size_t>(std::ranges::count_if(p, [](double one) { return one >= kSignificant; }));
  for (size_t i = 0; i < tested.size(); ++i) {
    VariantSummary& variant = *tested[i].first;
    variant.corrected_p = p[i];
    // Holm's correction tests the smallest p first, so those that are significant are out when it comes to the others.
    const size_t tests = p[i] < kSignificant ? tested.size() : open;
    variant.resolution = metrics::resolution(baseline, variant.value, kSignificant / static_cast<double>(tests));
    const bool equivalent = metrics::is_equivalent(baseline, variant.value, study.least_gain, kSignificant);
    variant.verdict = judge(*variant.difference, p[i], study.metric.higher_is_better, equivalent);
    if (variant.verdict == Verdict::undecided)
      variant.seeds_needed = seeds_to_decide(baseline, variant.value, study.least_gain, tests);
  }
  require_more_than_chance(study);
}

std::string margin_text(const StudySummary& study) {
  return study.metric.percent ? fmt::format("±{:g} points", study.least_gain * 100)
                              : fmt::format("±{:g}", study.least_gain);
}

namespace {

/// " Worse: a and b."; nothing where there are none.
std::string sentence(std::string_view start, const std::vector<std::string>& names) {
  return names.empty() ? "" : fmt::format(" {}: {}.", start, listed(names));
}

/// "0.12"; of a percentage "3.4 points"
std::string difference_text(const StudyMetric& metric, double difference) {
  return metric.percent ? fmt::format("{:.2g} points", difference * 100) : fmt::format("{:.2g}", difference);
}

/// "RMT (these seeds would show 0.12, about 7 would decide)"
std::string undecided_text(const VariantSummary& variant, const StudyMetric& metric) {
  if (!variant.beats_chance) return variant.name;
  const std::string seeds = variant.seeds_needed ? fmt::format("about {}", *variant.seeds_needed)
                                                 : fmt::format("more than {}", kManySeeds);
  return fmt::format("{} (these seeds would show {}, {} would decide)", variant.name,
                     difference_text(metric, *variant.resolution), seeds);
}

}  // namespace

std::string StudySummary::conclusion() const {
  if (variants.empty() || variants.front().failed())
    return "The first variant failed, so there is no baseline to compare with.";
  std::map<Verdict, std::vector<std::string>> named;
  for (size_t i = 1; i < variants.size(); ++i) {
    const VariantSummary& variant = variants[i];
    named[variant.verdict].push_back(variant.verdict == Verdict::undecided ? undecided_text(variant, metric)
                                                                           : variant.name);
  }
  const std::string& baseline = variants.front().name;
  const size_t compared = variants.size() - 1 - named[Verdict::failed].size() - named[Verdict::one_seed].size();
  std::string text;
  if (compared > 0) {
    const std::vector<std::string>& better = named[Verdict::better];
    text = fmt::format("{} '{}' by Welch's t-test over {} seeds (p < {:g} after Holm's correction){}{}.",
                       better.empty() ? "Nothing is better than" : "Better than", baseline,
                       variants.front().value.count, kSignificant, better.empty() ? "" : ": ", listed(better));
  } else {
    text = fmt::format("Nothing could be compared with '{}'.", baseline);
  }
  text += sentence("Worse", named[Verdict::worse]);
  text += sentence(fmt::format("No difference (its 95 % interval is within {})", margin_text(*this)),
                   named[Verdict::no_difference]);
  text += sentence("Undecided, by the spread seen", named[Verdict::undecided]);
  text += sentence("One seed, which says neither better nor worse (--seeds 3 trains three)", named[Verdict::one_seed]);
  text += sentence("Failed", named[Verdict::failed]);
  std::vector<std::string> partly;
  for (const VariantSummary& variant : variants) {
    const auto trained = static_cast<int64_t>(variant.runs.size());
    if (!variant.failed() && variant.value.count < trained)
      partly.push_back(fmt::format("{} ({} of {})", variant.name, trained - variant.value.count, trained));
  }
  text += sentence("Without trainings that failed", partly);
  std::vector<std::string> ahead;
  for (const VariantSummary& variant : variants) {
    if (!variant.failed() && variant.shown().sees_ahead) ahead.push_back(variant.name);
  }
  if (!ahead.empty())
    text += fmt::format(" Queries see later tokens of their segment, so this is no result of a language model: {}.",
                        listed(ahead));
  if (metric.chance) {
    text += fmt::format(" Guessing gives {}", value_text(metric, {.count = 1, .mean = *metric.chance}));
    std::vector<std::string> at_chance;
    for (const VariantSummary& variant : variants) {
      if (!variant.beats_chance) at_chance.push_back(variant.name);
    }
    text += at_chance.empty() ? "." : fmt::format("; not above that: {}.", listed(at_chance));
  }
  return text;
}

namespace {

/// Rows with the best mean; none if only one variant succeeded.
std::vector<bool> best_of(const StudySummary& study) {
  std::vector<bool> best(study.variants.size(), false);
  std::optional<double> top;
  size_t good = 0;
  for (const VariantSummary& variant : study.variants) {
    if (variant.failed()) continue;
    ++good;
    if (!top || (study.metric.higher_is_better ? variant.value.mean > *top : variant.value.mean < *top))
      top = variant.value.mean;
  }
  for (size_t i = 0; i < best.size(); ++i) {
    best[i] = good > 1 && !study.variants[i].failed() && study.variants[i].value.mean == *top;
  }
  return best;
}

}  // namespace

StudyCells study_cells(const StudySummary& study) {
  struct Column {
    std::string header, title;
    std::function<std::string(const VariantSummary&)> cell;
  };
  const auto any = [&](auto is_so) { return std::any_of(study.variants.begin(), study.variants.end(), is_so); };
  const auto has = [&](std::optional<double> RunResult::*number) {
    return any([&](const VariantSummary& variant) { return variant.mean(number).has_value(); });
  };
  const auto speed_of = [](std::optional<double> RunResult::*number) {
    return [number](const VariantSummary& variant) { return speed(variant.mean(number)); };
  };
  const auto number_of = [](int64_t RunResult::*number) {
    return [number](const VariantSummary& variant) {
      return variant.failed() ? kMissing : base::grouped(variant.shown().*number);
    };
  };
  const std::string first = study.variants.empty() ? "" : study.variants.front().name;

  std::vector<Column> columns = {
      {"variant", "variant", [](const VariantSummary& variant) { return variant.name; }},
      {study.metric.short_name, study.metric.name,
       [&](const VariantSummary& variant) {
         return variant.failed() ? kMissing : value_text(study.metric, variant.value);
       }},
      {"change", "vs " + first, [&](const VariantSummary& variant) { return difference_text(study.metric, variant); }},
      {"verdict", "verdict", [](const VariantSummary& variant) { return verdict_text(variant.verdict); }}};
  if (any([](const VariantSummary& variant) { return variant.corrected_p.has_value(); })) {
    columns.push_back(
        {"p", "p (Welch, Holm)", [](const VariantSummary& variant) { return p_text(variant.corrected_p); }});
  }
  columns.insert(columns.end(), {{"params", "parameters", number_of(&RunResult::parameters)},
                                 {"state B", "state, bytes a sequence", number_of(&RunResult::state_bytes)}});
  if (any([](const VariantSummary& variant) { return variant.shown().model_state_bytes > 0; })) {
    columns.push_back({"model B", "state, bytes of the model", number_of(&RunResult::model_state_bytes)});
  }
  if (has(&RunResult::mflops)) {
    const std::string each = study.metric.counted.substr(0, study.metric.counted.size() - 1);
    columns.push_back({"MFLOP/" + each.substr(0, 3), "MFLOPs a " + each, [](const VariantSummary& variant) {
                         const auto value = variant.mean(&RunResult::mflops);
                         return value ? fmt::format("{:.3g}", *value) : kMissing;
                       }});
  }
  if (any([](const VariantSummary& variant) { return variant.shown().visible_context.has_value(); })) {
    columns.push_back({"visible", "visible context, tokens", [](const VariantSummary& variant) {
                         const auto value = variant.shown().visible_context;
                         return value ? base::grouped(*value) : kMissing;
                       }});
  }
  if (any([&](const VariantSummary& variant) {
        return !variant.failed() && variant.shown().steps != study.variants.front().shown().steps;
      })) {
    columns.push_back({"steps", "steps", number_of(&RunResult::steps)});
  }
  columns.push_back({study.metric.counted == "tokens" ? "train tok/s" : "train " + study.metric.counted + "/s",
                     "training " + study.metric.counted + "/s", speed_of(&RunResult::train_tokens_per_second)});
  if (has(&RunResult::tokens_per_second_64)) {
    columns.push_back({"gen @64", "generated tokens/s at 64", speed_of(&RunResult::tokens_per_second_64)});
  }
  if (has(&RunResult::tokens_per_second_4096)) {
    columns.push_back({"gen @4096", "generated tokens/s at 4096", speed_of(&RunResult::tokens_per_second_4096)});
  }
  columns.push_back(
      {"peak MB", "peak memory, MB", [](const VariantSummary& variant) { return megabytes(variant.peak_memory()); }});

  StudyCells cells;
  for (const Column& column : columns) {
    cells.header.push_back(column.header);
    cells.titles.push_back(column.title);
  }
  for (const VariantSummary& variant : study.variants) {
    std::vector<std::string> row;
    for (const Column& column : columns) row.push_back(column.cell(variant));
    cells.rows.push_back(std::move(row));
  }
  cells.best = best_of(study);
  return cells;
}

base::TextTable study_table(const StudySummary& study, bool in_full) {
  using Align = base::TextTable::Align;
  StudyCells cells = study_cells(study);
  const std::vector<std::string>& header = in_full ? cells.titles : cells.header;
  std::vector<Align> align(header.size(), Align::right);
  align[0] = align[3] = Align::left;
  base::TextTable table(header, align);
  for (size_t row = 0; row < cells.rows.size(); ++row) {
    if (in_full && cells.best[row]) cells.rows[row][1] = "**" + cells.rows[row][1] + "**";
    table.add_row(std::move(cells.rows[row]));
  }
  return table;
}

std::string value_text(const StudyMetric& metric, const metrics::Spread& value) {
  if (!metric.percent) return value.text(3);
  metrics::Spread hundred = value;
  hundred.mean *= 100;
  hundred.deviation *= 100;
  return hundred.text(1) + " %";
}

std::string difference_text(const StudyMetric& metric, const VariantSummary& variant) {
  if (!variant.difference) return {};
  return metric.percent ? with_sign(*variant.difference * 100, 1) : with_sign(*variant.difference, 3);
}

std::string p_text(std::optional<double> p) {
  if (!p) return {};
  return *p < 0.001 ? "<0.001" : fmt::format("{:.3f}", *p);
}

}  // namespace mnemo::study
