#include "infer/batcher.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/unit/infer/fake_model.h"

namespace mnemo::infer {
namespace {

using base::InputError;
using test::expect_error;
using test::FakeModel;

Session fed(const std::shared_ptr<const core::Model>& model, int64_t length, int64_t seed) {
  const GenerateOptions options = seed % 2 == 0 ? GenerateOptions::greedy()
                                                : GenerateOptions{.temperature = 1.5, .seed = seed};
  Session session(model, options);
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < length; ++i)
    tokens.push_back((i * seed + 2 * i + seed) % core::token_input(model->input()).vocab_size);
  session.feed(tokens);
  return session;
}

std::vector<int64_t> alone(Session session, int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(session.next());
  return tokens;
}

TEST(Batcher, AlignedSessionsRunInOneCall) {
  const auto model = std::make_shared<FakeModel>(11, 4);
  Batcher batcher(model);
  std::vector<Session> sessions;
  for (int64_t seed = 0; seed < 5; ++seed) sessions.push_back(fed(model, 6, seed));
  for (const Session& session : sessions) batcher.add(session);
  model->calls = 0;
  std::map<int64_t, std::vector<int64_t>> texts;
  for (int64_t i = 0; i < 20; ++i) {
    for (const auto& [id, token] : batcher.step()) texts[id].push_back(token);
  }
  EXPECT_EQ(model->calls, 19);
  EXPECT_EQ(model->largest_batch, 5);
  for (int64_t id = 0; id < 5; ++id) EXPECT_EQ(texts[id], alone(sessions[id], 20)) << id;
}

TEST(Batcher, SessionsAtDifferentPlacesMakeTheTextsTheyMakeAlone) {
  for (const int64_t segment_size : {1, 2, 3, 8}) {
    const auto model = std::make_shared<FakeModel>(11, segment_size);
    Batcher batcher(model);
    std::vector<Session> sessions;
    for (int64_t seed = 0; seed < 6; ++seed) sessions.push_back(fed(model, 1 + 3 * seed, seed));
    for (const Session& session : sessions) batcher.add(session);
    std::map<int64_t, std::vector<int64_t>> texts;
    for (int64_t i = 0; i < 30; ++i) {
      for (const auto& [id, token] : batcher.step()) texts[id].push_back(token);
    }
    for (int64_t id = 0; id < 6; ++id) EXPECT_EQ(texts[id], alone(sessions[id], 30)) << segment_size << " " << id;
    if (segment_size == 8) {
      EXPECT_GT(model->largest_batch, 2);
    }
  }
}

TEST(Batcher, ASessionThatLeavesContinuesAlone) {
  const auto model = std::make_shared<FakeModel>(11, 5);
  Batcher batcher(model);
  Session early = fed(model, 3, 1), late = fed(model, 9, 3);
  const auto a = batcher.add(early), b = batcher.add(late);
  std::vector<int64_t> expected = alone(early, 20), text;
  for (int64_t i = 0; i < 8; ++i) text.push_back(batcher.step()[0].token);
  Session back = batcher.remove(a);
  EXPECT_EQ(batcher.size(), 1);
  EXPECT_EQ(back.position(), 3 + 8);
  // No more rows than a session of its own length keeps.
  Session single = early.fork();
  for (int64_t i = 0; i < 8; ++i) single.next();
  EXPECT_EQ(back.num_bytes(), single.num_bytes());
  for (int64_t i = 0; i < 12; ++i) text.push_back(back.next());
  EXPECT_EQ(text, expected);
  expected = alone(late, 12);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(batcher.step()[0].token, expected[8 + i]);
  EXPECT_EQ(batcher.remove(b).position(), 9 + 12);
  EXPECT_TRUE(batcher.step().empty());
}

TEST(Batcher, TakingTurnsInBeingTheShorterOneDoesNotGrow) {
  const auto model = std::make_shared<FakeModel>(11, 6);
  Batcher batcher(model);
  for (int64_t seed = 0; seed < 4; ++seed) batcher.add(fed(model, 1 + seed, seed));
  for (int64_t i = 0; i < 200; ++i) batcher.step();
  EXPECT_LE(model->widest, 6);
}

RC_GTEST_PROP(BatcherProperty, AnyOrderOfJoiningAndLeavingKeepsEveryText, ()) {
  const auto model = std::make_shared<FakeModel>(11, *rc::gen::inRange<int64_t>(1, 7));
  struct Run {
    Session start;
    std::vector<int64_t> text;
  };
  Batcher batcher(model);
  std::map<Batcher::Id, size_t> here;
  std::vector<Run> runs;
  std::vector<std::pair<size_t, Session>> outside;
  const int64_t actions = *rc::gen::inRange(1, 40);
  for (int64_t i = 0; i < actions; ++i) {
    const int choice = *rc::gen::inRange(0, 6);
    if (choice == 0 && runs.size() < 6) {
      runs.push_back({fed(model, *rc::gen::inRange<int64_t>(1, 12), static_cast<int64_t>(runs.size())), {}});
      here[batcher.add(runs.back().start)] = runs.size() - 1;
    } else if (choice == 1 && !here.empty()) {
      const auto leaving = std::next(here.begin(), *rc::gen::inRange<int64_t>(0, static_cast<int64_t>(here.size())));
      outside.emplace_back(leaving->second, batcher.remove(leaving->first));
      here.erase(leaving);
    } else if (choice == 2 && !outside.empty()) {
      runs[outside.back().first].text.push_back(outside.back().second.next());
      here[batcher.add(std::move(outside.back().second))] = outside.back().first;
      outside.pop_back();
    } else {
      for (const auto& [id, token] : batcher.step()) runs[here.at(id)].text.push_back(token);
    }
  }
  for (const Run& run : runs) RC_ASSERT(run.text == alone(run.start, static_cast<int64_t>(run.text.size())));
  RC_ASSERT(model->widest <= core::token_input(model->input()).segment_size);
}

/// Returns NaN for every sequence that reads token 7.
class Poisoned final : public FakeModel {
 public:
  using FakeModel::FakeModel;
  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    core::StepResult step = FakeModel::forward(segment, state);
    step.hidden = at::where((segment.tokens == 7).unsqueeze(-1), std::numeric_limits<double>::quiet_NaN(), step.hidden);
    return step;
  }
};

TEST(Batcher, OneSessionWithoutLogitsIsNamedAndTheOthersGoOn) {
  const auto model = std::make_shared<Poisoned>(11, 4);
  Batcher batcher(model);
  const std::vector<int64_t> poison = {7}, good = {1, 2};
  Session healthy(model, {.top_k = 1}), sick(model);
  healthy.feed(good);
  sick.feed(poison);
  batcher.add(healthy);
  const auto id = batcher.add(sick);
  const int64_t expected = healthy.fork().next();
  expect_error<InputError>([&] { batcher.step(); }, {"session 1", "NaN"});
  expect_error<InputError>([&] { batcher.step(); }, {"session 1", "NaN"});
  batcher.remove(id);
  EXPECT_EQ(batcher.step()[0].token, expected);
}

TEST(Batcher, SessionsThatDoNotFitAreRefused) {
  const auto model = std::make_shared<FakeModel>(11, 4), other = std::make_shared<FakeModel>(11, 4);
  Batcher batcher(model);
  expect_error<InputError>([&] { batcher.add(fed(other, 3, 1)); }, {"another model"});
  expect_error<InputError>([&] { batcher.add(Session(model)); }, {"at least one token"});
  expect_error<InputError>([&] { batcher.remove(5); }, {"no session 5"});
  batcher.add(fed(model, 3, 1));
  test::FakeState moved = model->initial_state(1).as<test::FakeState>();
  moved.shared = moved.shared + 1;
  model->commit(moved);
  expect_error<InputError>([&] { batcher.add(fed(model, 3, 1)); }, {"'shared'", "trained in between"});
  EXPECT_EQ(batcher.size(), 1);
}

}  // namespace
}  // namespace mnemo::infer
