// Law 8: a state is a value. Rows are selected, repeated, joined, stored and continued as if each sequence ran alone.
#include <map>

#include "tests/conformance/suite.h"
#include "tests/support/expect_error.h"

namespace mnemo::test {
namespace {

constexpr double kExact = 1e-12;

core::State through_a_file(const core::State& state, const core::State& like) {
  std::map<std::string, at::Tensor> file;
  for (const auto& [name, tensor] : core::save(state)) file[name] = tensor.clone();
  return core::load(like, [&](const std::string& name) {
    const auto found = file.find(name);
    return found == file.end() ? at::Tensor() : found->second;
  });
}

class StateIsAValue : public Conformance {
 protected:
  void SetUp() override {
    model_ = make_model(config().options);
    warm_ = warm_state(*model_, 3);
    tokens_ = Numbers(3).tokens({3, 11}, kVocab);
  }
  /// Positions to test: after a whole segment, and if segments have parts, inside one, after two tokens and one more.
  std::vector<std::pair<Plan, Plan>> places() const {
    if (!config().options.backbone.causal()) return {{segments({4}), segments({4, 3})}};
    return {{segments({4}), segments({4, 3})},
            {segments({2}) + Plan{{2, {true, false}}, {1, {false, false}}},
             Plan{{2, {false, false}}, {1, {false, true}}} + segments({3})}};
  }
  static int64_t length(const Plan& plan) {
    int64_t total = 0;
    for (const Call& call : plan) total += call.length;
    return total;
  }

  const at::NoGradGuard no_grad_;
  std::unique_ptr<models::Model> model_;
  core::State warm_;
  at::Tensor tokens_;
};

TEST_P(StateIsAValue, SelectedRowsContinueAsIfComputedAlone) {
  const at::Tensor rows = at::tensor({2, 0, 2}, at::kLong);
  for (const auto& [before, after] : places()) {
    const at::Tensor first = tokens_.narrow(1, 0, length(before)),
                     second = tokens_.narrow(1, length(before), length(after));
    const Outcome start = run(*model_, first, before, warm_);
    const Outcome found = run(*model_, second.index_select(0, rows), after, core::select_batch(start.state, rows));
    const Outcome alone = run(*model_, first.index_select(0, rows), before, core::select_batch(warm_, rows));
    EXPECT_EQ(state_difference(core::select_batch(start.state, rows), alone.state, kExact), "");
    expect_near(found, run(*model_, second.index_select(0, rows), after, alone.state), kExact, "selected");
  }
}

TEST_P(StateIsAValue, RepeatedRowsContinueAlike) {
  const at::Tensor rows = at::tensor({0, 0, 1, 1, 2, 2}, at::kLong);
  for (const auto& [before, after] : places()) {
    const core::State start = run(*model_, tokens_.narrow(1, 0, length(before)), before, warm_).state;
    const at::Tensor second = tokens_.narrow(1, length(before), length(after));
    const Outcome twice = run(*model_, second.index_select(0, rows), after, core::select_batch(start, rows));
    const Outcome once = run(*model_, second, after, start);
    expect_near(twice.hidden, once.hidden.index_select(0, rows), kExact, "repeated");
  }
}

TEST_P(StateIsAValue, SavedAndLoadedItContinuesBitForBit) {
  for (const auto& [before, after] : places()) {
    const core::State start = run(*model_, tokens_.narrow(1, 0, length(before)), before, warm_).state;
    const core::State loaded = through_a_file(start, model_->initial_state(1));
    EXPECT_EQ(state_difference(loaded, start, 0.0), "");
    EXPECT_EQ(core::num_bytes(loaded), core::num_bytes(start));
    const at::Tensor second = tokens_.narrow(1, length(before), length(after));
    expect_near(run(*model_, second, after, loaded), run(*model_, second, after, start), 0.0, "loaded");
  }
}

TEST_P(StateIsAValue, InterleavedSequencesAreTwoSeparateOnes) {
  const at::Tensor other = Numbers(9).tokens({3, 11}, kVocab);
  const Plan plan = segments({3}) + in_parts(config(), {2, 1, 1}) + segments({4});
  const Outcome a = run(*model_, tokens_, plan, warm_), b = run(*model_, other, plan, warm_);
  core::State state_a = warm_, state_b = warm_;
  int64_t done = 0;
  for (const Call& call : plan) {
    const Outcome step_a = run(*model_, tokens_.narrow(1, done, call.length), {call}, state_a);
    const core::State kept = core::clone(step_a.state);
    const Outcome step_b = run(*model_, other.narrow(1, done, call.length), {call}, state_b);
    EXPECT_EQ(state_difference(step_a.state, kept, 0.0), "") << "a call changed a state in place";
    EXPECT_TRUE(same_bits(step_a.hidden, a.hidden.narrow(1, done, call.length)));
    EXPECT_TRUE(same_bits(step_b.hidden, b.hidden.narrow(1, done, call.length)));
    state_a = step_a.state;
    state_b = step_b.state;
    done += call.length;
  }
  EXPECT_EQ(state_difference(state_a, a.state, 0.0), "");
}

TEST_P(StateIsAValue, OneStateIsContinuedManyTimes) {
  for (const core::Mode mode : {core::Mode::evaluate, core::Mode::train}) {
    for (const auto& [before, after] : places()) {
      const core::State start = run(*model_, tokens_.narrow(1, 0, length(before)), before, warm_, mode).state;
      const core::State kept = core::clone(start);
      const at::Tensor second = tokens_.narrow(1, length(before), length(after));
      const Outcome once = run(*model_, second, after, start, mode), again = run(*model_, second, after, start, mode);
      EXPECT_EQ(state_difference(start, kept, 0.0), "") << "a call changed the state it was given";
      expect_near(once, again, 0.0, "again");
      expect_near(run(*model_, second, after, kept, mode), once, 0.0, "from a clone");
    }
  }
}

/// Models in which a segment may stay open between calls.
class StateInsideASegment : public StateIsAValue {};

TEST_P(StateInsideASegment, SequencesAtDifferentPlacesOfASegmentRunTogether) {
  // Three sequences have had 1, 4 and 2 tokens of their segment, after 0, 2 and 1 whole segments; each gets 3 more
  // tokens.
  const std::vector<Plan> before = {Plan{{1, {true, false}}},
                                    segments({2, 3}) + Plan{{3, {true, false}}, {1, {false, false}}},
                                    segments({4}) + Plan{{2, {true, false}}}};
  const Plan after = {{1, {false, false}}, {2, {false, false}}};
  std::vector<core::State> states;
  std::vector<at::Tensor> alone;
  for (int64_t row = 0; row < 3; ++row) {
    const at::Tensor only = at::tensor({row}, at::kLong), mine = tokens_.narrow(0, row, 1);
    const Plan& plan = before[static_cast<size_t>(row)];
    const core::State start = row == 0 ? model_->initial_state(1) : core::select_batch(warm_, only);
    states.push_back(run(*model_, mine.narrow(1, 0, length(plan)), plan, start).state);
    alone.push_back(run(*model_, tokens_.narrow(0, row, 1).narrow(1, 8, 3), after, states.back()).hidden);
  }
  const core::State joined = core::concat_batch(states);
  const Outcome together = run(*model_, tokens_.narrow(1, 8, 3), after, joined);
  expect_near(together.hidden, at::cat(alone), kExact, "together");
  // And separate again: padding on the left changes nothing for the sequence that leaves.
  for (int64_t row = 0; row < 3; ++row) {
    const core::State mine = core::select_batch(together.state, at::tensor({row}, at::kLong));
    const core::State
        own = run(*model_, tokens_.narrow(0, row, 1).narrow(1, 8, 3), after, states[static_cast<size_t>(row)]).state;
    const Plan last = Plan{{1, {false, true}}} + segments({2});
    const at::Tensor more = tokens_.narrow(0, row, 1).narrow(1, 0, 3);
    expect_near(run(*model_, more, last, mine).hidden, run(*model_, more, last, own).hidden, kExact,
                fmt::format("row {} apart", row));
  }
}

TEST_P(StateIsAValue, SequencesWithLongerAndShorterPastsRunTogether) {
  std::vector<core::State> states;
  std::vector<at::Tensor> alone;
  const std::vector<Plan> before = {segments({1}), segments({4, 3}), segments({2})};
  const Plan after = segments({2}) + in_parts(config(), {1, 2}) + segments({1});
  for (int64_t row = 0; row < 3; ++row) {
    const Plan& plan = before[static_cast<size_t>(row)];
    states.push_back(
        run(*model_, tokens_.narrow(0, row, 1).narrow(1, 0, length(plan)), plan, model_->initial_state(1)).state);
    alone.push_back(run(*model_, tokens_.narrow(0, row, 1).narrow(1, 5, 6), after, states.back()).hidden);
  }
  expect_near(run(*model_, tokens_.narrow(1, 5, 6), after, core::concat_batch(states)).hidden, at::cat(alone), kExact,
              "together");
}

TEST_P(StateIsAValue, ResetRowsStartAgainAndOthersGoOn) {
  const at::Tensor reset = at::tensor({0, 1, 0}).to(at::kBool), second = tokens_.narrow(1, 4, 7);
  const core::State state = run(*model_, tokens_.narrow(1, 0, 4), segments({4}), warm_).state;
  const Plan after = segments({3, 4});
  const Outcome found = run(*model_, second, after, core::reset_rows(state, reset, model_->initial_state(3)));
  const at::Tensor on = run(*model_, second, after, state).hidden,
                   again = run(*model_, second, after, model_->initial_state(3)).hidden;
  expect_near(found.hidden, at::where(reset.view({3, 1, 1}), again, on), kExact, "reset");
}

TEST_P(StateIsAValue, PaddedTokensAreAsGoodAsNone) {
  if (!masks_padding(config())) GTEST_SKIP() << "its hashing masks no row";
  const at::Tensor lengths = at::tensor({3, 5, 1}, at::kLong);
  const at::Tensor valid = at::arange(5).unsqueeze(0) < lengths.unsqueeze(1);
  const at::Tensor padded = tokens_.narrow(1, 0, 5);
  for (const Plan& plan : {whole(5), in_parts(config(), {1, 4})}) {
    if (plan.size() > 1 && !parts_are_the_whole(config())) continue;
    const Outcome found = run(*model_, padded, plan, warm_, core::Mode::evaluate, valid);
    for (int64_t row = 0; row < 3; ++row) {
      const int64_t real = lengths[row].item<int64_t>();
      const Outcome alone = run(*model_, padded.narrow(0, row, 1).narrow(1, 0, real), whole(real),
                                core::select_batch(warm_, at::tensor({row}, at::kLong)));
      expect_near(found.hidden.narrow(0, row, 1).narrow(1, 0, real), alone.hidden, kExact, fmt::format("row {}", row));
    }
  }
}

TEST_P(StateIsAValue, WhatStandsInPaddingChangesNothingLater) {
  if (!masks_padding(config())) GTEST_SKIP() << "its hashing masks no row";
  const at::Tensor valid = at::arange(5).unsqueeze(0) < at::tensor({3, 5, 1}, at::kLong).unsqueeze(1);
  const at::Tensor tokens = tokens_.narrow(1, 0, 9);
  const at::Tensor all_valid = at::cat({valid, at::ones({3, 4}, at::kBool)}, 1);
  at::Tensor other = tokens.clone();
  other.narrow(1, 0, 5).add_(valid.logical_not().to(at::kLong) * 5).remainder_(kVocab);
  for (const core::Mode mode : {core::Mode::evaluate, core::Mode::train}) {
    for (const Plan& plan : {segments({5, 4}), in_parts(config(), {1, 4}) + segments({2, 2})}) {
      const at::Tensor found = run(*model_, other, plan, warm_, mode, all_valid).hidden;
      const at::Tensor expected = run(*model_, tokens, plan, warm_, mode, all_valid).hidden;
      const at::Tensor differs = (found - expected).abs().amax(-1);
      EXPECT_EQ(differs.masked_fill(all_valid.logical_not(), 0.0).max().item<double>(), 0.0);
      // The block of an encoder's recurrent tokens has its own token for padding.
      const bool own_padding = !config().options.backbone.causal() && config().has("recurrent_tokens");
      EXPECT_EQ(differs.masked_fill(all_valid, 0.0).max().item<double>() > 1e-6, !own_padding);
    }
  }
}

TEST_P(StateIsAValue, PaddingMayStandOnEitherSide) {
  const at::Tensor valid = at::arange(5).unsqueeze(0) < at::tensor({3, 5, 2}, at::kLong).unsqueeze(1);
  const at::Tensor tokens = tokens_.narrow(1, 0, 5).masked_fill(valid.logical_not(), 0), left = valid.flip(1);
  // The real tokens of each sequence, in their order, behind its padding or on both sides of it.
  for (const at::Tensor& places : {left, left.roll(1, 1)}) {
    const at::Tensor moved = at::zeros_like(tokens).masked_scatter(places, tokens.masked_select(valid));
    for (const core::Mode mode : {core::Mode::evaluate, core::Mode::train}) {
      const Outcome right = run(*model_, tokens, whole(5), warm_, mode, valid),
                    found = run(*model_, moved, whole(5), warm_, mode, places);
      expect_near(found.hidden.index({places}), right.hidden.index({valid}), 0.0, "rows");
      EXPECT_EQ(state_difference(found.state, right.state, 0.0), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StateIsAValue, testing::ValuesIn(decoders_and_encoders()), name_of);
INSTANTIATE_TEST_SUITE_P(All, StateInsideASegment, testing::ValuesIn(configurations()), name_of);

/// Mechanisms for which a padded segment leaves the same state as the unpadded one: they never count padding rows.
/// (Distances in a segment cache and to the write rows of RMT do: there padding is time that passes.)
class PaddedPast : public Conformance {};

TEST_P(PaddedPast, IsThatOfRealTokens) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 3);
  const at::Tensor lengths = at::tensor({3, 5, 1}, at::kLong), tokens = Numbers(3).tokens({3, 9}, kVocab);
  const at::Tensor valid = at::arange(5).unsqueeze(0) < lengths.unsqueeze(1);
  const core::State padded = run(*model, tokens.narrow(1, 0, 5), whole(5), warm, core::Mode::evaluate, valid).state;
  const at::Tensor found = run(*model, tokens.narrow(1, 5, 4), segments({4}), padded).hidden;
  for (int64_t row = 0; row < 3; ++row) {
    const int64_t real = lengths[row].item<int64_t>();
    const at::Tensor mine = tokens.narrow(0, row, 1);
    const core::State alone = run(*model, mine.narrow(1, 0, real), whole(real),
                                  core::select_batch(warm, at::tensor({row}, at::kLong)))
                                  .state;
    expect_near(found.narrow(0, row, 1), run(*model, mine.narrow(1, 5, 4), segments({4}), alone).hidden, kExact,
                fmt::format("row {}", row));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PaddedPast, testing::ValuesIn(configurations_where([](const Configuration& c) {
                           return !c.has("segment_cache") && !c.has("attention_cache") && !c.has("recurrent_tokens");
                         })),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Encoders, PaddedPast, testing::ValuesIn(encoders()), name_of);

// A training segment with padding updates the model's cache like the real tokens alone.
TEST(PaddedTraining, LeavesPaddingOutOfTheModelsCache) {
  auto model = make_model(configuration("grc", {"memory[0].type=grc", "memory[0].cache_len=3"}).options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 3);
  const at::Tensor tokens = Numbers(3).tokens({3, 5}, kVocab), lengths = at::tensor({2, 0, 5}, at::kLong);
  const at::Tensor valid = at::arange(5).unsqueeze(0) < lengths.unsqueeze(1);
  const auto padded = run(*model, tokens, whole(5), warm, core::Mode::train, valid).state.fields();
  const auto first = run(*model, tokens.narrow(0, 0, 1).narrow(1, 0, 2), whole(2),
                         core::select_batch(warm, at::tensor({0}, at::kLong)), core::Mode::train)
                         .state.fields();
  const auto third = run(*model, tokens.narrow(0, 2, 1), whole(5), core::select_batch(warm, at::tensor({2}, at::kLong)),
                         core::Mode::train)
                         .state.fields();
  ASSERT_EQ(padded.size(), 2U);
  for (size_t i = 0; i < 2; ++i)
    expect_near(padded[i].second, (first[i].second + third[i].second) / 2, 1e-13, padded[i].first.path);
}

// Why a state is rejected.
TEST(WrongState, OfAnotherModelIsRefused) {
  std::vector<std::unique_ptr<models::Model>> models;
  for (const Configuration& one : configurations()) models.push_back(make_model(one.options));
  const at::NoGradGuard no_grad;
  const auto shapes = [](const core::State& state) {
    std::string text;
    for (const auto& [field, tensor] : state.fields())
      text += fmt::format("{} {}; ", field.path, c10::str(tensor.sizes()));
    return text;
  };
  const at::Tensor tokens = Numbers(3).tokens({2, 3}, kVocab);
  for (size_t i = 0; i < models.size(); ++i) {
    const core::State own = models[i]->initial_state(2);
    for (size_t j = 0; j < models.size(); ++j) {
      const core::State other = models[j]->initial_state(2);
      if (shapes(own) == shapes(other)) continue;
      try {
        run(*models[i], tokens, whole(3), other);
        ADD_FAILURE() << configurations()[i].name << " took a state of " << configurations()[j].name;
      } catch (const base::InputError& error) {
        EXPECT_NE(std::string(error.what()).find("state"), std::string::npos) << error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << configurations()[i].name << " with a state of " << configurations()[j].name << ": "
                      << error.what();
      }
    }
  }
}

class WrongCall : public Conformance {};

TEST_P(WrongCall, IsRefused) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State start = model->initial_state(2);
  const at::Tensor tokens = Numbers(3).tokens({2, 3}, kVocab);
  for (const int64_t wrong : {int64_t{-1}, kVocab, int64_t{1} << 40}) {
    at::Tensor bad = tokens.clone();
    bad[1][2] = wrong;
    expect_error<base::InputError>([&] { run(*model, bad, whole(3), start); },
                                   {"tokens 0 to 12", std::to_string(wrong)});
  }
  expect_error<base::InputError>([&] { run(*model, tokens, {{3, {false, true}}}, start); }, {"part.starts"});
  const core::State open = run(*model, tokens, {{3, {true, false}}}, start).state;
  expect_error<base::InputError>([&] { run(*model, tokens, whole(3), open); }, {"open", "part.starts"});
  expect_error<base::InputError>([&] { core::concat_batch({open, start}); }, {"concat_batch", "fields"});
  // A document cannot start inside a segment.
  expect_error<base::InputError>([&] { core::reset_rows(open, at::ones({2}, at::kBool), start); },
                                 {"reset_rows", "segment starts"});
  // A batch whose size differs from that of the state, if there is a state that knows it.
  bool per_sequence = false;
  for (const auto& [field, tensor] : start.fields()) per_sequence |= field.per_sequence();
  const at::Tensor three = Numbers(3).tokens({3, 3}, kVocab);
  if (per_sequence) {
    expect_error<base::InputError>([&] { run(*model, three, whole(3), start); }, {"state", "3", "2"});
  }
  expect_error<base::InputError>([&] { run(*model, three, {{3, {false, true}}}, open); }, {"state", "3", "2"});
  // A file of another model, and one with a tensor of the wrong shape.
  const core::State like = model->initial_state(1);
  if (!like.fields().empty()) {
    expect_error<base::InputError>([&] { core::load(like, [](const std::string&) { return at::Tensor(); }); },
                                   {"expected a tensor", "found none"});
    expect_error<base::InputError>(
        [&] { core::load(like, [](const std::string&) {
                return at::zeros({1, 1, 1, 1, 1}, at::kDouble);
              }); },
        {"should be", "[1, 1, 1, 1, 1]"});
  }
}

INSTANTIATE_TEST_SUITE_P(All, WrongCall, testing::ValuesIn(configurations()), name_of);

}  // namespace
}  // namespace mnemo::test
