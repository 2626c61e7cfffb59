#include "study/summary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "metrics/significance.h"
#include "tests/unit/study/sample_comparison.h"

namespace mnemo::study {
namespace {

metrics::Spread over(std::vector<double> values) { return metrics::spread(values); }

TEST(Judge, TheTestDecidesAndThenTheInterval) {
  for (const bool equivalent : {false, true}) {
    EXPECT_EQ(judge(-0.18, 0.049, false, equivalent), Verdict::better);
    EXPECT_EQ(judge(0.18, 0.001, false, equivalent), Verdict::worse);
    EXPECT_EQ(judge(0.18, 0.001, true, equivalent), Verdict::better);
  }
  EXPECT_EQ(judge(-0.18, 0.051, false, false), Verdict::undecided);
  EXPECT_EQ(judge(-0.18, 0.051, false, true), Verdict::no_difference);
}

/// A study of two variants with these values.
StudySummary two(const std::vector<double>& first, const std::vector<double>& second, double least_gain) {
  StudySummary study;
  study.least_gain = least_gain;
  for (const std::vector<double>& values : {first, second}) {
    VariantSummary variant;
    variant.name = study.variants.empty() ? "A" : "B";
    for (size_t seed = 0; seed < values.size(); ++seed)
      variant.runs.push_back(sample_run(variant.name, static_cast<int64_t>(seed), values[seed]));
    study.variants.push_back(variant);
  }
  summarise(study);
  return study;
}

TEST(Summary, ALargeDifferenceWithALargeSpreadIsUndecided) {
  // Two seeds, -0.193 at p about 0.5: nothing says that there is no gain.
  const StudySummary study = two({3.0, 3.4}, {2.8, 3.214}, 0.01);
  EXPECT_NEAR(*study.variants[1].difference, -0.193, 1e-9);
  EXPECT_NEAR(*study.variants[1].p, 0.57, 0.01);
  EXPECT_EQ(study.variants[1].verdict, Verdict::undecided);
  const int64_t seeds = study.variants[1].seeds_needed.value();
  EXPECT_EQ(study.conclusion(),
            fmt::format("Nothing is better than 'A' by Welch's t-test over 2 seeds (p < 0.05 after "
                        "Holm's correction). Undecided, by the spread seen: B (these seeds would show 1.2, about {} "
                        "would decide).",
                        seeds));
  // By definition: with so many seeds of this spread the test decides, with one fewer it does not.
  metrics::Spread a = study.variants[0].value, b = study.variants[1].value;
  a.count = b.count = seeds;
  EXPECT_LT(metrics::welch(a, b).p, kSignificant);
  a.count = b.count = seeds - 1;
  EXPECT_GE(metrics::welch(a, b).p, kSignificant);
}

// Holm's correction tests the smallest p first: beside a variant that is decided the others have the same numbers.
TEST(Summary, ADecidedVariantTakesNoSeedsFromTheOthers) {
  const StudySummary alone = two({3.0, 3.4, 3.1}, {2.8, 3.214, 2.9}, 0.01);
  StudySummary beside = alone;
  VariantSummary decided;
  decided.name = "C";
  for (int64_t seed = 0; seed < 3; ++seed)
    decided.runs.push_back(sample_run("C", seed, 90.0 + 0.01 * static_cast<double>(seed)));
  beside.variants.push_back(decided);
  summarise(beside);
  ASSERT_EQ(beside.variants[2].verdict, Verdict::worse);
  ASSERT_EQ(beside.variants[1].verdict, Verdict::undecided);
  EXPECT_EQ(beside.variants[1].seeds_needed, alone.variants[1].seeds_needed);
  EXPECT_EQ(beside.variants[1].resolution, alone.variants[1].resolution);
}

// The chance of a sweep over numbers of classes is that of each point.
TEST(Summary, GuessingIsNamedWhereItIsTheSameEverywhere) {
  StudyGrid grid;
  for (const double chance : {0.5, 0.1}) {
    StudySummary point = two({0.6, 0.7}, {0.8, 0.9}, 0.01);
    point.metric.chance = chance;
    grid.points.push_back(point);
  }
  EXPECT_EQ(grid.chance(), std::nullopt);
  grid.points[1].metric.chance = 0.5;
  EXPECT_EQ(grid.chance(), 0.5);
}

TEST(Summary, NoDifferenceNeedsATightInterval) {
  // Spread 0.001 of three seeds: the 95 % interval is 0.0005 ± 2.776 * 0.001 * sqrt(2/3) = 0.0005 ± 0.00227.
  const std::vector<double> first = {3.0, 3.001, 3.002}, second = {3.0005, 3.0015, 3.0025};
  EXPECT_EQ(two(first, second, 0.0028).variants[1].verdict, Verdict::no_difference);
  EXPECT_EQ(two(first, second, 0.0027).variants[1].verdict, Verdict::undecided);
  EXPECT_EQ(two({3.0, 3.0}, {3.0, 3.0}, 0).variants[1].verdict, Verdict::no_difference) << "no spread at all";
  EXPECT_FALSE(two(first, second, 0.0028).variants[1].seeds_needed.has_value());
  // More seeds make the interval tighter, so they decide for no difference.
  EXPECT_GT(two(first, second, 0.0025).variants[1].seeds_needed.value(), 3);
  EXPECT_FALSE(two({2.0, 4.0}, {2.0001, 4.0}, 1e-6).variants[1].seeds_needed.has_value()) << "more than kManySeeds";
}

TEST(Summary, PValuesAreWelchsAndCorrectedOverTheVariants) {
  StudySummary study = sample_study();
  const auto p = [&](size_t i) { return *study.variants[i].p; };
  EXPECT_FALSE(study.variants[0].p.has_value());
  EXPECT_FALSE(study.variants[4].p.has_value());
  // Means 2.79 and 2.61, deviation 0.01 of three seeds each: t = 0.18 / 0.01 / sqrt(2/3) = 22.045, df = 4
  EXPECT_NEAR(p(1), 2.5e-5, 2e-6);
  EXPECT_NEAR(*study.variants[1].corrected_p, 3 * p(1), 1e-12);
  EXPECT_NEAR(*study.variants[2].corrected_p, p(2), 1e-12);
  StudySummary one = sample_study(1);
  EXPECT_FALSE(one.variants[1].p.has_value());
  EXPECT_EQ(one.variants[1].verdict, Verdict::one_seed);
}

TEST(Summary, TellsWhatHelpsAndWhatDoesNot) {
  const StudySummary study = sample_study();
  ASSERT_EQ(study.variants.size(), 5u);
  EXPECT_EQ(study.variants[0].verdict, Verdict::baseline);
  EXPECT_EQ(study.variants[1].verdict, Verdict::better);
  EXPECT_EQ(study.variants[2].verdict, Verdict::undecided);
  EXPECT_EQ(study.variants[3].verdict, Verdict::worse);
  EXPECT_EQ(study.variants[4].verdict, Verdict::failed);
  EXPECT_NEAR(*study.variants[1].difference, -0.18, 1e-12);
  EXPECT_EQ(study.conclusion(),
            "Better than 'no memory' by Welch's t-test over 3 seeds (p < 0.05 after Holm's correction): segment cache. "
            "Worse: GRC. Undecided, by the spread seen: memory <tokens> (these seeds would show 0.023, about 32 would "
            "decide). Failed: broken.");
}

TEST(Summary, SaysWhichResultsAreNotThoseOfALanguageModel) {
  StudySummary study = sample_study();
  for (RunResult& run : study.variants[3].runs) run.sees_ahead = true;
  EXPECT_TRUE(study.conclusion().ends_with(
      " Queries see later tokens of their segment, so this is no result of a language model: GRC."))
      << study.conclusion();
}

/// Accuracies of one seed each, over as many predictions; guessing gives 10 %.
StudySummary accuracies(const std::vector<double>& values, int64_t predictions, int64_t seeds = 1) {
  StudySummary study;
  study.metric = {.name = "accuracy", .higher_is_better = true, .percent = true, .chance = 0.1};
  study.least_gain = 0.02;
  for (size_t i = 0; i < values.size(); ++i) {
    VariantSummary variant;
    variant.name = std::string(1, static_cast<char>('A' + i));
    for (int64_t seed = 0; seed < seeds; ++seed) {
      variant.runs.push_back(sample_run(variant.name, seed, values[i] + 1e-6 * static_cast<double>(seed)));
      variant.runs.back().predictions = predictions;
    }
    study.variants.push_back(variant);
  }
  summarise(study);
  return study;
}

TEST(Summary, WhatGuessingReachesIsNotBetter) {
  const StudySummary study = accuracies({0.07, 0.102, 0.3}, 2000, 3);
  EXPECT_EQ(study.variants[1].verdict, Verdict::undecided);
  EXPECT_EQ(study.variants[2].verdict, Verdict::better);
  EXPECT_FALSE(study.variants[1].beats_chance);
  EXPECT_TRUE(study.conclusion().ends_with(" Guessing gives 10.0 %; not above that: A and B.")) << study.conclusion();
  EXPECT_EQ(accuracies({0.102, 0.05}, 2000, 3).variants[1].verdict, Verdict::undecided);
  EXPECT_EQ(accuracies({0.2, 0.102}, 2000, 3).variants[1].verdict, Verdict::worse);
}

TEST(Summary, OneSeedSaysNeitherBetterNorWorse) {
  const StudySummary study = accuracies({0.07, 0.102, 0.3}, 2000);
  for (const size_t i : {1, 2}) EXPECT_EQ(study.variants[i].verdict, Verdict::one_seed);
  EXPECT_FALSE(study.variants[1].beats_chance);
  EXPECT_EQ(study.conclusion(),
            "Nothing could be compared with 'A'. One seed, which says neither better nor worse (--seeds 3 trains "
            "three): B and C. Guessing gives 10.0 %; not above that: A and B.");
}

TEST(Summary, AStudyComparesAnotherMetricOfTheSameRuns) {
  const StudyMetric answers{
      .key = "result_accuracy", .name = "result accuracy", .higher_is_better = true, .percent = true};
  RunResult run = sample_run("RMT", 0, 0.8);
  run.predictions = 900;
  RunResult own = run;
  take_metric(own, StudyMetric{});
  EXPECT_EQ(own.value, 0.8);
  EXPECT_EQ(own.predictions, 900);
  take_metric(run, answers);
  EXPECT_NEAR(run.value.value(), 0.08, 1e-12);
  EXPECT_EQ(run.predictions, 0) << "those are symbols";
  for (const CurvePoint& point : run.curve) EXPECT_FALSE(point.held_out.has_value());
  RunResult old = sample_run("RMT", 0, 0.8);
  old.metrics.clear();
  take_metric(old, answers);
  EXPECT_FALSE(old.value.has_value());
  EXPECT_NE(old.error.find("--again"), std::string::npos) << old.error;
  RunResult broken = sample_run("RMT", 0, 0.8);
  broken.metrics[1].value.reset();
  take_metric(broken, answers);
  EXPECT_NE(broken.error.find("not finite"), std::string::npos) << broken.error;
}

TEST(Summary, OneValueLeftOfSeveralGivesNoVerdict) {
  StudySummary study = sample_study();
  for (size_t run = 1; run < study.variants[1].runs.size(); ++run) {
    study.variants[1].runs[run].error = "stopped";
    study.variants[1].runs[run].value.reset();
  }
  summarise(study);
  EXPECT_TRUE(study.variants[1].difference.has_value());
  EXPECT_FALSE(study.variants[1].p.has_value());
  EXPECT_EQ(study.variants[1].verdict, Verdict::one_seed);
  EXPECT_EQ(study_cells(study).rows[1][3], "one seed");
  EXPECT_NE(study.conclusion().find(" trains three): segment cache."), std::string::npos) << study.conclusion();
  EXPECT_NE(study.conclusion().find(" Without trainings that failed: segment cache (2 of 3)."), std::string::npos)
      << study.conclusion();
}

TEST(Summary, WhereNothingIsTestedNothingIsSaidToBeBeaten) {
  StudySummary study = sample_study();
  for (size_t run = 1; run < study.variants[0].runs.size(); ++run) {
    study.variants[0].runs[run].error = "stopped";
    study.variants[0].runs[run].value.reset();
  }
  summarise(study);
  EXPECT_TRUE(study.conclusion().starts_with("Nothing could be compared with 'no memory'.")) << study.conclusion();
}

TEST(Summary, AFailedBaselineGivesNoVerdicts) {
  StudySummary study = sample_study();
  for (RunResult& run : study.variants[0].runs) {
    run.error = "stopped";
    run.value.reset();
  }
  summarise(study);
  for (size_t i = 1; i < study.variants.size(); ++i) EXPECT_FALSE(study.variants[i].difference.has_value());
  EXPECT_NE(study.conclusion().find("no baseline to compare"), std::string::npos);
}

TEST(Summary, TableHasARowForEachVariantAndLeavesOutEmptyColumns) {
  StudySummary study = sample_study();
  const StudyCells cells = study_cells(study);
  EXPECT_EQ(cells.rows.size(), 5u);
  EXPECT_EQ(cells.header.size(), 13u);
  EXPECT_EQ(cells.titles.size(), 13u);
  EXPECT_EQ(cells.titles[7], "MFLOPs a token");
  EXPECT_EQ(cells.rows[1][7], "0.691");
  EXPECT_EQ(cells.titles[8], "visible context, tokens");
  EXPECT_EQ(cells.rows[1][8], "1,152");
  EXPECT_EQ(cells.rows[1][1], "2.610 ± 0.010");
  EXPECT_EQ(cells.rows[1][2], "−0.180");
  EXPECT_EQ(cells.rows[1][3], "better");
  EXPECT_EQ(cells.rows[2][3], "undecided");
  EXPECT_EQ(cells.rows[1][4], "<0.001");
  EXPECT_EQ(cells.rows[1][5], "345,678");
  EXPECT_EQ(cells.best, (std::vector<bool>{false, true, false, false, false}));
  EXPECT_EQ(cells.rows[4][1], "–");
  for (VariantSummary& variant : study.variants) {
    for (RunResult& run : variant.runs) run.tokens_per_second_4096.reset();
  }
  EXPECT_EQ(study_cells(study).header.size(), 12u);
  study.variants[1].runs[0].steps = 7;
  study.variants[2].runs[0].model_state_bytes = 99;
  const StudyCells wide = study_cells(study);
  EXPECT_EQ(wide.header.size(), 14u);
  EXPECT_EQ(wide.rows[2][7], "99");
  EXPECT_EQ(wide.rows[1][10], "7");
}

TEST(Summary, Percentages) {
  const StudyMetric accuracy{.name = "accuracy", .higher_is_better = true, .percent = true};
  EXPECT_EQ(value_text(accuracy, over({0.991})), "99.1 %");
  VariantSummary variant;
  variant.difference = -0.0421;
  EXPECT_EQ(difference_text(accuracy, variant), "−4.2");
  variant.difference = 0.00001;
  EXPECT_EQ(difference_text(accuracy, variant), "±0.0");
}

TEST(Summary, ResultsJsonHoldsEveryRun) {
  const base::Node node = to_node(sample_comparison());
  const base::Node parsed = base::parse_json(base::to_json(node), "results.json");
  const base::Node& study = parsed.at("studies").items().at(0);
  EXPECT_EQ(study.at("variants").items().at(1).at("verdict").as_string(), "better");
  EXPECT_EQ(study.at("variants").items().at(1).at("runs").size(), 3u);
  EXPECT_NEAR(study.at("variants").items().at(0).at("value").as_double(), 2.79, 1e-12);
}

TEST(Summary, ASweepIsOneTableWithThePapersValues) {
  const StudyGrid grid = sample_grid();
  const GridCells cells = grid_cells(grid);
  EXPECT_EQ(cells.header, (std::vector<std::string>{"number of <segments>", "no memory", "cache", "RMT"}));
  EXPECT_EQ(cells.labels[1], (std::vector<std::string>{"9"}));
  EXPECT_TRUE(cells.rows[0][2].best);
  EXPECT_FALSE(cells.rows[0][1].best);
  EXPECT_EQ(cells.rows[0][2].verdict, Verdict::better);
  EXPECT_EQ(cells.rows[0][2].paper, "100.0 ± 2.0 %");
  EXPECT_EQ(cells.rows[1][1].paper, "") << "a perplexity";
  EXPECT_EQ(cells.rows[1][2].text, "") << "left out";
  const std::string text = study_text(grid);
  EXPECT_NE(text.find("100.0 ± 0.0 % ▲ [100.0 ± 2.0 %]"), std::string::npos) << text;
  EXPECT_NE(text.find("Welch's t-test over the seeds, p < 0.05 after Holm's correction for the variants of a row; = no "
                      "difference (its 95 % interval is within ±1 points), ? undecided. In brackets: values of the "
                      "paper. Guessing gives 10.0 %."),
            std::string::npos)
      << text;
  StudyGrid failed = sample_grid(1);
  for (StudySummary& point : failed.points) {
    for (VariantSummary& variant : point.variants) variant.verdict = Verdict::failed;
  }
  EXPECT_NE(study_text(failed).find("Nothing could be compared."), std::string::npos) << study_text(failed);
  EXPECT_NE(study_text(sample_grid(1)).find("One seed says neither better nor worse"), std::string::npos)
      << study_text(sample_grid(1));
  Comparison comparison = sample_comparison();
  comparison.studies = {grid};
  EXPECT_NE(to_markdown(comparison).find("**100.0 ± 0.0 %** ▲ [100.0 ± 2.0 %]"), std::string::npos)
      << to_markdown(comparison);
  const base::Node node = base::parse_json(base::to_json(to_node(comparison)), "results.json");
  const base::Node& study = node.at("studies").items().at(0);
  EXPECT_EQ(study.at("points").items().at(1).at("point").at("num_segments").as_double(), 9);
  EXPECT_EQ(study.at("points").items().at(1).at("variants").size(), 2u);
  EXPECT_EQ(study.at("paper").items().at(2).at("metric").as_string(), "perplexity");
}

}  // namespace
}  // namespace mnemo::study
