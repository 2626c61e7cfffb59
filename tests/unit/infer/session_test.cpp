#include "infer/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "infer/batcher.h"
#include "tests/support/expect_error.h"
#include "tests/unit/infer/decoding_cases.h"
#include "tests/unit/infer/session_tokens.h"

namespace mnemo::infer {
namespace {

using base::InputError;
using test::expect_error;
using test::FakeModel;

TEST(Session, ReadsTokenByTokenAsWhole) {
  for (const int64_t segment_size : {1, 2, 4, 7}) {
    for (const int64_t length : {1, 3, 4, 8, 13}) {
      Session whole(model(segment_size)), single(model(segment_size));
      const std::vector<int64_t> tokens = prompt(length);
      whole.feed(tokens);
      for (const int64_t token : tokens) single.feed({&token, 1});
      EXPECT_TRUE(at::allclose(whole.logits(), single.logits(), 0, 1e-12)) << segment_size << " " << length;
      EXPECT_EQ(whole.position(), length);
      EXPECT_EQ(single.position(), length);
      for (const Session* session : {&whole, &single}) {
        EXPECT_EQ(static_cast<const FakeModel&>(session->model()).early_ends, 0);
      }
    }
  }
}

TEST(Session, IsAsBeforeWhereItIsStopped) {
  int questions = 0, answers_until = 2;
  GenerateOptions options = kSampled;
  options.should_stop = [&] { return ++questions > answers_until ? 7 : 0; };
  Session session(model(), options), alone(model(), kSampled);
  const std::vector<int64_t> tokens = prompt(13);
  try {
    session.feed(tokens);  // four segments
    ADD_FAILURE() << "not stopped";
  } catch (const base::Stopped& stopped) {
    EXPECT_EQ(stopped.reason(), 7);
  }
  EXPECT_EQ(questions, 3);
  EXPECT_EQ(session.position(), 0);
  answers_until = 1000;
  session.feed(tokens);
  alone.feed(tokens);
  EXPECT_EQ(take(session, 5), take(alone, 5));
  answers_until = questions;
  EXPECT_THROW(session.score(tokens), base::Stopped);
  EXPECT_EQ(session.position(), 18);
}

TEST(Session, GeneratesWhatRecomputingFromTheStartGives) {
  const auto shared = model();
  Session session(shared, kSampled);
  std::vector<int64_t> tokens = prompt(6);
  session.feed(tokens);
  for (int64_t i = 0; i < 30; ++i) {
    Session again(shared, kSampled);
    again.feed(tokens);
    const int64_t token = session.next();
    ASSERT_EQ(token, again.next()) << i;
    tokens.push_back(token);
  }
}

TEST(Session, TheLastTokenOfATextDoesNotRun) {
  const auto shared = model();
  Session session(shared);
  session.feed(prompt(2));
  EXPECT_EQ(shared->calls, 1);
  take(session, 5);
  EXPECT_EQ(shared->calls, 5);
  EXPECT_EQ(session.position(), 7);
}

TEST(Session, SameSeedSameTextOtherSeedOtherText) {
  const auto shared = model();
  auto text = [&](int64_t seed) {
    Session session(shared, {.temperature = 2.0, .seed = seed});
    session.feed(prompt(3));
    return take(session, 50);
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST(Session, EachPositionHasADrawOfItsOwn) {
  Session session(model(), {.temperature = 1e4, .seed = 1});
  session.feed(prompt(3));
  const std::vector<int64_t> text = take(session, 50);
  EXPECT_GT(std::set<int64_t>(text.begin(), text.end()).size(), 3U)
      << "of nearly equal logits one draw takes one token";
}

TEST(Session, GenerateStreamsAndStops) {
  Session session(model(), kSampled);
  session.feed(prompt(3));
  Session copy = session.fork();
  const std::vector<int64_t> all = take(copy, 40);

  std::vector<int64_t> streamed;
  auto keep = [&](int64_t token) {
    streamed.push_back(token);
    return streamed.size() < 7;
  };
  EXPECT_EQ(session.fork().generate(5, keep), 5);
  EXPECT_EQ(streamed, std::vector<int64_t>(all.begin(), all.begin() + 5));
  streamed.clear();
  EXPECT_EQ(session.fork().generate(100, keep), 7);
  EXPECT_EQ(streamed, std::vector<int64_t>(all.begin(), all.begin() + 7));

  streamed.clear();
  const std::vector<int64_t> stop = {all[4]};
  const auto first = std::find(all.begin(), all.end(), all[4]) - all.begin();
  Session stopped = session.fork();
  EXPECT_EQ(stopped.generate(
                100, [&](int64_t token) { return streamed.push_back(token), true; }, stop),
            first);
  EXPECT_EQ(streamed, std::vector<int64_t>(all.begin(), all.begin() + first));
  EXPECT_EQ(stopped.position(), 3 + first + 1);
  EXPECT_EQ(session.generate(0, keep), 0);
  EXPECT_EQ(session.position(), 3);
}

TEST(Session, ForkContinuesOnItsOwn) {
  Session session(model(), kSampled);
  session.feed(prompt(5));
  take(session, 3);
  Session fork = session.fork();
  Session changed = session.fork();
  changed.feed(prompt(9));
  take(changed, 20);
  EXPECT_EQ(take(session, 20), take(fork, 20));
}

TEST(Session, AForkWithASeedOfItsOwnWritesAnotherText) {
  Session session(model(), kSampled);
  session.feed(prompt(6));
  Session same = session.fork(), other = session.fork(4), again = session.fork(4);
  const std::vector<int64_t> text = take(session, 30), others = take(other, 30);
  EXPECT_EQ(take(same, 30), text);
  EXPECT_NE(others, text);
  EXPECT_EQ(take(again, 30), others);
  EXPECT_EQ(other.sampling().seed, 4);
  EXPECT_EQ(other.sampling().temperature, kSampled.temperature);
}

TEST(Session, ScoresAreTheLogSoftmaxOfItsLogits) {
  const auto shared = model();
  Session session(shared), steps(shared);
  const std::vector<int64_t> tokens = prompt(15);
  const std::span<const int64_t> all(tokens);
  std::vector<double> scores = session.score(all.first(9));
  EXPECT_TRUE(std::isnan(scores[0])) << "nothing comes before it";
  session.next();  // a token that was sampled counts as read
  Session marked = session;
  const std::vector<double> more = session.score(all.subspan(9));
  scores.insert(scores.end(), more.begin(), more.end());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i == 9) {
      const int64_t sampled = marked.recent().back();
      steps.feed({&sampled, 1});
    }
    if (i > 0) {
      EXPECT_NEAR(scores[i], at::log_softmax(steps.logits(), 0)[tokens[i]].item<double>(), 1e-12) << i;
    }
    steps.feed({&tokens[i], 1});
  }
  EXPECT_TRUE(at::allclose(session.logits(), steps.logits(), 0, 1e-12)) << "score() reads the tokens";
  EXPECT_TRUE(session.score({}).empty());
  expect_error<InputError>([&] { session.score(std::vector<int64_t>{11}); }, {"0 to 10", "11"});
}

TEST(Session, PenaltiesCountWhatWasReadAndWritten) {
  const auto shared = model();
  const GenerateOptions penalised = {
      .temperature = 1.5, .repetition_penalty = 1.4, .frequency_penalty = 0.5, .presence_penalty = 0.25, .seed = 3};
  Session session(shared, penalised);
  session.feed(prompt(6));
  TokenCounts seen;
  seen.add_read(prompt(6));
  for (int64_t i = 0; i < 30; ++i) {
    const int64_t expected = Sampler(penalised).pick(session.logits(), static_cast<uint64_t>(session.position()), seen);
    ASSERT_EQ(session.next(), expected) << i;
    seen.add_written(expected);
  }
  Session plain(shared, penalised);
  plain.feed(prompt(6));
  Session::Mark mark = plain.mark();
  plain.set_sampling(kSampled);
  const std::vector<int64_t> before = take(plain, 30);
  plain.set_sampling(penalised);
  plain.rewind(mark);
  Session twin(shared, penalised);
  twin.feed(prompt(6));
  const std::vector<int64_t> text = take(twin, 30);
  EXPECT_EQ(take(plain, 30), text) << "tokens undone by rewind() do not count";
  EXPECT_NE(text, before);
  Batcher batcher(shared);
  Session member(shared, penalised);
  member.feed(prompt(6));
  batcher.add(member);
  for (int64_t i = 0; i < 30; ++i) ASSERT_EQ(batcher.step()[0].token, text[i]) << i;
}

TEST(Session, RewindTakesBackEverything) {
  Session session(model(), kSampled);
  session.feed(prompt(5));
  take(session, 2);
  const Session::Mark mark = session.mark();
  const std::vector<int64_t> text = take(session, 25);
  for (int64_t times = 0; times < 2; ++times) {
    session.rewind(mark);
    EXPECT_EQ(session.position(), 7);
    EXPECT_EQ(take(session, 25), text);
    session.feed(prompt(3));
  }
  Session other(model());
  expect_error<InputError>([&] { other.rewind(mark); }, {"another model"});
}

TEST(Session, FeedAfterGeneratingIncludesThePickedToken) {
  const auto shared = model();
  Session session(shared);
  session.feed(prompt(5));
  std::vector<int64_t> tokens = prompt(5);
  for (const int64_t token : take(session, 3)) tokens.push_back(token);
  for (const int64_t token : {1, 2, 3, 4, 5, 6}) tokens.push_back(token);
  session.feed(at::tensor({1, 2, 3, 4, 5, 6}, at::kInt));
  Session again(shared);
  again.feed(tokens);
  EXPECT_TRUE(at::allclose(session.logits(), again.logits(), 0, 1e-12));
}

TEST(Session, BadTokensLeaveItAsItWas) {
  Session session(model());
  session.feed(prompt(5));
  const at::Tensor before = session.logits();
  const std::vector<int64_t> bad = {1, 2, 11}, negative = {-1};
  expect_error<InputError>([&] { session.feed(bad); }, {"0 to 10", "11", "at 2"});
  expect_error<InputError>([&] { session.feed(negative); }, {"-1"});
  expect_error<base::ShapeError>([&] { session.feed(at::zeros({3})); }, {"Float"});
  expect_error<base::ShapeError>([&] { session.feed(at::zeros({1, 3}, at::kLong)); }, {"[1, 3]"});
  EXPECT_EQ(session.position(), 5);
  EXPECT_TRUE(at::equal(session.logits(), before));
  Session empty(model());
  empty.feed(std::span<const int64_t>{});
  expect_error<InputError>([&] { empty.next(); }, {"at least one token"});
  expect_error<InputError>([&] { empty.logits(); }, {"at least one token"});
}

TEST(Session, BytesAreThoseOfTheSequence) {
  Session session(model());
  session.feed(prompt(6));  // memory, 4 window rows, 2 open rows, each 6 float64; 4 + 2 flags; one count
  EXPECT_EQ(session.state_bytes(), (1 + 4 + 2) * 6 * 8 + 6 + 8);
  // Logits of float64.
  EXPECT_EQ(session.num_bytes(), session.state_bytes() + 11 * 8);
  Session counting(model(), {.repetition_penalty = 1.2});
  counting.feed(prompt(6));  // 0, 4, 6, 7 and 10
  EXPECT_EQ(counting.num_bytes(), session.num_bytes() + 5 * 12);
}

TEST(Session, CountsFromWhereAPenaltyIsFirstOn) {
  const GenerateOptions penalised = {.temperature = 0, .repetition_penalty = 100};
  for (const bool packed : {false, true}) {
    const auto open = [&](const GenerateOptions& options) {
      if (!packed) return Session(model(), options);
      static const auto engine = std::make_shared<const Engine>(build(cases().front(), 4));
      return Session(engine, options);
    };
    Session late = open(GenerateOptions::greedy()), never = late;
    for (Session* session : {&late, &never}) session->feed(prompt(6));
    late.set_sampling(penalised);
    EXPECT_EQ(late.num_bytes(), never.num_bytes());
    const int64_t first = late.next();
    EXPECT_EQ(first, never.next()) << "nothing has been counted before";
    EXPECT_EQ(late.num_bytes(), never.num_bytes() + 12);
    // It goes on counting while no penalty is on, also in a file.
    late.set_sampling(GenerateOptions::greedy());
    for (Session* session : {&late, &never}) session->feed(std::vector<int64_t>{first == 3 ? 2 : 3});
    EXPECT_EQ(late.num_bytes(), never.num_bytes() + 2 * 12);
  }
}

TEST(Session, StateIsOfUseInTraining) {
  Session session(model());
  session.feed(prompt(6));
  const core::State state = core::clone(session.state());
  at::Tensor memory = state.as<test::FakeState>().memory;
  memory.requires_grad_(true);
  (memory * memory).sum().backward();
  EXPECT_TRUE(at::equal(memory.grad(), 2 * memory.detach()));
}

TEST(Session, SegmentsThatStandAloneForgetTheOnesBefore) {
  const auto shared = model(4);
  Session session(shared), single(shared);
  session.set_reset_segments(true);
  single.set_reset_segments(true);
  const std::vector<int64_t> tokens = prompt(10);
  session.feed(tokens);
  for (const int64_t token : tokens) single.feed({&token, 1});
  Session fresh(shared);
  fresh.feed(std::span(tokens).subspan(8));
  EXPECT_TRUE(at::equal(session.logits(), fresh.logits()));
  EXPECT_TRUE(at::allclose(single.logits(), fresh.logits(), 0, 1e-12));
  Session carried(shared);
  carried.feed(tokens);
  EXPECT_FALSE(at::allclose(session.logits(), carried.logits()));
  Batcher batcher(shared);
  expect_error<InputError>([&] { batcher.add(session); }, {"reset memory at segments"});
}

}  // namespace
}  // namespace mnemo::infer
