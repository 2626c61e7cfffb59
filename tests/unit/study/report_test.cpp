#include "study/report/report.h"

#include <gtest/gtest.h>

#include "base/node.h"
#include "study/report/parts.h"
#include "tests/unit/study/sample_comparison.h"

namespace mnemo::study {
namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The page without the embedded scripts.
std::string visible(const Comparison& comparison) {
  const std::string page = study::report::report_html(comparison);
  return page.substr(0, page.find("<script>"));
}

TEST(Report, ShowsTablesSamplesAndMachine) {
  const std::string page = visible(sample_comparison());
  EXPECT_TRUE(holds(page, "2.610 ± 0.010"));
  EXPECT_TRUE(holds(page, "<span class=\"verdict better\">better</span>"));
  EXPECT_TRUE(holds(page, "<span class=\"verdict none\">undecided</span>"));
  EXPECT_TRUE(holds(page, "<span class=\"verdict failed\">failed</span>"));
  EXPECT_TRUE(holds(page, "loss is not finite at step 12"));
  EXPECT_TRUE(holds(page, "<summary>the numbers of every seed</summary>"));
  EXPECT_TRUE(holds(page, "<td>2.61</td>")) << "of a seed, for the CSV";
  EXPECT_TRUE(holds(page, "class=\"dots narrow ink\"")) << "without a width that a phone has to scroll";
  EXPECT_TRUE(holds(page, "σ(λ)"));
  EXPECT_TRUE(holds(page, "σ(λ) over training</h5>\n<figure"));
  EXPECT_TRUE(holds(page, "A Processor, 2 cores used"));
  EXPECT_TRUE(holds(page, "mnemo compare recipes/demo.toml --seeds 3"));
}

TEST(Report, NeighbouringTicksHaveDifferentLabels) {
  const auto label = [](bool percent, double tick, double step) {
    return report::tick_label({.percent = percent}, tick, step);
  };
  EXPECT_EQ(label(false, 2.415, 0.005), "2.415");
  EXPECT_EQ(label(false, 2.4, 0.1), "2.4");
  EXPECT_EQ(label(false, 50, 10), "50");
  EXPECT_EQ(label(false, -1e-17, 0.1), "0.0");
  EXPECT_EQ(label(true, 0.5, 0.1), "50 %");
  EXPECT_EQ(label(true, 0.415, 0.005), "41.5 %");
  EXPECT_EQ(label(true, 0.4105, 0.0005), "41.05 %");
}

TEST(Report, DrawsTheMetricOverContextAndCost) {
  EXPECT_FALSE(holds(visible(sample_comparison()), "over context and cost")) << "all variants have the same";
  Comparison comparison = sample_comparison();
  StudySummary& study = comparison.studies[0].points[0];
  for (size_t v = 0; v < study.variants.size(); ++v) {
    for (RunResult& run : study.variants[v].runs) {
      run.visible_context = 64 * static_cast<int64_t>(v + 1);
      run.mflops = v == 1 ? 0.7 : 0.5;
    }
  }
  const std::string page = visible(comparison);
  EXPECT_TRUE(holds(page, "<title>segment cache: 2.610 ± 0.010, 128 visible context in training, tokens</title>"));
  EXPECT_TRUE(holds(page, "<title>segment cache: 2.610 ± 0.010, 0.7 MFLOPs a token</title>"));
  EXPECT_TRUE(holds(page, "<title>bits per character over MFLOPs a token</title>"));
  EXPECT_FALSE(holds(page, "<title>broken: ")) << "a failed variant has no value";
}

TEST(Report, EscapesTextFromOutside) {
  const std::string page = visible(sample_comparison());
  EXPECT_TRUE(holds(page, "Memories on &lt;Shakespeare&gt;"));
  EXPECT_TRUE(holds(page, "memory &lt;tokens&gt;"));
  EXPECT_TRUE(holds(page, "citizens &lt;b&gt;"));
  EXPECT_TRUE(holds(page, "&lt;/pre&gt;&lt;script&gt;alert(1)"));
  EXPECT_FALSE(holds(page, "<script>alert"));
  EXPECT_FALSE(holds(page, "memory <tokens>"));
}

TEST(Report, PicturesCannotBringScripts) {
  Comparison comparison = sample_comparison();
  comparison.studies[0].points[0].variants[0].runs[0].masks = {
      {{0}, "mask", "<svg onload=\"alert(2)\"><script>alert(2)</script></svg>"}};
  const std::string page = visible(comparison);
  EXPECT_FALSE(holds(page, "alert(2)\""));
  EXPECT_FALSE(holds(page, "<script>alert"));
  EXPECT_TRUE(holds(page, "data:image/svg+xml,%3Csvg"));
}

TEST(Report, LoadsNothingFromOutside) {
  const std::string page = study::report::report_html(sample_comparison());
  EXPECT_FALSE(holds(page, "src=\"http"));
  EXPECT_FALSE(holds(page, "href=\"http"));
  EXPECT_FALSE(holds(page, "@import"));
  EXPECT_TRUE(holds(page, "Dygraph"));
  EXPECT_TRUE(holds(page, "default-src 'none'"));
}

TEST(Report, EveryMaskIsShownOnceWithThoseThatHaveIt) {
  Comparison comparison = sample_comparison();
  auto& variants = comparison.studies[0].points[0].variants;
  const auto give = [&](size_t variant, std::vector<MaskPicture> masks) {
    for (RunResult& run : variants[variant].runs) run.masks = masks;
  };
  give(0, {{{0, 1}, "plain text", "<svg>plain</svg>"}});
  give(1, {{{0}, "plain text", "<svg>plain</svg>"}, {{1}, "cached text", "<svg>cached</svg>"}});
  give(2, {{{0, 1}, "cached text", "<svg>cached</svg>"}});
  const std::string page = visible(comparison);
  EXPECT_TRUE(holds(page, "<figcaption>no memory; segment cache (layer 0)</figcaption>"));
  EXPECT_TRUE(holds(page, "<figcaption>segment cache (layer 1); memory &lt;tokens&gt;</figcaption>"));
  const auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("%3Csvg%3Eplain"), 1u);
  EXPECT_EQ(count("%3Csvg%3Ecached"), 1u);
}

TEST(Report, CurvesAreJsonThatEndsNoScript) {
  Comparison comparison = sample_comparison();
  comparison.studies[0].points[0].variants[1].name = "</script><b>";
  const std::string page = study::report::report_html(comparison);
  const std::string open = "id=\"curves\">";
  const size_t begin = page.find(open) + open.size();
  const std::string json = page.substr(begin, page.find("</script>", begin) - begin);
  const base::Node curves = base::parse_json(json, "curves");
  ASSERT_EQ(curves.size(), 1u);
  const base::Node& series = curves.items()[0].at("series");
  ASSERT_EQ(series.size(), 5u);
  EXPECT_EQ(series.items()[1].at("name").as_string(), "</script><b>");
  EXPECT_EQ(series.items()[0].at("points").size(), 40u);
  EXPECT_TRUE(series.items()[0].at("points").items()[0].at("held_out").is_null());
}

TEST(Report, DrawsASweepWithThePapersValues) {
  Comparison comparison = sample_comparison();
  comparison.studies = {sample_grid()};
  const std::string page = visible(comparison);
  EXPECT_TRUE(holds(page, "<title>accuracy over number of &lt;segments&gt;</title>"));
  EXPECT_TRUE(holds(page, "<title>RMT, num_segments 3: 100.0 ± 0.0 %, 3 seeds</title>"));
  EXPECT_TRUE(holds(page, "<title>RMT, the paper: 100.0 % (figure &lt;2&gt;)</title>"));
  EXPECT_TRUE(holds(page, "<title>cache, the paper: 80.0 % (figure 2)</title>"));
  EXPECT_FALSE(holds(page, "the paper: 24")) << "another metric is listed, not drawn";
  EXPECT_TRUE(holds(page, "<td>24.100</td><td class=\"left\">perplexity</td>"));
  EXPECT_TRUE(holds(
      page, "<b>100.0 ± 0.0 %</b> <span class=\"sign better\">▲</span> <span class=\"paper\">[100.0 ± 2.0 %]</span>"));
  EXPECT_TRUE(holds(page, "dashed and hollow"));
  EXPECT_TRUE(holds(page, "<summary>num_segments 9</summary>"));
  EXPECT_FALSE(holds(page, "nan"));
  StudyGrid zeros = sample_grid();
  zeros.paper = {{.variant = "RMT", .labels = {"3"}, .numbers = {3}, .value = 1e9, .source = "a slip"}};
  comparison.studies = {zeros};
  EXPECT_LT(visible(comparison).size(), 2 * page.size()) << "as many lines as percents";
  zeros.paper.clear();
  for (StudySummary& point : zeros.points) {
    point.metric.percent = false;
    for (VariantSummary& variant : point.variants)
      for (RunResult& run : variant.runs) run.value = 0;
    summarise(point);
  }
  comparison.studies = {zeros};
  EXPECT_FALSE(holds(visible(comparison), "nan"));
}

TEST(Report, OnePanelForEveryValueOfTheOtherAxes) {
  Comparison comparison = sample_comparison();
  StudyGrid grid = sample_grid();
  grid.paper.clear();
  grid.axes.push_back({.name = "task", .labels = {"copy", "reverse"}});
  grid.at = {{0, 0}, {1, 1}};
  comparison.studies = {grid};
  const std::string page = visible(comparison);
  EXPECT_TRUE(holds(page, "<figcaption>task copy</figcaption>"));
  EXPECT_TRUE(holds(page, "<figcaption>task reverse</figcaption>"));
  comparison.studies[0].x = 1;
  EXPECT_TRUE(holds(visible(comparison), "<figcaption>num_segments 3</figcaption>"));
}

}  // namespace
}  // namespace mnemo::study
