#include "study/summary.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/study/sample_comparison.h"

namespace mnemo::study {
namespace {

metrics::Spread over(std::vector<double> values) { return metrics::spread(values); }

TEST(Judge, SeveralSeedsByTheCorrectedTest) {
  EXPECT_EQ(judge(-0.18, 0.049, false, {}), Verdict::better);
  EXPECT_EQ(judge(-0.18, 0.051, false, {}), Verdict::no_gain);
  EXPECT_EQ(judge(0.18, 0.001, false, {}), Verdict::worse);
  EXPECT_EQ(judge(0.18, 0.001, true, {}), Verdict::better);
}

TEST(Judge, OneSeedIsMeasuredAgainstTheLeastGain) {
  EXPECT_EQ(judge(-0.02, {}, false, 0.03), Verdict::no_gain);
  EXPECT_EQ(judge(-0.04, {}, false, 0.03), Verdict::better);
  EXPECT_EQ(judge(0.04, {}, false, 0.03), Verdict::worse);
  EXPECT_EQ(judge(0.04, 0.001, true, 0.05), Verdict::no_gain) << "significant, but too small to count";
  EXPECT_EQ(judge(0.04, 0.2, true, 0.03), Verdict::no_gain) << "large enough, but not significant";
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
  EXPECT_EQ(one.variants[1].verdict, Verdict::better);
}

TEST(Summary, TellsWhatHelpsAndWhatDoesNot) {
  const StudySummary study = sample_study();
  ASSERT_EQ(study.variants.size(), 5u);
  EXPECT_EQ(study.variants[0].verdict, Verdict::baseline);
  EXPECT_EQ(study.variants[1].verdict, Verdict::better);
  EXPECT_EQ(study.variants[2].verdict, Verdict::no_gain);
  EXPECT_EQ(study.variants[3].verdict, Verdict::worse);
  EXPECT_EQ(study.variants[4].verdict, Verdict::failed);
  EXPECT_NEAR(*study.variants[1].difference, -0.18, 1e-12);
  EXPECT_EQ(study.conclusion(),
            "Better than 'no memory' by Welch's t-test over 3 seeds (p < 0.05 after Holm's correction): segment cache. "
            "No gain: memory <tokens>. "
            "Worse: GRC. Failed: broken.");
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

TEST(Summary, AVerdictBeatsTheSamplingErrorOfTheEvaluation) {
  // 30 % and 36 % of 100: z = 0.06 / sqrt((0.3 * 0.7 + 0.36 * 0.64) / 100) = 0.90; of 1,000: 2.85
  EXPECT_EQ(accuracies({0.30, 0.36}, 100).variants[1].verdict, Verdict::no_gain);
  EXPECT_EQ(accuracies({0.30, 0.36}, 1000).variants[1].verdict, Verdict::better);
  EXPECT_EQ(accuracies({0.36, 0.30}, 1000).variants[1].verdict, Verdict::worse);
  EXPECT_EQ(accuracies({0.30, 0.315}, 100'000).variants[1].verdict, Verdict::no_gain) << "less than least_gain";
  // Alone it would be significant: p = 0.035; beside two equal ones it is not.
  EXPECT_EQ(accuracies({0.30, 0.3445}, 1000).variants[1].verdict, Verdict::better);
  EXPECT_EQ(accuracies({0.30, 0.3445, 0.3, 0.3}, 1000).variants[1].verdict, Verdict::no_gain);
  EXPECT_EQ(accuracies({0.30, 0.36}, 0).variants[1].verdict, Verdict::better) << "runs of earlier versions";
  StudySummary f1 = accuracies({0.30, 0.36}, 100);  // no share of the predictions: least_gain alone decides
  f1.metric.share = false;
  summarise(f1);
  EXPECT_EQ(f1.variants[1].verdict, Verdict::better);
  EXPECT_TRUE(accuracies({0.30, 0.36}, 100)
                  .conclusion()
                  .starts_with("Nothing beats 'A' by more than 2 points and the sampling error of the evaluation on "
                               "one seed. No gain: B."))
      << accuracies({0.30, 0.36}, 100).conclusion();
}

TEST(Summary, WhatGuessingReachesIsNoGain) {
  for (const int64_t seeds : {1, 3}) {
    const StudySummary study = accuracies({0.07, 0.102, 0.3}, 2000, seeds);
    EXPECT_EQ(study.variants[1].verdict, Verdict::no_gain) << seeds;
    EXPECT_EQ(study.variants[2].verdict, Verdict::better) << seeds;
    EXPECT_FALSE(study.variants[1].beats_chance);
    EXPECT_TRUE(study.conclusion().ends_with(" Guessing gives 10.0 %; not above that: A and B.")) << study.conclusion();
    EXPECT_EQ(accuracies({0.102, 0.05}, 2000, seeds).variants[1].verdict, Verdict::no_gain) << seeds;
    EXPECT_EQ(accuracies({0.2, 0.102}, 2000, seeds).variants[1].verdict, Verdict::worse) << seeds;
  }
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

TEST(Summary, NothingHelpsIsSaidPlainly) {
  StudySummary study = sample_study(1);
  study.variants.erase(study.variants.begin() + 1);
  summarise(study);
  EXPECT_TRUE(study.conclusion().starts_with("Nothing beats 'no memory' by more than 0.01 on one seed."))
      << study.conclusion();
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
  EXPECT_EQ(study.variants[1].verdict, Verdict::untested);
  EXPECT_EQ(study_cells(study).rows[1][3], "not tested");
  EXPECT_NE(study.conclusion().find(" Not tested, as only one seed succeeded there or in 'no memory': segment cache."),
            std::string::npos)
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
  EXPECT_EQ(cells.rows[1][3], "yes");
  EXPECT_EQ(cells.rows[2][3], "no gain");
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
  EXPECT_EQ(study.at("variants").items().at(1).at("verdict").as_string(), "yes");
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
  EXPECT_NE(text.find("Welch's t-test over the seeds, p < 0.05 after Holm's correction for the variants of a row. In "
                      "brackets: values of the paper. Guessing gives 10.0 %."),
            std::string::npos)
      << text;
  EXPECT_NE(study_text(sample_grid(1)).find("by more than 1 points on one seed"), std::string::npos)
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
