#pragma once

#include <cmath>
#include <string>

#include "study/summary.h"

namespace mnemo::study {

inline RunResult sample_run(const std::string& variant, int64_t seed, double value) {
  RunResult run;
  run.study = "Held-out text";
  run.variant = variant;
  run.seed = seed;
  run.value = value;
  run.loss = value * std::log(2.0);
  run.parameters = 345'678;
  run.state_bytes = 27'648;
  run.mflops = 0.6912;
  run.visible_context = 1'152;
  run.metrics = {{"perplexity", 2 * value}, {"result_accuracy", value / 10}};
  run.steps = 400;
  run.tokens = 409'600;
  run.seconds = 21.5;
  run.train_tokens_per_second = 19'051.2;
  run.tokens_per_second_64 = 2'311.0;
  run.tokens_per_second_4096 = 2'290.0;
  run.peak_memory = 312'000'000;
  for (int64_t i = 1; i <= 40; ++i) {
    const double decay = std::exp(-static_cast<double>(i) / 9);
    CurvePoint point{i * 10,
                     i * 10'240,
                     0.5 * static_cast<double>(i),
                     value + 2 * decay + 0.03 * std::sin(static_cast<double>(7 * i + seed)),
                     {}};
    if (i % 4 == 0) point.held_out = value + 1.7 * decay;
    run.curve.push_back(point);
  }
  run.prompt = "First Citizen:\n";
  run.sample = "We are accounted poor citizens <b>, the patricians \"good\" & so.";
  return run;
}

/// A study in which the second variant helps, the third is undecided, the fourth is worse and the last one failed.
inline StudySummary sample_study(int64_t seeds = 3) {
  StudySummary study;
  study.name = "Held-out text";
  study.about = "The same small model on the same text.";
  study.least_gain = 0.01;
  const std::pair<const char*, double> variants[] = {
      {"no memory", 2.78}, {"segment cache", 2.60}, {"memory <tokens>", 2.775}, {"GRC", 2.90}};
  for (const auto& [name, value] : variants) {
    VariantSummary variant;
    variant.name = name;
    variant.about = "What it is.";
    variant.index = study.variants.size();
    variant.options = "[[memory]]\ntype = \"x\"\n";
    for (int64_t seed = 0; seed < seeds; ++seed) {
      variant.runs.push_back(sample_run(name, seed, value + 0.01 * static_cast<double>(seed)));
    }
    study.variants.push_back(variant);
  }
  study.variants[3].runs[0].cache_share = {{"layer 0", {0.5, 0.61, 0.12, 0.93}}, {"layer 1", {0.4, 0.5, 0.2, 0.9}}};
  study.variants[3].runs[0].cache_share_curve = {{10, {{"layer 0", {0.5, 0.5}}}}, {20, {{"layer 0", {0.6, 0.4}}}}};
  VariantSummary failed;
  failed.name = "broken";
  failed.index = study.variants.size();
  failed.runs.push_back(RunResult{.study = study.name, .variant = "broken", .error = "loss is not finite at step 12"});
  study.variants.push_back(failed);
  summarise(study);
  return study;
}

/// A study without a sweep.
inline StudyGrid one_table(StudySummary study) {
  StudyGrid grid;
  grid.name = study.name;
  grid.about = study.about;
  for (const VariantSummary& variant : study.variants) grid.variants.push_back(variant.name);
  grid.points.push_back(std::move(study));
  grid.at.push_back({});
  return grid;
}

/// Accuracies of three variants over 3 and 9 segments; the third is left out at 9. From the paper: one value at one of
/// our points, one between them, one with a different metric.
inline StudyGrid sample_grid(int64_t seeds = 3) {
  StudyGrid grid;
  grid.name = "Copy <task>";
  grid.about = "Over segments.";
  grid.variants = {"no memory", "cache", "RMT"};
  grid.axes = {{.name = "num_segments", .labels = {"3", "9"}, .numbers = {3, 9}}};
  grid.x_label = "number of <segments>";
  grid.at = {{0}, {1}};
  const double values[2][3] = {{0.1, 0.99, 1.0}, {0.1, 0.13, 0}};
  for (size_t p = 0; p < 2; ++p) {
    StudySummary point;
    point.name = grid.name;
    point.point = "num_segments " + grid.axes[0].labels[p];
    point.metric = {.name = "accuracy",
                    .short_name = "accuracy",
                    .higher_is_better = true,
                    .percent = true,
                    .generates = false,
                    .chance = 0.1};
    point.least_gain = 0.01;
    for (size_t v = 0; v < (p == 0 ? 3u : 2u); ++v) {
      VariantSummary variant;
      variant.name = grid.variants[v];
      variant.index = v;
      for (int64_t seed = 0; seed < seeds; ++seed) {
        variant.runs.push_back(
            sample_run(variant.name, seed, values[p][v] - (v == 2 ? 0 : 0.004 * static_cast<double>(seed * seed))));
      }
      point.variants.push_back(std::move(variant));
    }
    summarise(point);
    grid.points.push_back(std::move(point));
  }
  grid.paper = {
      {.variant = "RMT", .labels = {"3"}, .numbers = {3}, .value = 1.0, .deviation = 0.02, .source = "figure <2>"},
      {.variant = "cache", .labels = {"6"}, .numbers = {6}, .value = 0.8, .source = "figure 2"},
      {.variant = "cache",
       .labels = {"9"},
       .numbers = {9},
       .value = 24.1,
       .metric = "perplexity",
       .source = "table 1"}};
  return grid;
}

inline Comparison sample_comparison() {
  Comparison comparison;
  comparison.name = "Memories on <Shakespeare>";
  comparison.about = "Which memory helps?";
  comparison.command = "mnemo compare recipes/demo.toml --seeds 3";
  comparison.date = "2026-01-02 03:04 UTC";
  comparison.trainings = "13 trainings, seeds 0, 1, 2";
  comparison.jobs = 2;
  comparison.seconds = 280;
  comparison.machine = base::Node::table({{"cpu", "A Processor"},
                                          {"capability", "AVX2"},
                                          {"features", "avx2 fma"},
                                          {"cores", 2},
                                          {"memory", 16'000'000'000},
                                          {"system", "Linux"},
                                          {"libtorch", "2.15.0"},
                                          {"mnemo", "0.1.0"}});
  comparison.recipe = "name = \"x\" # </pre><script>alert(1)</script>\n";
  comparison.studies.push_back(one_table(sample_study()));
  return comparison;
}

}  // namespace mnemo::study
