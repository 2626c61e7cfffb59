#include "infer/scheduler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/unit/infer/scheduler_requests.h"

namespace mnemo::infer {
namespace {

using base::InputError;
using test::expect_error;

TEST(Scheduler, RequestsThatJoinAndLeaveHaveTheBitsOfEachAlone) {
  uint64_t seed = 0;
  for (const Case& of : cases()) {
    const auto model = build(of);
    for (const ops::Precision precision : {ops::Precision::float32, ops::Precision::bf16, ops::Precision::int8}) {
      const auto engine = std::make_shared<const Engine>(model, EngineOptions{precision});
      expect_all_as_alone(engine, false, ++seed, of.name + " " + std::string(ops::name_of(precision)));
    }
    expect_all_as_alone(std::make_shared<const Engine>(model), true, ++seed, of.name + " reset");
  }
}

TEST(Scheduler, ARequestWithoutLogitsLeavesWithItsErrorAndTheOthersGoOn) {
  const auto model = build({"untied", [](auto& o) { o.head.set("tied", false), o.head.set("bias", true); }});
  int changed = 0;
  for (const auto& [name, value] : model->parameters().named()) {
    const at::NoGradGuard no_grad;
    at::Tensor tensor = value;
    // Token 7 has no finite row, and nobody writes it.
    if (name == "embed.weight") tensor[7].fill_(std::nan("")), ++changed;
    if (name == "head.bias") tensor[7].fill_(-1e9), ++changed;
  }
  ASSERT_EQ(changed, 2);
  const auto engine = std::make_shared<const Engine>(model);
  Scheduler scheduler(engine);
  const Request healthy{.prompt = {1, 2, 3}, .options = {.max_tokens = 12, .seed = 4}};
  const auto good = scheduler.submit(open(engine, healthy.options), {healthy.prompt}, healthy.options);
  const auto sick = scheduler.submit(open(engine, {}), {{1, 7}}, {});
  std::vector<int64_t> tokens;
  std::string error;
  while (scheduler.running() + scheduler.waiting() > 0) {
    for (const Scheduler::Event& event : scheduler.tick()) {
      if (event.id == good) {
        EXPECT_EQ(event.error, "");
        tokens.push_back(event.token);
        continue;
      }
      EXPECT_EQ(event.id, sick);
      EXPECT_EQ(event.token, -1);
      EXPECT_TRUE(event.session.has_value());
      error += event.error;
    }
  }
  EXPECT_NE(error.find("found NaN"), std::string::npos) << error;
  EXPECT_EQ(tokens, written_alone(engine, healthy, false, SIZE_MAX).tokens);
}

TEST(Scheduler, ARequestWithoutPlacesEndsOrLeavesWithItsError) {
  const Case few{"few", [](auto& o) {
                   o.backbone.stack().attention = Node::table({{"type", "softmax"}}),
                   o.backbone.stack().position.type = backbones::PositionOptions::Type::learned;
                   o.backbone.stack().position.max_len = 4;
                 }};
  const auto engine = std::make_shared<const Engine>(build(few, 8));
  Scheduler scheduler(engine);
  expect_error<InputError>([&] { scheduler.submit(open(engine, {}), {text(5)}, {}); }, {"more than position.max_len"});
  const auto ends = scheduler.submit(open(engine, {}), {text(3)}, {.past_end = true});
  std::vector<Scheduler::Event> events = scheduler.tick();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].id, ends);
  EXPECT_EQ(events[0].reason, FinishReason::length);
  EXPECT_EQ(events[0].session->session().position(), 4);
  // Where memory is reset at segments that are longer than the places.
  const auto id = scheduler.submit(open(engine, {}, true), {text(3)}, {.past_end = true});
  events.clear();
  for (int i = 0; i < 3; ++i) {
    for (Scheduler::Event& event : scheduler.tick()) events.push_back(std::move(event));
  }
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].id, id);
  EXPECT_NE(events[2].error.find("5 rows, more than position.max_len = 4"), std::string::npos) << events[2].error;
  EXPECT_EQ(events[2].session->session().position(), 5);
  EXPECT_EQ(scheduler.running(), 0);
}

// Writers first, then prompts: every running request advances in every tick, the oldest prompt by the rows left over.
RC_GTEST_PROP(SchedulerProperty, NobodyWaitsOnceAdmitted, ()) {
  static const auto engine = std::make_shared<const Engine>(
      build({"abc",
             [](auto& o) {
               o.backbone.stack().attention = Node::table({{"type", "abc"}, {"num_slots", 5}});
             }},
            500));
  Scheduler::Options options;
  options.rows = *rc::gen::inRange<int64_t>(1, 65);
  options.max_running = *rc::gen::inRange<int64_t>(1, options.rows + 1);
  options.shared_rows = *rc::gen::inRange<int64_t>(1, 65);
  Scheduler scheduler(engine, options);
  std::map<Scheduler::Id, int64_t> lengths, positions;  // of prompts; at the last tick
  const int64_t count = *rc::gen::inRange<int64_t>(1, 80);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = *rc::gen::inRange<int64_t>(1, 150);
    const auto id = scheduler.submit(open(engine, {}), {text(length, i)},
                                     {.max_tokens = *rc::gen::inRange<int64_t>(1, 9)});
    lengths[id] = length;
    positions[id] = 0;
  }
  while (!positions.empty()) {
    const int64_t running = std::min(options.max_running, static_cast<int64_t>(positions.size()));
    int64_t writing = 0;  // or about to
    for (auto [member, n] = std::pair(positions.begin(), int64_t{0}); n < running; ++member, ++n)
      writing += lengths.at(member->first) - member->second <= 1;
    std::map<Scheduler::Id, int64_t> ended;
    for (const Scheduler::Event& event : scheduler.tick()) {
      if (event.session) ended[event.id] = event.session->session().position();
    }
    int64_t rows = 0, number = 0;
    bool full = false;  // an older prompt has taken all the rows that were left
    for (auto member = positions.begin(); member != positions.end(); ++number) {
      const auto id = member->first;
      const int64_t before = member->second;
      const bool has_ended = ended.contains(id);
      const int64_t now = has_ended ? ended.at(id) : scheduler.position(id).value_or(-1);
      const bool reads = before < lengths.at(id);
      // The tick in which a prompt has been read also writes a token.
      const int64_t advance = now - before - (reads && now > lengths.at(id) ? 1 : 0);
      if (number < running) {
        RC_ASSERT(advance >= 1);
        RC_ASSERT(reads || advance == 1);
        if (full) {
          RC_ASSERT(advance == 1);
        }
        full |= reads && now < lengths.at(id);
        rows += advance;
      } else {
        RC_ASSERT(now == 0);
      }
      member->second = now;
      member = has_ended ? positions.erase(member) : std::next(member);
    }
    const int64_t most = writing == 0 ? options.rows
                                      : std::min(options.rows, std::max(options.shared_rows, 2 * writing));
    RC_ASSERT(rows <= std::max(most, running));
    RC_ASSERT(!full || rows == std::max(most, running));
  }
  RC_ASSERT(scheduler.tick().empty());
}

TEST(Scheduler, CancellingFreesItsPlaceInTheNextTick) {
  const auto engine = std::make_shared<const Engine>(build(cases()[0], 60));
  Scheduler scheduler(engine, {.rows = 8, .max_running = 1});
  const Request next{.prompt = {1, 2}, .options = {.max_tokens = 3, .past_end = true, .seed = 3}};
  const auto id = scheduler.submit(open(engine, {}), {text(40)}, {.past_end = true});
  const auto queued = scheduler.submit(open(engine, {}), {text(4)}, {});
  const auto last = scheduler.submit(open(engine, next.options), {next.prompt}, next.options);
  EXPECT_TRUE(scheduler.tick().empty());
  EXPECT_EQ(scheduler.position(id), 8);
  EXPECT_EQ(scheduler.position(last), 0);
  EXPECT_EQ(scheduler.cancel(queued)->session().position(), 0);
  std::optional<TextSession> left = scheduler.cancel(id);
  EXPECT_EQ(scheduler.running(), 0);
  const std::vector<Scheduler::Event> events = scheduler.tick();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].id, last);
  EXPECT_EQ(events[0].token, written_alone(engine, next, false, 1).tokens.at(0));
  // The session has read what fitted, and goes on anywhere.
  const std::vector<int64_t> all = text(40);
  Session expected(engine);
  expected.feed(all);
  left->session().feed(std::span(all).subspan(8));
  EXPECT_TRUE(at::equal(left->session().logits(), expected.logits()));
  EXPECT_FALSE(scheduler.cancel(id).has_value());
  EXPECT_EQ(scheduler.position(id), std::nullopt);
}

TEST(Scheduler, SessionsGoOnAfterTheirRequestAndTheQueueIsBounded) {
  const auto engine = std::make_shared<const Engine>(build(cases()[0]));
  const GenerateOptions options{.max_tokens = 4, .past_end = true, .seed = 2};
  TextSession whole = open(engine, options);
  whole.session().feed(text(7));
  std::string expected = whole.generate(options);
  expected += whole.generate(options);
  Scheduler scheduler(engine, {.rows = 4, .max_running = 2, .max_waiting = 2});
  std::string written;
  std::optional<TextSession> session = open(engine, options);
  for (const std::vector<int64_t>& prompt : {text(7), std::vector<int64_t>{}}) {
    scheduler.submit(*session, {prompt}, options);
    session.reset();
    while (!session) {
      for (Scheduler::Event& event : scheduler.tick()) {
        written += event.text;
        session = std::move(event.session);
      }
    }
  }
  EXPECT_EQ(written, expected);
  for (int i = 0; i < 2; ++i) scheduler.submit(open(engine, {}), {{1}}, {});
  EXPECT_TRUE(scheduler.full());
  expect_error<InputError>([&] { scheduler.submit(open(engine, {}), {{1}}, {}); }, {"queue is full (2 requests wait)"});
  scheduler.tick();
  EXPECT_FALSE(scheduler.full());
  const auto other = std::make_shared<const Engine>(build(cases()[0]));
  expect_error<InputError>([&] { scheduler.submit(open(other, {}), {{1}}, {}); }, {"a text of its own engine"});
  expect_error<InputError>([&] { scheduler.submit(open(engine, {}), {}, {}); },
                           {"at least one token to continue from"});
  expect_error<InputError>([&] { scheduler.submit(open(engine, {}), {{kVocabulary}}, {}); }, {"0 to 22", "found 23"});
  expect_error<InputError>([&] { Scheduler(engine, {.rows = 65}); }, {"rows", "1 to 64", "65"});
  expect_error<InputError>([&] { Scheduler(engine, {.rows = 8, .max_running = 9}); }, {"max_running", "8 rows", "9"});
  EXPECT_EQ(scheduler.running() + scheduler.waiting(), 2);
}

TEST(Scheduler, TellsLogProbabilities) {
  const auto engine = std::make_shared<const Engine>(build(cases()[0]));
  const GenerateOptions options{.max_tokens = 5, .temperature = 0.7, .past_end = true, .seed = 4};
  Scheduler scheduler(engine);
  scheduler.submit(open(engine, options), {text(6)}, options, 3);
  Session expected(engine);
  expected.feed(text(6));
  int count = 0;
  while (!scheduler.idle()) {
    for (const Scheduler::Event& event : scheduler.tick()) {
      const at::Tensor all = at::log_softmax(expected.logits().to(at::kDouble), 0);
      const auto [values, tokens] = all.topk(3);
      ASSERT_EQ(event.likely.size(), 4u);
      EXPECT_EQ(event.likely[0].first, event.token);
      EXPECT_NEAR(event.likely[0].second, all[event.token].item<double>(), 1e-9);
      for (int64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(event.likely[static_cast<size_t>(i + 1)].first, tokens[i].item<int64_t>());
        EXPECT_NEAR(event.likely[static_cast<size_t>(i + 1)].second, values[i].item<double>(), 1e-9);
      }
      expected.feed({&event.token, 1});
      ++count;
    }
  }
  EXPECT_EQ(count, 5);
}

TEST(Scheduler, ATextEndsWhereTheModelsPositionsDo) {
  const auto engine = std::make_shared<const Engine>(
      build({"", [](models::ModelOptions& options) {
               options.backbone.stack().attention = base::Node::table(
                   {{"type", "abc"},
                    {"num_slots", 3},
                    {"control", base::Node::table({{"type", "linformer"}, {"max_len", 20}})}});
             }}));
  GenerateOptions options = GenerateOptions::greedy();
  options.past_end = true;
  options.max_tokens = 50;
  const Request request{.before = {1, 2}, .prompt = {3, 4, 5}, .options = options};
  const auto all = run_all(engine, {request}, false, {});
  EXPECT_EQ(all.at(0).tokens.size(), 15U);
  EXPECT_EQ(all.at(0).reason, FinishReason::length);

  TextSession text = open(engine, options);
  text.session().feed(std::vector<int64_t>{1, 2, 3, 4, 5});
  EXPECT_EQ(text.generate(options, [](std::string_view) { return true; }), 15);
  EXPECT_EQ(text.finish_reason(), FinishReason::length);
  EXPECT_EQ(text.session().position(), 20);
  EXPECT_EQ(text.session().can_write(0, 0), 0);
  EXPECT_EQ(open(engine, options).session().can_write(7, INT64_MAX), 13);
  const auto endless = std::make_shared<const Engine>(build({"", [](models::ModelOptions&) {}}));
  EXPECT_EQ(open(endless, options).session().can_write(7, INT64_MAX), INT64_MAX);
  test::expect_error<base::InputError>([&] { text.generate(options); }, {"takes sequences of at most 20 tokens"});
  Scheduler scheduler(engine, {});
  test::expect_error<base::InputError>([&] { scheduler.submit(text, {}, options); },
                                       {"takes sequences of at most 20 tokens"});
}

}  // namespace
}  // namespace mnemo::infer
