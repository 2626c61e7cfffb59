// Relative buckets and disentangled attention as modules: what they compute from their projections, alone, beside
// contexts and with padding; and what they reject by name.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <memory>

#include "attention/disentangled.h"
#include "attention/relative_buckets.h"
#include "attention/softmax.h"
#include "base/error.h"
#include "core/kv_state.h"
#include "ops/attention/attention.h"
#include "ops/naive/attention.h"
#include "tests/support/attention_subject.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::attention::position_cores_test {
namespace {

using core::AttendTable;
using core::Rule;
using core::SpanKind;
using test::difference;
using test::expect_error;
using test::Numbers;
using test::open_table;

template <class A>
using Subject = test::AttentionSubject<A>;
constexpr int64_t kDim = 8, kHeads = 2, kWidth = 4;

/// softmax over the keys that the table allows, of these scores, times v.
at::Tensor mix(const at::Tensor& scores, const AttendTable& table, const at::Tensor& v) {
  const at::Tensor mask = table.expand(), allowed = mask.dim() == 2 ? mask : mask.unsqueeze(1);
  return at::matmul(at::softmax(scores.masked_fill(allowed.logical_not(), -1e300), -1), v);
}

TEST(RelativeBucketsCore, IsItsFormulaBesideACacheAndInAnEncoder) {
  for (const bool causal : {true, false}) {
    for (const bool scaled : {true, false}) {
      RelativeBucketsOptions options;
      options.num_buckets = 8;
      options.max_distance = 6;
      options.scaled = scaled;
      const Subject<RelativeBuckets> s(options, causal);
      Numbers numbers(1);
      const at::Tensor x = numbers.normal({2, 9, kDim}), cache = numbers.normal({2, 3, kDim});
      AttendTable table({SpanKind::tokens, 9}, causal ? Rule::causal() : Rule::all());
      if (causal) table.append_context({SpanKind::cache, 3}, Rule::causal());
      const at::Tensor rows = causal ? at::cat({cache, x}, 1) : x;
      const ops::RelativeBuckets buckets{!causal, 8, 6};
      const at::Tensor contents = at::matmul(s.heads("q", x), s.heads("k", rows).transpose(-1, -2)),
                       bias = ops::bucket_bias_naive(s.parameters.find("relative_bias"), buckets, 9, rows.size(1));
      const at::Tensor o = mix(contents * (scaled ? 1.0 / std::sqrt(double{kWidth}) : 1.0) + bias, table,
                               s.heads("v", rows));
      EXPECT_LE(difference(s.forward(x, table, causal ? cache : at::Tensor()), s.project(o)), 1e-13)
          << causal << scaled;
    }
  }
}

TEST(RelativeBucketsCore, LayersShareOneTable) {
  layers::ParameterSet parameters(1, at::kDouble);
  const layers::Scope root = parameters.root();
  for (const char* layer : {"0", "1"}) {
    const RelativeBuckets made({},
                               core::AttentionBuild{root / layer, root / layer, root, kDim, kHeads, kWidth, true, 0.3});
  }
  EXPECT_EQ(parameters.find("relative_bias").sizes(), at::IntArrayRef({32, kHeads}));
  EXPECT_EQ(parameters.all().size(), 9u);
}

TEST(DisentangledCore, IsItsFormulaWithPadding) {
  for (const bool shared : {true, false}) {
    DisentangledOptions options;
    options.num_buckets = 4;
    options.max_distance = 16;
    options.share_att_key = shared;
    options.norm_positions = shared;
    const Subject<Disentangled> s(options);
    const at::Tensor x = Numbers(1).normal({2, 9, kDim});
    AttendTable table = open_table(9);
    table.set_valid(at::arange(9).unsqueeze(0) < at::tensor({9, 5}).unsqueeze(1));
    at::Tensor positions = s.parameters.find("rel_embeddings");
    if (shared)
      positions = at::layer_norm(positions, {kDim}, s.parameters.find("rel_norm.weight"),
                                 s.parameters.find("rel_norm.bias"), 1e-7);
    const at::Tensor rows = ops::DistanceRowsOfTable{4, 16}.rows(9, 9);
    const at::Tensor scores = ops::disentangled_scores_naive(
        s.heads("q", x), s.heads("k", x), s.heads(shared ? "k" : "position_k", positions),
        s.heads(shared ? "q" : "position_q", positions), rows, 1.0 / std::sqrt(3.0 * kWidth));
    EXPECT_LE(difference(s.forward(x, table), s.project(mix(scores, table, s.heads("v", x)))), 1e-13) << shared;
  }
}

TEST(DisentangledCore, WithoutTermsOfPositionsIsSoftmax) {
  DisentangledOptions options;
  options.c2p = options.p2c = false;
  const Subject<Disentangled> s(options);
  const at::Tensor x = Numbers(1).normal({2, 5, kDim});
  const at::Tensor o = ops::attention_naive(s.heads("q", x), s.heads("k", x), s.heads("v", x), {}, ops::RelShift::none,
                                            {}, 1.0 / std::sqrt(double{kWidth}));
  EXPECT_LE(difference(s.forward(x, open_table(5)), s.project(o)), 1e-13);
}

TEST(DisentangledCore, RefusesACausalModel) {
  expect_error<base::InputError>([] { Subject<Disentangled>({}, true); },
                                 {"disentangled attention reads rows on both sides", "backbone.type = \"encoder\""});
}

TEST(SoftmaxCore, UnscaledIsThatOfLongerQueries) {
  SoftmaxOptions options;
  options.scaled = false;
  const Subject<Softmax> s(options);
  const at::Tensor x = Numbers(1).normal({1, 5, kDim});
  const at::Tensor o = ops::attention_naive(s.heads("q", x), s.heads("k", x), s.heads("v", x), {}, ops::RelShift::none,
                                            {}, 1.0);
  EXPECT_LE(difference(s.forward(x, open_table(5)), s.project(o)), 1e-13);
  EXPECT_FALSE(s.attention->reads_by_softmax());
}

}  // namespace
}  // namespace mnemo::attention::position_cores_test
