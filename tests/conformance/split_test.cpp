// Law 1: whole sequence = any split of it = token by token. Law 2: nothing depends on later tokens.
#include "tests/conformance/suite.h"

namespace mnemo::test {
namespace {

constexpr double kTolerance = 1e-12;

class Split : public Conformance {};

TEST_P(Split, ASegmentIsTheSameInAnyParts) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 2), fresh = model->initial_state(2);
  Numbers numbers(3);
  for (const core::Mode mode : {core::Mode::evaluate, core::Mode::train}) {
    for (const core::State& start : {fresh, warm}) {
      for (const int64_t length : {1, 2, 5}) {
        const at::Tensor tokens = numbers.tokens({2, length}, kVocab);
        const Outcome expected = run(*model, tokens, whole(length), start, mode);
        for (int64_t cut = 1; cut < length; ++cut) {
          expect_near(run(*model, tokens, parts({cut, length - cut}), start, mode), expected, kTolerance,
                      fmt::format("{} tokens cut at {}", length, cut));
        }
        expect_near(run(*model, tokens, by_token(length), start, mode), expected, kTolerance,
                    fmt::format("{} tokens, one by one", length));
      }
    }
  }
  const at::Tensor tokens = numbers.tokens({2, 9}, kVocab);
  expect_near(run(*model, tokens, parts({3, 1, 5}), warm), run(*model, tokens, whole(9), warm), kTolerance,
              "parts of 3, 1 and 5");
}

TEST_P(Split, InFloat32Too) {
  auto model = make_model(config().options, at::kFloat);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 2);
  const at::Tensor tokens = Numbers(4).tokens({2, 7}, kVocab);
  const Outcome expected = run(*model, tokens, whole(7), warm);
  expect_near(run(*model, tokens, by_token(7), warm), expected, 1e-5, "one by one");
  expect_near(run(*model, tokens, parts({3, 4}), warm), expected, 1e-5, "cut at 3");
}

TEST_P(Split, GradientsAreTheSameInAnyParts) {
  auto model = make_model(config().options);
  const core::State warm = warm_state(*model, 2);
  Numbers numbers(5);
  const at::Tensor tokens = numbers.tokens({2, 5}, kVocab), weights = numbers.normal({2, 5, 8});
  const auto gradients = [&](const Plan& plan) {
    model->parameters().zero_grad();
    const Outcome result = run(*model, tokens, plan, warm, core::Mode::train);
    at::Tensor loss = (result.hidden * weights).sum();
    for (const auto& [field, tensor] : result.state.fields()) {
      if (tensor.requires_grad()) loss = loss + at::where(at::isfinite(tensor), tensor, 0.0).sum();
    }
    loss.backward();
    std::vector<at::Tensor> all;
    for (const auto& [name, tensor] : model->parameters().named()) {
      all.push_back(tensor.grad().defined() ? tensor.grad().clone() : at::zeros_like(tensor));
    }
    return all;
  };
  const auto expected = gradients(whole(5));
  for (const Plan& plan : {parts({2, 3}), by_token(5)}) {
    const auto found = gradients(plan);
    for (size_t i = 0; i < found.size(); ++i) {
      expect_near(found[i], expected[i], 1e-11, model->parameters().all()[i].name);
    }
  }
}

TEST_P(Split, NoOutputDependsOnLaterTokens) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 1), fresh = model->initial_state(1);
  const Plan plan = segments({4}) + parts({2, 1, 2}) + segments({3});
  const at::Tensor tokens = Numbers(6).tokens({1, 12}, kVocab);
  for (const auto& [start, mode] : {std::pair(warm, core::Mode::evaluate), std::pair(warm, core::Mode::train),
                                    std::pair(fresh, core::Mode::evaluate)}) {
    const at::Tensor expected = run(*model, tokens, plan, start, mode).hidden;
    for (int64_t changed = 0; changed < 12; ++changed) {
      at::Tensor other = tokens.clone();
      other.select(1, changed).add_(1).remainder_(kVocab);
      const at::Tensor found = run(*model, other, plan, start, mode).hidden;
      EXPECT_TRUE(same_bits(found.narrow(1, 0, changed), expected.narrow(1, 0, changed))) << "token " << changed;
      EXPECT_GT(difference(found.select(1, changed), expected.select(1, changed)), 1e-6) << "token " << changed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Split, testing::ValuesIn(configurations_where(parts_are_the_whole)), name_of);

// For mechanisms whose parts do not equal the whole: a token's output is that of the segment up to it, and later calls
// change no bit of it.
class PrefixSplit : public Conformance {};

TEST_P(PrefixSplit, ATokensOutputIsThatOfItsPrefix) {
  models::ModelOptions options = config().options;
  options.backbone.stack()
      .num_layers = 1;  // with two layers, the upper one sees rows that were computed at different times
  auto model = make_model(options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 2);
  const at::Tensor tokens = Numbers(3).tokens({2, 16}, kVocab);
  const auto prefix = [&](int64_t length) {
    return run(*model, tokens.narrow(1, 0, length), Plan{{length, {true, false}}}, warm).hidden;
  };
  Plan open = {{1, {true, false}}};
  for (int64_t t = 1; t < 16; ++t) open.push_back({1, {false, false}});
  const at::Tensor found = run(*model, tokens, open, warm).hidden;
  for (int64_t t = 0; t < 16; ++t)
    expect_near(found.select(1, t), prefix(t + 1).select(1, t), kTolerance, fmt::format("token {}", t));
  EXPECT_GT(difference(prefix(16), found), 1e-6) << "parts are the whole after all";
}

TEST_P(PrefixSplit, NoOutputDependsOnLaterCalls) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 2);
  const at::Tensor tokens = Numbers(3).tokens({2, 7}, kVocab);
  at::Tensor other = tokens.clone();
  other.select(1, 5).add_(1).remainder_(kVocab);
  const at::Tensor changed = run(*model, other, by_token(7), warm).hidden,
                   expected = run(*model, tokens, by_token(7), warm).hidden;
  EXPECT_TRUE(same_bits(changed.narrow(1, 0, 5), expected.narrow(1, 0, 5)));
  EXPECT_GT(difference(changed.select(1, 5), expected.select(1, 5)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, PrefixSplit, testing::ValuesIn(configurations_where([](const Configuration& c) {
                           return !parts_are_the_whole(c);
                         })),
                         name_of);

class SplitIntoSegments : public Conformance {};

TEST_P(SplitIntoSegments, ASequenceIsTheSameInAnySegments) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 2), fresh = model->initial_state(2);
  for (const int64_t length : {2, 9}) {
    const at::Tensor tokens = Numbers(7).tokens({2, length}, kVocab);
    for (const core::State& start : {fresh, warm}) {
      const Outcome expected = run(*model, tokens, whole(length), start);
      for (int64_t cut = 1; cut < length; ++cut) {
        expect_near(run(*model, tokens, segments({cut, length - cut}), start), expected, kTolerance,
                    fmt::format("cut at {}", cut));
      }
      expect_near(run(*model, tokens, segments(std::vector<int64_t>(static_cast<size_t>(length), 1)), start), expected,
                  kTolerance, "segments of one token");
      if (length == 9) {
        expect_near(run(*model, tokens, segments({2}) + parts({1, 2}) + by_token(3) + segments({1}), start), expected,
                    kTolerance, "segments and parts");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SplitIntoSegments, testing::ValuesIn(configurations_where(any_segments)), name_of);

// The converse: if segment boundaries are part of the maths, moving them must make a difference.
class BordersCount : public Conformance {};

TEST_P(BordersCount, OtherSegmentsGiveOtherOutputs) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(8).tokens({1, 12}, kVocab);
  const core::State fresh = model->initial_state(1);
  EXPECT_GT(
      difference(run(*model, tokens, segments({9, 3}), fresh).hidden, run(*model, tokens, whole(12), fresh).hidden),
      1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, BordersCount, testing::ValuesIn(configurations_where([](const Configuration& c) {
                           return !any_segments(c);
                         })),
                         name_of);

}  // namespace
}  // namespace mnemo::test
