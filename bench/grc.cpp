#include <fmt/format.h>

#include <functional>

#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/case.h"
#include "bench/image.h"
#include "models/presets.h"

namespace mnemo::bench {
namespace {

struct GrcRow {
  std::string grc_case, job, bars;  ///< bars: the key in table [grc] of the file of bars
  Rounds seconds, times;            ///< with the cache; relative to those without
};

/// PVT-Tiny with a cache that each image updates for itself, with these options.
struct GrcImageCase {
  std::string name;
  base::Node more;
  bool train;
};

const std::vector<GrcImageCase>& grc_image_cases() {
  static const std::vector<GrcImageCase> cases = {
      {"pvt_tiny", base::Node::table({{"eval_read", "stored"}}), true},
      {"pvt_tiny_updated", base::Node::table({{"eval_read", "updated"}}), false},
      {"pvt_tiny_cpe", base::Node::table({{"eval_read", "stored"}, {"position", "cpe"}}), true},
      {"pvt_tiny_cpe_updated", base::Node::table({{"eval_read", "updated"}, {"position", "cpe"}}), false},
  };
  return cases;
}

constexpr int64_t kGrcImages = 8, kGrcTokens = 512, kGrcPosition = 64;

/// The cases of `mnemo-bench` with plain and with relative attention; the held-out segments are as long as in training.
const std::vector<BenchCase>& grc_text_cases() {
  static const std::vector<BenchCase> cases = [] {
    std::vector<BenchCase> chosen;
    for (BenchCase bench_case : bench_cases()) {
      bench_case.evaluation_segment = bench_case.segment;
      if (bench_case.name == "decoder" || bench_case.name == "transformer_xl") chosen.push_back(bench_case);
    }
    return chosen;
  }();
  return cases;
}

/// Alternates between both; the ratio is the median over rounds.
GrcRow measure_both(int64_t repeats, const std::string& name, const std::string& job, const std::string& bars,
                    const std::function<double()>& without, const std::function<double()>& with) {
  std::vector<double> seconds, times;
  for (int64_t round = -1; round < repeats; ++round) {
    const double alone = without(), both = with();
    if (round < 0) continue;  // warm-up
    seconds.push_back(both);
    times.push_back(both / alone);
  }
  return {name, job, bars, rounds_of(seconds), rounds_of(times)};
}

void measure_text(const BenchCase& bench_case, int64_t repeats, std::vector<GrcRow>& rows) {
  BenchCase cached = bench_case;
  cached.grc = true;
  BenchSubject without(bench_case), with(cached);
  const auto add = [&](const char* job, const char* bars, const auto& seconds) {
    rows.push_back(measure_both(
        repeats, bench_case.name, job, bars, [&] { return seconds(without); }, [&] { return seconds(with); }));
  };
  add("evaluation", "inference", [](BenchSubject& subject) { return subject.evaluate(); });
  add("generation", "inference", [](BenchSubject& subject) { return subject.generate(kGrcPosition, kGrcTokens); });
  add("training step", "training", [](BenchSubject& subject) { return subject.train(1); });
}

void measure_images(const GrcImageCase& image_case, int64_t repeats, std::vector<GrcRow>& rows) {
  base::Node memory = base::Node::table(
      {{"type", "grc"}, {"qkv_bias", true}, {"attend", "sample"}, {"gate_bias", true}});
  for (const auto& [key, value] : image_case.more.members()) memory.set(key, value);
  base::Node memories = base::Node::array();
  memories.push_back(memory);
  ImageSubject without(models::read_model_options(base::Node::table({{"preset", "pvt_tiny"}})));
  ImageSubject with(models::read_model_options(base::Node::table({{"preset", "pvt_tiny"}, {"memory", memories}})));
  rows.push_back(measure_both(
      repeats, image_case.name, "forward of 8 images", "inference", [&] { return without.forward(kGrcImages, 1); },
      [&] { return with.forward(kGrcImages, 1); }));
  if (!image_case.train) return;
  rows.push_back(measure_both(
      repeats, image_case.name, "training step of 8 images", "training", [&] { return without.train(kGrcImages, 1); },
      [&] { return with.train(kGrcImages, 1); }));
}

}  // namespace

std::vector<std::string> grc_case_names() {
  std::vector<std::string> names;
  for (const BenchCase& bench_case : grc_text_cases()) names.push_back(bench_case.name);
  for (const GrcImageCase& image_case : grc_image_cases()) names.push_back(image_case.name);
  return names;
}

BenchReport bench_grc(const BenchArguments& arguments, Bars& bars) {
  std::vector<GrcRow> rows;
  for (const BenchCase& bench_case : grc_text_cases()) {
    if (arguments.wants(bench_case.name)) measure_text(bench_case, arguments.repeats, rows);
  }
  for (const GrcImageCase& image_case : grc_image_cases()) {
    if (arguments.wants(image_case.name)) measure_images(image_case, arguments.repeats, rows);
  }
  using Align = base::TextTable::Align;
  base::TextTable table({"case", "job", "ms, median", "with over without"},
                        {Align::left, Align::left, Align::right, Align::right});
  base::Node results = base::Node::array();
  for (const GrcRow& row : rows) {
    const std::string own = "grc." + row.grc_case;  // before that of all cases
    bars.at_most(bars.has(own, row.bars) ? own : "grc", row.bars, row.times.median,
                 fmt::format("{}, {}: time with the cache over that without", row.grc_case, row.job));
    table.add_row({row.grc_case, row.job, fmt::format("{:.2f}", row.seconds.median * 1e3), range_text(row.times)});
    results.push_back(base::Node::table(
        {{"case", row.grc_case}, {"job", row.job}, {"seconds", as_node(row.seconds)}, {"times", as_node(row.times)}}));
  }
  return {.figures = base::Node::table({{"results", results}}),
          .text = table.text() +
                  "\nwith over without: time of the model with a gated recurrent cache over that of the model alone; "
                  "rounds turn about\n"};
}

}  // namespace mnemo::bench
