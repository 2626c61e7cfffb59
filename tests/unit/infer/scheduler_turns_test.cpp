// Places that requests hold, give to others and get back.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/infer/scheduler_requests.h"

namespace mnemo::infer {
namespace {

TEST(Scheduler, AHeldRequestStaysWhereItIs) {
  const auto engine = std::make_shared<const Engine>(build(cases()[0]));
  const Request held{.prompt = text(6), .options = {.max_tokens = 5, .past_end = true, .seed = 2}};
  Scheduler scheduler(engine);
  const auto id = scheduler.submit(open(engine, held.options), {held.prompt}, held.options);
  scheduler.submit(open(engine, {}), {text(3)}, {.max_tokens = 30, .past_end = true});
  std::vector<int64_t> written;
  for (int tick = 0; tick < 12; ++tick) {
    scheduler.hold(id, tick % 2 == 1);
    const int64_t before = scheduler.position(id).value_or(-1);
    for (const Scheduler::Event& event : scheduler.tick()) {
      if (event.id == id) written.push_back(event.token);
    }
    if (tick % 2 == 1) {
      EXPECT_EQ(scheduler.position(id).value_or(-1), before);
    }
    EXPECT_FALSE(scheduler.idle());
  }
  EXPECT_EQ(written, written_alone(engine, held, false, 5).tokens);
  Scheduler alone(engine);
  EXPECT_TRUE(alone.idle());
  const auto only = alone.submit(open(engine, {}), {text(3)}, {});
  EXPECT_FALSE(alone.idle());
  alone.tick();
  alone.hold(only, true);
  EXPECT_TRUE(alone.idle());
  EXPECT_TRUE(alone.tick().empty());
}

TEST(Scheduler, AHeldRequestGivesItsPlaceToOthers) {
  const auto engine = std::make_shared<const Engine>(build(cases()[0]));
  const Request slow{.prompt = text(6), .options = {.max_tokens = 5, .past_end = true, .seed = 2}};
  Scheduler scheduler(engine, {.max_running = 1});
  const auto id = scheduler.submit(open(engine, slow.options), {slow.prompt}, slow.options);
  const auto other = scheduler.submit(open(engine, {}), {text(3)}, {.max_tokens = 4, .past_end = true});
  std::vector<int64_t> written;
  const auto tick = [&] {
    for (const Scheduler::Event& event : scheduler.tick()) {
      if (event.id == id) written.push_back(event.token);
    }
  };
  while (written.empty()) tick();
  scheduler.hold(id, true);
  const size_t before = written.size();
  for (int i = 0; scheduler.position(other); ++i) {
    ASSERT_LT(i, 10) << "the other does not get the place";
    tick();
  }
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(written.size(), before);
  scheduler.submit(open(engine, {}), {text(3)}, {.max_tokens = 100, .past_end = true});
  scheduler.hold(id, false);
  while (scheduler.position(id)) tick();
  EXPECT_EQ(written, written_alone(engine, slow, false, 5).tokens);
}

/// Such a sequence gives up the keys of the rows that its memory keeps, and gets them again.
TEST(Scheduler, ARequestThatIsHeldBetweenSegmentsHasTheSameBits) {
  for (const Case& of : cases()) {
    const auto engine = std::make_shared<const Engine>(build(of));
    const Request request{.prompt = text(6), .options = {.max_tokens = 40, .past_end = true, .seed = 2}};
    Scheduler scheduler(engine);
    const auto id = scheduler.submit(open(engine, request.options), {request.prompt}, request.options);
    std::vector<int64_t> written;
    std::optional<TextSession> session;
    int holds = 0;
    while (!session) {
      for (Scheduler::Event& event : scheduler.tick()) {
        written.push_back(event.token);
        session = std::move(event.session);
      }
      if (!scheduler.between_segments(id)) continue;
      scheduler.hold(id, true);
      EXPECT_EQ(scheduler.held(), 1);
      scheduler.hold(id, true);
      scheduler.hold(id, false);
      ++holds;
    }
    EXPECT_GE(holds, 2) << of.name;
    Continuation expected = written_alone(engine, request, false, 40);
    EXPECT_EQ(written, expected.tokens) << of.name;
    EXPECT_TRUE(at::equal(session->session().logits(), expected.session->session().logits())) << of.name;
  }
}

TEST(Scheduler, ARequestThatIsCancelledWhileHeldHasItsState) {
  const auto engine = std::make_shared<const Engine>(build(cases()[4]));
  const Request request{.prompt = text(6), .options = {.max_tokens = 40, .past_end = true, .seed = 2}};
  Scheduler scheduler(engine);
  const auto id = scheduler.submit(open(engine, request.options), {request.prompt}, request.options);
  size_t tokens = 0;
  do {
    tokens += scheduler.tick().size();
  } while (tokens == 0 || !scheduler.between_segments(id));
  scheduler.hold(id, true);
  std::optional<TextSession> session = scheduler.cancel(id);
  ASSERT_TRUE(session);
  Continuation expected = written_alone(engine, request, false, tokens);
  EXPECT_TRUE(at::equal(session->session().logits(), expected.session->session().logits()));
}

TEST(Scheduler, NewRequestsGetAQuarterOfThePlacesAtOnce) {
  const auto engine = std::make_shared<const Engine>(build(cases()[0]));
  Scheduler scheduler(engine, {.max_running = 8, .turn = 1000});
  const auto submit = [&](int64_t tokens) {
    return scheduler.submit(open(engine, {}), {text(3)}, {.max_tokens = tokens, .past_end = true});
  };
  for (int i = 0; i < 8; ++i) submit(200);
  for (int i = 0; i < 5; ++i) scheduler.tick();
  const auto third = submit(9), first = submit(3), second = submit(4);
  std::map<Scheduler::Id, int> tokens;
  for (int i = 0; i < 3; ++i) {
    for (const Scheduler::Event& event : scheduler.tick()) ++tokens[event.id];
    EXPECT_EQ(scheduler.running() + (i == 2 ? 1 : 0), 8);
  }
  EXPECT_EQ(tokens[first], 3) << "the shortest first";
  EXPECT_EQ(tokens[second], 3);
  EXPECT_EQ(tokens[third], 0) << "two of eight places";
  for (int i = 0; i < 9; ++i) scheduler.tick();
  EXPECT_FALSE(scheduler.position(third));
}

TEST(Scheduler, ShortTextsDoNotWaitForLongOnes) {
  const auto engine = std::make_shared<const Engine>(build(cases()[0]));
  Scheduler scheduler(engine, {.max_running = 2, .turn = 4});
  std::map<Scheduler::Id, Request> longs;
  for (const int64_t seed : {1, 2, 3}) {
    const Request request{.prompt = text(6, seed), .options = {.max_tokens = 60, .past_end = true, .seed = seed}};
    longs[scheduler.submit(open(engine, request.options), {request.prompt}, request.options)] = request;
  }
  std::map<Scheduler::Id, std::vector<int64_t>> written;
  const auto tick = [&] {
    for (const Scheduler::Event& event : scheduler.tick()) written[event.id].push_back(event.token);
  };
  for (int i = 0; i < 10; ++i) tick();
  EXPECT_EQ(written.size(), 3u) << "three share two places";
  const auto brief = scheduler.submit(open(engine, {}), {text(3)}, {.max_tokens = 1});
  for (int i = 0; scheduler.position(brief); ++i) {
    ASSERT_LT(i, 9) << "a short text waits for long ones";
    tick();
  }
  // Nor do long ones wait while short ones keep coming.
  const auto goes_on = [&](const auto& one) { return scheduler.position(one.first).has_value(); };
  for (int i = 0; std::ranges::any_of(longs, goes_on); ++i) {
    ASSERT_LT(i, 300) << "a long text waits for short ones";
    while (scheduler.waiting() < 4) scheduler.submit(open(engine, {}), {text(3)}, {.max_tokens = 1});
    tick();
  }
  for (const auto& [id, request] : longs) EXPECT_EQ(written[id], written_alone(engine, request, false, 60).tokens);
}

TEST(Scheduler, TextsThatTakeTurnsHaveTheBitsOfEachAlone) {
  for (const Case& of : cases()) {
    for (const int64_t segment : {5, 40}) {  // turns end with segments, or inside them
      const auto engine = std::make_shared<const Engine>(build(of, segment));
      std::vector<Request> requests;
      for (int64_t i = 0; i < 5; ++i) {
        requests.push_back({.prompt = text(2 + i, i), .options = {.max_tokens = 16, .past_end = true, .seed = i}});
        if (i == 4) requests.back().joins = 7;
      }
      auto found = run_all(engine, requests, false, {.max_running = 2, .turn = 2});
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(found[i].tokens, written_alone(engine, requests[i], false, 16).tokens) << of.name << ' ' << i;
    }
  }
}

TEST(Scheduler, TextsRestBetweenSegmentsWithTheirMemoryAlone) {
  const auto found = std::ranges::find(cases(), "xl", &Case::name);
  ASSERT_NE(found, cases().end());
  const auto engine = std::make_shared<const Engine>(build(*found));
  const auto submit = [&](Scheduler& scheduler, int64_t seed) {
    return scheduler.submit(open(engine, {.seed = seed}), {text(5, seed)}, {.max_tokens = 60, .past_end = true});
  };
  Scheduler one(engine);
  const auto lone = submit(one, 0);
  int64_t most = 0;  // bytes of a text that is written
  for (int tick = 0; tick < 40 || !one.between_segments(lone); ++tick) {
    one.tick();
    most = std::max(most, one.state_bytes());
  }
  one.hold(lone, true);
  Scheduler scheduler(engine, {.max_running = 2, .turn = 2});
  std::vector<Scheduler::Id> texts;
  for (int64_t i = 0; i < 8; ++i) texts.push_back(submit(scheduler, i));
  for (int tick = 0; tick < 60; ++tick) {
    std::vector<Scheduler::Id> wrote;
    for (const Scheduler::Event& event : scheduler.tick()) wrote.push_back(event.id);
    if (tick < 40) continue;  // new ones have taken places at once
    for (const auto id : texts)
      EXPECT_TRUE(scheduler.between_segments(id) || std::ranges::find(wrote, id) != wrote.end()) << id << ' ' << tick;
    EXPECT_LE(scheduler.state_bytes(), 2 * most + 6 * one.state_bytes()) << tick;
  }
}

}  // namespace
}  // namespace mnemo::infer
