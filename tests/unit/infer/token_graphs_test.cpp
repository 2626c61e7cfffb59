#include "infer/token_graphs.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "layers/parts.h"
#include "ops/fixed_shapes.h"
#include "tests/support/configurations.h"
#include "tests/support/expect_error.h"
#include "tests/support/run.h"

namespace mnemo::infer {
namespace {

constexpr int64_t kSegment = 11, kStretch = 4;

/// On the CPU the work itself stands for a recording.
TokenGraphs::Work again(const TokenGraphs::Work& work) {
  work();
  return work;
}

std::shared_ptr<models::Model> model_of(const test::Configuration& configuration) {
  models::ModelOptions options = configuration.options;
  options.segment_size = kSegment;
  return test::make_model(options);
}

void put(Progress& progress, int64_t token) {
  progress.pending = token;
  progress.append(token);
}

class TokenGraphsLaw : public testing::TestWithParam<test::Configuration> {};

/// Over three segments: the logits and the state of every token, those of a progress kept from before, and how many
/// tokens a recording ran: in a segment all but the first two and the last, unless shapes do not stay.
TEST_P(TokenGraphsLaw, AStepOfFixedShapesIsTheOrdinaryOne) {
  const c10::InferenceMode inference;
  const auto model = model_of(GetParam());
  TokenGraphs graphs(model, again, kStretch);
  Progress expected = begin(*model), found = expected, kept;
  core::State state_kept;
  const auto compare = [&](const Progress& a, const Progress& b) {
    EXPECT_LE((a.logits - b.logits).abs().max().item<double>(), 1e-10);
    EXPECT_EQ(test::state_difference(a.state, b.state, 1e-10), "");
    EXPECT_EQ(a.used, b.used);
    EXPECT_EQ(b.pending, -1);
  };
  for (int64_t i = 0; i < 3 * kSegment; ++i) {
    SCOPED_TRACE(i);
    put(expected, (5 * i + i * i) % test::kVocab);
    put(found, (5 * i + i * i) % test::kVocab);
    run_pending(*model, expected);
    graphs.run_pending(found);
    compare(expected, found);
    if (HasFailure()) return;
    if (i == 2 * kSegment + 4) kept = found, state_kept = core::clone(found.state);
  }
  EXPECT_EQ(test::state_difference(state_kept, kept.state, 0), "") << "a state that was handed out has changed";
  for (Progress* progress : {&expected, &kept}) put(*progress, 3);
  expected = kept;
  run_pending(*model, expected);
  graphs.run_pending(kept);
  compare(expected, kept);
  EXPECT_GT(graphs.tokens(), kSegment - 4) << "few tokens ran by recordings";
}

INSTANTIATE_TEST_SUITE_P(All, TokenGraphsLaw, testing::ValuesIn(test::configurations()),
                         [](const auto& info) { return info.param.name; });

TEST(TokenGraphs, WhatCannotBeRecordedRunsAsUsual) {
  const c10::InferenceMode inference;
  const auto model = model_of(test::configurations().front());
  int64_t tried = 0;
  TokenGraphs graphs(model, [&](const TokenGraphs::Work& work) -> TokenGraphs::Work {
    ++tried;
    work();
    base::input_error("not here");
  });
  Progress expected = begin(*model), found = expected;
  for (int64_t i = 0; i < 2 * kSegment; ++i) {
    put(expected, i % test::kVocab);
    put(found, i % test::kVocab);
    run_pending(*model, expected);
    graphs.run_pending(found);
    EXPECT_TRUE(at::equal(expected.logits, found.logits)) << i;
  }
  EXPECT_EQ(tried, 1);
  EXPECT_EQ(graphs.tokens(), 0);
}

TEST(TokenGraphs, WeightsThatMoveAreRecordedAnew) {
  const c10::InferenceMode inference;
  const auto model = model_of(test::configurations().front());
  int64_t recordings = 0;
  TokenGraphs graphs(model, [&](const TokenGraphs::Work& work) {
    ++recordings;
    return again(work);
  });
  Progress expected = begin(*model), found = expected;
  std::vector<at::Tensor> before;  // their memory is not used again
  for (int64_t i = 0; i < kSegment - 1; ++i) {
    for (const auto& parameter : model->parameters().all()) before.push_back(parameter.tensor.detach());
    if (i == 5) model->parameters().to(at::kFloat, at::kCPU);
    if (i == 5) model->parameters().to(at::kDouble, at::kCPU);
    if (i == 7) model->parameters().all().front().tensor.mul_(2);
    put(expected, i);
    put(found, i);
    run_pending(*model, expected);
    graphs.run_pending(found);
    EXPECT_LE((expected.logits - found.logits).abs().max().item<double>(), 1e-10) << i;
  }
  EXPECT_EQ(graphs.tokens(), kSegment - 3);
  EXPECT_EQ(recordings, 2);
}

TEST(FixedShapes, TokensAreNotReadOnTheHost) {
  const at::Tensor tokens = at::empty({1, 1}, at::TensorOptions(at::kLong).device(at::kMeta));  // cannot be read
  EXPECT_ANY_THROW(layers::require_tokens(tokens, 5));
  ops::FixedShapes work;
  const ops::FixedShapes::Scope scope(work);
  EXPECT_NO_THROW(layers::require_tokens(tokens, 5));
}

TEST(FixedShapes, ConstantsAreCopiedOnceAndThenKnown) {
  const at::Device meta(at::kMeta);
  ops::FixedShapes work;
  const auto one = [] { return at::tensor({1, 2}, at::kInt); };
  EXPECT_EQ(ops::FixedShapes::now(), nullptr);
  const ops::FixedShapes::Scope scope(work);
  const at::Tensor copy = ops::constant_on(one(), meta);
  EXPECT_TRUE(ops::constant_on(one(), meta).is_same(copy));
  EXPECT_FALSE(ops::constant_on(at::tensor({1, 3}, at::kInt), meta).is_same(copy));
  work.complete();
  EXPECT_TRUE(ops::constant_on(one(), meta).is_same(copy));
  test::expect_error<base::InputError>([&] { ops::constant_on(at::tensor({2, 2}, at::kInt), meta); }, {"changes"});
}

}  // namespace
}  // namespace mnemo::infer
