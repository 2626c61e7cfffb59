// Encoders and classifiers. Laws 1 and 2 do not apply to them, for a reason tested here: a row depends on rows to its
// right, so no part of a segment can be computed before the rest, and an output does depend on later tokens. The laws
// on states, padding, batches and scratch memory hold for every model: state_test, limits_test and scratch_test run
// them on encoders().
#include "base/ignore_target.h"
#include "tests/conformance/suite.h"
#include "tests/support/expect_error.h"
#include "train/segment_bptt.h"

namespace mnemo::test {
namespace {

std::vector<Configuration> encoders_and_classifiers() {
  std::vector<Configuration> list = encoders();
  list.insert(list.end(), classifiers().begin(), classifiers().end());
  return list;
}

class BothWays : public Conformance {};

TEST_P(BothWays, TheFirstRowDependsOnTheLastToken) {
  if (config().attention() == "lsh") GTEST_SKIP() << "a row sees those that are hashed like it";
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 2);
  const at::Tensor tokens = Numbers(3).tokens({2, 5}, kVocab);
  at::Tensor other = tokens.clone();
  other.select(1, 4).add_(1).remainder_(kVocab);
  EXPECT_GT(difference(run(*model, tokens, whole(5), warm).hidden.select(1, 0),
                       run(*model, other, whole(5), warm).hidden.select(1, 0)),
            1e-6);
}

TEST_P(BothWays, SegmentsHaveNoParts) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State start = model->initial_state(2);
  const at::Tensor tokens = Numbers(3).tokens({2, 3}, kVocab);
  for (const core::Part part : {core::Part{true, false}, {false, true}, {false, false}}) {
    expect_error<base::InputError>(
        [&] {
          run(*model, tokens, {{3, part}}, start);
        },
        {"encoder", "part.starts", "part.ends"});
  }
}

TEST_P(BothWays, SegmentsAreJoinedByTheStateAlone) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 2);
  const at::Tensor tokens = Numbers(3).tokens({2, 7}, kVocab);
  const at::Tensor second = run(*model, tokens.narrow(1, 4, 3), whole(3),
                                run(*model, tokens.narrow(1, 0, 4), whole(4), warm).state)
                                .hidden;
  const at::Tensor alone = run(*model, tokens.narrow(1, 4, 3), whole(3), warm).hidden;
  bool carries = false;
  for (const auto& [field, tensor] : warm.fields()) carries = carries || (field.per_sequence() && tensor.numel() > 0);
  if (carries) {
    EXPECT_GT(difference(second, alone), 1e-6);
  } else {
    EXPECT_TRUE(same_bits(second, alone));
  }
}

TEST_P(BothWays, ASequenceWithoutATokenIsPassedOver) {
  auto model = make_model(config().options);
  const at::Tensor tokens = Numbers(3).tokens({3, 5}, kVocab);
  const at::Tensor valid = at::arange(5).unsqueeze(0) < at::tensor({3, 0, 5}, at::kLong).unsqueeze(1);
  const core::State warm = warm_state(*model, 3);
  const Outcome found = run(*model, tokens, whole(5), warm, core::Mode::train, valid);
  const at::Tensor others = at::tensor({0, 2}, at::kLong);
  for (const auto& [field, tensor] : found.state.fields()) {
    if (!field.per_sequence()) continue;
    for (const auto& [before, old] : warm.fields()) {
      if (before.path != field.path) continue;
      EXPECT_TRUE(same_bits(tensor.select(0, 1), old.select(0, 1))) << field.path;
    }
  }
  const Outcome without = run(*model, tokens.index_select(0, others), whole(5), core::select_batch(warm, others),
                              core::Mode::train, valid.index_select(0, others));
  EXPECT_EQ(state_difference(core::select_batch(found.state, others), without.state, 1e-12), "");
  // The gradient does not show it, and has no NaN.
  found.hidden.index_select(0, others).square().sum().backward();
  for (const auto& [name, tensor] : model->parameters().named()) {
    EXPECT_TRUE(!tensor.grad().defined() || tensor.grad().isfinite().all().item<bool>()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BothWays, testing::ValuesIn(encoders_and_classifiers()), name_of);

class Classifier : public Conformance {
 protected:
  void SetUp() override {
    model_ = make_model(config().options);
    warm_ = warm_state(*model_, 3);
  }
  at::Tensor logits(const at::Tensor& tokens, const Plan& plan, const core::State& state,
                    const at::Tensor& valid = {}) const {
    return model_->logits(run(*model_, tokens, plan, state, core::Mode::evaluate, valid).hidden);
  }

  const at::NoGradGuard no_grad_;
  std::unique_ptr<models::Model> model_;
  core::State warm_;
};

TEST_P(Classifier, GivesOneRowASegment) {
  const at::Tensor tokens = Numbers(3).tokens({3, 9}, kVocab);
  const Outcome found = run(*model_, tokens, segments({4, 5}), warm_);
  EXPECT_EQ(found.hidden.sizes(), at::IntArrayRef({3, 2, 8}));
  EXPECT_EQ(model_->logits(found.hidden).sizes(), at::IntArrayRef({3, 2, 3}));
  const at::Tensor labels = at::tensor(std::vector<int64_t>{0, 2, base::kIgnoreTarget, 1, 1, 0}).view({3, 2});
  const at::Tensor nll = model_->nll(found.hidden, labels), log_p = at::log_softmax(model_->logits(found.hidden), -1);
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t s = 0; s < 2; ++s) {
      const auto label = labels[b][s].item<int64_t>();
      EXPECT_NEAR(nll[b][s].item<double>(), label < 0 ? 0.0 : -log_p[b][s][label].item<double>(), 1e-14);
    }
  }
}

TEST_P(Classifier, PaddingOnTheRightChangesNothing) {
  const at::Tensor tokens = Numbers(3).tokens({3, 9}, kVocab), lengths = at::tensor({3, 5, 1}, at::kLong);
  const at::Tensor first = at::arange(5).unsqueeze(0) < lengths.unsqueeze(1),
                   valid = at::cat({first, at::ones({3, 4}, at::kBool)}, 1);
  const at::Tensor found = logits(tokens, segments({5, 4}), warm_, valid);
  at::Tensor other = tokens.clone();
  other.narrow(1, 0, 5).add_(first.logical_not().to(at::kLong) * 5).remainder_(kVocab);
  EXPECT_TRUE(same_bits(logits(other, segments({5, 4}), warm_, valid), found));
  for (int64_t row = 0; row < 3; ++row) {
    const int64_t real = lengths[row].item<int64_t>();
    const at::Tensor mine = tokens.narrow(0, row, 1),
                     alone = at::cat({mine.narrow(1, 0, real), mine.narrow(1, 5, 4)}, 1);
    const core::State state = core::select_batch(warm_, at::tensor({row}, at::kLong));
    expect_near(found.narrow(0, row, 1), logits(alone, segments({real, 4}), state), 1e-12, fmt::format("row {}", row));
  }
}

TEST_P(Classifier, OrderAndCompanyDoNotMatterInEvaluation) {
  const at::Tensor tokens = Numbers(3).tokens({3, 9}, kVocab), order = at::tensor({2, 0, 1}, at::kLong);
  const Plan plan = segments({4, 5});
  const at::Tensor expected = logits(tokens, plan, warm_);
  expect_near(logits(tokens.index_select(0, order), plan, core::select_batch(warm_, order)),
              expected.index_select(0, order), 1e-12, "order");
  const at::Tensor only = at::tensor({1}, at::kLong);
  expect_near(logits(tokens.index_select(0, only), plan, core::select_batch(warm_, only)),
              expected.index_select(0, only), 1e-12, "alone");
}

TEST_P(Classifier, AStateThatWasCopiedOrStartedAgainIsAValue) {
  const at::Tensor tokens = Numbers(3).tokens({3, 9}, kVocab), reset = at::tensor({0, 1, 0}).to(at::kBool);
  const core::State state = run(*model_, tokens.narrow(1, 0, 4), whole(4), warm_).state, kept = core::clone(state);
  const at::Tensor second = tokens.narrow(1, 4, 5), on = logits(second, whole(5), state);
  EXPECT_EQ(state_difference(state, kept, 0.0), "");
  EXPECT_TRUE(same_bits(on, logits(second, whole(5), kept)));
  const at::Tensor again = logits(second, whole(5), model_->initial_state(3));
  expect_near(logits(second, whole(5), core::reset_rows(state, reset, model_->initial_state(3))),
              at::where(reset.view({3, 1, 1}), again, on), 1e-12, "reset");
}

INSTANTIATE_TEST_SUITE_P(All, Classifier, testing::ValuesIn(classifiers()), name_of);

// The learned tokens that enter a document's first segment are not a boundary: the loss of segment s reaches them if s
// <= depth. A sequence that has been skipped so far has crossed no boundary with a token of its own, but its boundaries
// count like those of its batch.
TEST(EncoderMemory, IsReachedByTheFirstLossesOnly) {
  for (const auto& [word, depth] : std::vector<std::pair<std::string, int64_t>>{{"0", 0}, {"1", 1}, {"full", -1}}) {
    for (int64_t from = 0; from < 4; ++from) {
      auto assignments = options_of(
          {"backbone.type=encoder", "backbone.attention.type=softmax", "memory[0].type=recurrent_tokens",
           "memory[0].num_mem_tokens=2", "memory[0].layout=encoder", "memory[0].cls_token=1", "memory[0].sep_token=2",
           "memory[0].pad_token=0", "memory[0].bptt_depth=" + word, "head.type=classification", "head.num_classes=3"});
      auto model = make_model(base::read_options<models::ModelOptions>(assignments));
      Numbers numbers(4);
      std::vector<train::BpttSegment> segments(4);
      for (auto& segment : segments) segment.input.tokens = numbers.tokens({2, 3}, kVocab);
      train::backward_segments(
          *model, segments, model->initial_state(2), [&](const core::StepResult& step, size_t index) {
            return static_cast<int64_t>(index) == from ? model->nll(step.hidden, at::ones({2, 1}, at::kLong)).sum()
                                                       : at::Tensor();
          });
      const at::Tensor gradient = model->parameters().find("memory.tokens").grad();
      EXPECT_EQ(gradient.defined() && largest(gradient) > 0, depth < 0 || from <= depth)
          << "depth " << word << ", loss " << from;
    }
  }
}

}  // namespace
}  // namespace mnemo::test
