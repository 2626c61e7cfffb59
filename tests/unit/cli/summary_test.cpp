#include "cli/summary.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/cli/sample_comparison.h"

namespace mnemo::cli {
namespace {

metrics::Spread over(std::vector<double> values) { return metrics::spread(values); }

TEST(Judge, WantsMoreThanTheLargerRangeOfTheSeeds) {
  const auto baseline = over({2.78, 2.79, 2.80});
  EXPECT_EQ(judge(baseline, over({2.60, 2.61, 2.62}), false, 0.0), Verdict::better);
  EXPECT_EQ(judge(baseline, over({2.765, 2.775, 2.785}), false, 0.0), Verdict::no_gain);
  EXPECT_EQ(judge(baseline, over({2.60, 2.75, 2.90}), false, 0.0), Verdict::no_gain);
  EXPECT_EQ(judge(baseline, over({2.90, 2.91, 2.92}), false, 0.0), Verdict::worse);
  EXPECT_EQ(judge(baseline, over({2.90, 2.91, 2.92}), true, 0.0), Verdict::better);
}

TEST(Judge, OneSeedIsMeasuredAgainstTheLeastGain) {
  const auto baseline = over({2.80});
  EXPECT_EQ(judge(baseline, over({2.78}), false, 0.03), Verdict::no_gain);
  EXPECT_EQ(judge(baseline, over({2.76}), false, 0.03), Verdict::better);
  EXPECT_EQ(judge(baseline, over({2.84}), false, 0.03), Verdict::worse);
  EXPECT_EQ(judge(baseline, over({2.84, 2.85, 2.86}), false, 0.03), Verdict::worse);
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
            "Better than 'no memory' by more than the spread over 3 seeds: segment cache. No gain: memory <tokens>. "
            "Worse: GRC. Failed: broken.");
}

TEST(Summary, NothingHelpsIsSaidPlainly) {
  StudySummary study = sample_study(1);
  study.variants.erase(study.variants.begin() + 1);
  summarise(study);
  EXPECT_TRUE(study.conclusion().starts_with("Nothing beats 'no memory' by more than 0.01 on one seed.")) << study.conclusion();
}

TEST(Summary, AFailedBaselineGivesNoVerdicts) {
  StudySummary study = sample_study();
  for (RunResult& run : study.variants[0].runs) {
    run.error = "stopped";
    run.value.reset();
  }
  summarise(study);
  for (size_t i = 1; i < study.variants.size(); ++i) EXPECT_FALSE(study.variants[i].difference.has_value());
  EXPECT_NE(study.conclusion().find("nothing to compare"), std::string::npos);
}

TEST(Summary, TableHasARowForEachVariantAndLeavesOutEmptyColumns) {
  StudySummary study = sample_study();
  const StudyCells cells = study_cells(study);
  EXPECT_EQ(cells.rows.size(), 5u);
  EXPECT_EQ(cells.header.size(), 10u);
  EXPECT_EQ(cells.titles.size(), 10u);
  EXPECT_EQ(cells.rows[1][1], "2.610 ± 0.010");
  EXPECT_EQ(cells.rows[1][2], "−0.180");
  EXPECT_EQ(cells.rows[1][3], "yes");
  EXPECT_EQ(cells.rows[2][3], "no gain");
  EXPECT_EQ(cells.rows[1][4], "345,678");
  EXPECT_EQ(cells.rows[4][1], "–");
  for (VariantSummary& variant : study.variants) {
    for (RunResult& run : variant.runs) run.tokens_per_second_4096.reset();
  }
  EXPECT_EQ(study_cells(study).header.size(), 9u);
  study.variants[1].runs[0].steps = 7;
  study.variants[2].runs[0].model_state_bytes = 99;
  const StudyCells wide = study_cells(study);
  EXPECT_EQ(wide.header.size(), 11u);
  EXPECT_EQ(wide.rows[2][6], "99");
  EXPECT_EQ(wide.rows[1][7], "7");
}

TEST(Summary, PercentagesAndGroups) {
  const StudyMetric accuracy{.name = "accuracy", .higher_is_better = true, .percent = true};
  EXPECT_EQ(value_text(accuracy, over({0.991})), "99.1 %");
  VariantSummary variant;
  variant.difference = -0.0421;
  EXPECT_EQ(difference_text(accuracy, variant), "−4.2");
  variant.difference = 0.00001;
  EXPECT_EQ(difference_text(accuracy, variant), "±0.0");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
}

TEST(Summary, ResultsJsonHoldsEveryRun) {
  const base::Node node = to_node(sample_comparison());
  const base::Node parsed = base::parse_json(base::to_json(node), "results.json");
  const base::Node& study = parsed.at("studies").items().at(0);
  EXPECT_EQ(study.at("variants").items().at(1).at("verdict").as_string(), "yes");
  EXPECT_EQ(study.at("variants").items().at(1).at("runs").size(), 3u);
  EXPECT_NEAR(study.at("variants").items().at(0).at("value").as_double(), 2.79, 1e-12);
}

}  // namespace
}  // namespace mnemo::cli
