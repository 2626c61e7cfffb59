#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "cli/allocation_meter.h"
#include "cli/bench_case.h"

namespace mnemo::cli {
namespace {

/// The benchmark's case of that name with small layers.
BenchCase small(const std::string& name) {
  for (BenchCase bench_case : bench_cases()) {
    if (bench_case.name != name) continue;
    bench_case.layers = 2;
    bench_case.dim = 32;
    bench_case.ffn = 64;
    bench_case.batch = 2;
    return bench_case;
  }
  ADD_FAILURE() << name;
  return bench_cases().front();
}

TEST(AllocationMeter, CountsBytesOfTensorsFreedOnesToo) {
  at::Tensor before = at::empty({1000});
  const AllocationMeter meter;
  EXPECT_EQ(meter.bytes(), 0);
  { const at::Tensor freed = at::empty({1000}); }
  const at::Tensor kept = at::empty({500}, at::kDouble), view = kept.narrow(0, 0, 10);
  before.resize_({2000});  // by the allocator that made it
  EXPECT_EQ(meter.bytes(), 8000);
}

TEST(Bench, ATokenAllocatesNoMoreFarOutThanNearBy) {
  for (const char* name : {"demo", "rmt", "abc", "decoder"}) {
    BenchSubject subject(small(name));
    subject.allocated(64);  // tables of constants are made once
    const double near = subject.allocated(64);
    EXPECT_GT(near, 0) << name;
    EXPECT_EQ(subject.allocated(1024), near) << name;
    EXPECT_EQ(subject.allocated(16384), near) << name;
  }
}

TEST(Bench, ATokenAllocatesHardlyMoreInALongSegment) {
  for (const char* name : {"transformer_xl", "decoder"}) {
    BenchCase bench_case = small(name);
    std::vector<double> bytes;
    for (const int64_t segment : {64, 1024}) {
      bench_case.segment = segment;
      bench_case.mem_len = std::min(bench_case.mem_len, segment);
      BenchSubject subject(bench_case);
      subject.allocated(segment);
      bytes.push_back(subject.allocated(segment));
    }
    EXPECT_LT(bytes[1], 3 * bytes[0]) << name;  // scores of one query; copying what is past would make it 10
  }
}

TEST(Bench, FiguresTellAModelFromAnother) {
  BenchCase bench_case = small("demo");
  const BenchFigures figures = BenchSubject(bench_case).figures();
  EXPECT_EQ(figures.tokens.size(), 80u);
  EXPECT_GT(figures.loss, 1.0);
  EXPECT_GT(figures.gradient_norm, 0.0);
  EXPECT_EQ(disagreement(figures, BenchSubject(bench_case).figures()), "");
  bench_case.mem_len = 16;
  EXPECT_NE(disagreement(figures, BenchSubject(bench_case).figures()), "");
}

TEST(Bench, LikeliestTokensVaryInEveryCase) {
  for (const BenchCase& bench_case : bench_cases()) {
    const BenchFigures figures = BenchSubject(small(bench_case.name)).figures();
    std::vector<int64_t> tokens = figures.tokens;
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    EXPECT_GT(tokens.size(), 5u) << bench_case.name;
  }
}

TEST(Bench, ADisagreementNamesTheFigureAndBothNumbers) {
  const BenchFigures ours{2.0, 1.0, 3.0, {1, 2, 3}};
  BenchFigures theirs = ours;
  theirs.loss = 2.0001;
  EXPECT_EQ(disagreement(ours, theirs), "");
  theirs.loss = 2.001;
  EXPECT_EQ(disagreement(ours, theirs), "loss: ours 2, the peer's 2.001");
  theirs = ours;
  theirs.gradient_norm = 1.002;
  EXPECT_EQ(disagreement(ours, theirs), "gradient norm: ours 1, the peer's 1.002");
  theirs = ours;
  theirs.held_out = 0;
  EXPECT_EQ(disagreement(ours, theirs), "loss of the held-out text: ours 3, the peer's 0");
  theirs = ours;
  theirs.tokens[1] = 7;
  EXPECT_EQ(disagreement(ours, theirs), "likeliest token 1: ours 2, the peer's 7");
  theirs.tokens.pop_back();
  EXPECT_EQ(disagreement(ours, theirs), "likeliest tokens: ours are 3, the peer's 2");
  theirs = ours;
  theirs.loss = std::nan("");
  EXPECT_NE(disagreement(ours, theirs), "");
}

TEST(Bench, FiguresOfAPeerAreReadOrRefused) {
  const BenchFigures figures = read_figures(R"({"loss": 1.5, "gradient_norm": 2, "tokens": [3, 4], "held_out": 0.5})", "peer");
  EXPECT_EQ(disagreement({1.5, 2, 0.5, {3, 4}}, figures), "");
  EXPECT_THROW(read_figures("Traceback", "peer"), base::InputError);
  EXPECT_THROW(read_figures(R"({"loss": 1.5})", "peer"), base::InputError);
}

}  // namespace
}  // namespace mnemo::cli
