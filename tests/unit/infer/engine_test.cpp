#include "infer/engine.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "infer/progress.h"
#include "infer/session.h"
#include "tests/support/expect_error.h"
#include "tests/support/memory_meter.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/infer/decoding_cases.h"

namespace mnemo::infer {
namespace {

// Law 11 checks that it computes the same as the model (tests/conformance/decoding_test.cpp).

TEST(Engine, CountsTheBytesOfItsState) {
  for (const Case& of : cases()) {
    for (const int64_t segment : {1, 5}) {
      const auto model = build(of, segment);
      ASSERT_EQ(unsupported_reason(*model), "") << of.name;
      Session twin(model), packed(std::make_shared<Engine>(model));
      for (const size_t count : {1, 1, 2, 5, 4, 13, 1, 6}) {
        for (Session* session : {&twin, &packed}) session->feed(text(static_cast<int64_t>(count)));
        // The open segment's lengths and padding flags are not counted; a layer context and a GRC cache have keys and
        // values in addition.
        if (of.name.find("xl") == std::string::npos && of.name.find("grc") == std::string::npos &&
            of.name.find("cache") == std::string::npos && of.name.find("compressive") == std::string::npos) {
          EXPECT_LE(packed.num_bytes(), twin.num_bytes()) << of.name;
        }
        EXPECT_GE(packed.num_bytes(), twin.num_bytes() - 128) << of.name;
        // Beside the state both hold float32 logits and what they have counted.
        EXPECT_EQ(packed.num_bytes() - packed.state_bytes(), twin.num_bytes() - twin.state_bytes()) << of.name;
      }
    }
  }
}

TEST(Engine, ForgetsWhatTheModelForgetsWhereSegmentsStandAlone) {
  for (const Case& of : cases()) {
    const auto model = build(of, 5);
    Session twin(model), packed(std::make_shared<Engine>(model));
    for (Session* session : {&twin, &packed}) {
      session->set_reset_segments(true);
      session->feed(text(13));
      session->feed(text(4));
    }
    EXPECT_LE(off_by(packed.logits(), twin.logits()), 1e-5) << of.name;
    expect_same_state(packed.state(), twin.state(), of.name);
  }
}

// Equal tokens found several clusters of one mean; which one further tokens join must not depend on rounding.
TEST(Engine, EqualTokensJoinTheClusterThatTheModelChooses) {
  const auto model = build(
      {"clustering", [](auto& o) {
         o.backbone.stack().num_layers = 1;
         o.backbone.stack().attention = Node::table(
             {{"type", "abc"}, {"num_slots", 3}, {"control", Node::table({{"type", "clustering"}})}});
       }});
  const auto engine = std::make_shared<Engine>(model);
  for (int64_t a = 0; a < kVocabulary; ++a) {
    const int64_t b = (a + 5) % kVocabulary, c = (a + 9) % kVocabulary;
    Session twin(model), packed(engine);
    for (Session* session : {&twin, &packed})
      session->feed(std::vector<int64_t>{a, a, b, a, a, a, a, a, a, c, c, b, a});
    EXPECT_LE(off_by(packed.logits(), twin.logits()), 1e-5) << a;
    expect_same_state(packed.state(), twin.state(), std::to_string(a));
  }
}

TEST(Engine, GrowsPastItsFirstRoom) {
  const Case cached{"cached", [](auto& o) { o.memory = {memory("segment_cache", {{"mem_len", 150}})}; }};
  for (const auto& [of, segment] : {std::pair{cached, 40}, {cases()[0], 600}, {cases()[5], 600}}) {
    const auto model = build(
        {of.name, [&of = of](auto& o) { of.change(o), o.backbone.stack().position.max_len = 600; }}, segment);
    const auto engine = std::make_shared<Engine>(model);
    Session twin(model), packed(engine);
    for (int part = 0; part < 9; ++part) {
      for (Session* session : {&twin, &packed}) session->feed(text(63, part));
      EXPECT_LE(off_by(packed.logits(), twin.logits()), 1e-5) << of.name << " part " << part;
    }
    expect_same_state(packed.state(), twin.state(), of.name);
  }
}

// A state that was batched with a longer one has padding rows on the left.
TEST(Engine, LeavesPaddingBehind) {
  for (const size_t number : {size_t{0}, size_t{9}}) {
    const Case& of = cases()[number];
    const auto model = build(of);
    const auto engine = std::make_shared<Engine>(model);
    Session longer(model), shorter(model);
    longer.feed(text(14));
    shorter.feed(text(6));
    const core::State padded = core::select_batch(core::concat_batch({longer.state(), shorter.state()}),
                                                  at::tensor({int64_t{1}}));
    EngineSequence sequence = engine->import(padded);
    const std::vector<int64_t> rest = text(9, 1);
    std::vector<float> logits(kVocabulary);
    const Engine::Step step{&sequence, rest, logits.data()};
    engine->run({&step, 1});
    shorter.feed(rest);
    EXPECT_LE(off_by(at::tensor(logits), shorter.logits()), 1e-5) << of.name;
    expect_same_state(engine->export_state(sequence), shorter.state(), of.name);
  }
}

TEST(Engine, ReadsMoreAfterItsOwnTokens) {
  const auto model = build(cases()[9]);
  Session twin(model, GenerateOptions::greedy()), packed(std::make_shared<Engine>(model), GenerateOptions::greedy());
  for (Session* session : {&twin, &packed}) {
    session->feed(text(7));
    session->next();
    session->next();
    session->feed(text(5, 2));
  }
  EXPECT_EQ(packed.position(), twin.position());
  EXPECT_EQ(packed.recent(), twin.recent());
  EXPECT_LE(off_by(packed.logits(), twin.logits()), 1e-5);
}

TEST(Engine, SessionsAreSavedForEitherForm) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/session";
  for (const Case& of : cases()) {
    const auto model = build(of);
    const auto engine = std::make_shared<Engine>(model);
    Session twin(model, GenerateOptions::greedy()), packed(engine, GenerateOptions::greedy());
    for (Session* session : {&twin, &packed}) session->feed(text(12)), session->next(), session->next();
    packed.save(path);
    Session unpacked = Session::load(path, std::shared_ptr<const core::Model>(model));
    twin.save(path);
    Session loaded = Session::load(path, engine);
    std::vector<int64_t> expected;
    for (int i = 0; i < 20; ++i) expected.push_back(twin.next());
    for (Session* session : {&unpacked, &loaded, &packed}) {
      std::vector<int64_t> found;
      for (int i = 0; i < 20; ++i) found.push_back(session->next());
      EXPECT_EQ(found, expected) << of.name;
    }
  }
}

TEST(Engine, ForksAndRewindsAreIndependent) {
  const auto engine = std::make_shared<Engine>(build(cases()[9]));
  Session session(engine, {.temperature = 1.2, .seed = 5});
  session.feed(text(8));
  const Session::Mark mark = session.mark();
  Session fork = session.fork();
  std::vector<int64_t> first, second, third;
  for (int i = 0; i < 25; ++i) first.push_back(session.next());
  for (int i = 0; i < 25; ++i) second.push_back(fork.next());
  session.rewind(mark);
  for (int i = 0; i < 25; ++i) third.push_back(session.next());
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, third);
  Session other(build(cases()[9]));
  test::expect_error<base::InputError>([&] { other.rewind(mark); }, {"another model"});
}

TEST(Engine, FewerBitsStayNear) {
  for (const Case& of : cases()) {
    const auto model = build(of);
    Session twin(model);
    twin.feed(text(17));
    const at::Tensor expected = twin.logits();
    for (const auto& [precision, tolerance] : {std::pair{ops::Precision::bf16, 0.03},
                                               {ops::Precision::int8, 0.05},
                                               {ops::Precision::w8a8, 0.1},
                                               {ops::Precision::int4, 0.7},
                                               {ops::Precision::int4_offset, 0.7}}) {
      Session session(std::make_shared<Engine>(model, EngineOptions{precision}));
      session.feed(text(17));
      const double off = (session.logits() - expected).norm().item<double>() / expected.norm().item<double>();
      EXPECT_LT(off, tolerance) << of.name << " " << ops::name_of(precision);
      EXPECT_GT(off, 1e-5) << of.name << " " << ops::name_of(precision);
    }
  }
}

// To the bit, although the rows of a prompt read keys together.
TEST(Engine, GivesTheLogitsAfterEveryToken) {
  for (const auto& [number, segment, count] : {std::tuple{9, 5, 150}, {0, 600, 530}, {2, 600, 530}, {8, 600, 100}}) {
    for (const EngineOptions& options : {EngineOptions{}, {.precision = ops::Precision::bf16}, {.int8_keys = true}}) {
      const Case& of = cases()[static_cast<size_t>(number)];
      const auto engine = std::make_shared<Engine>(
          build({of.name, [&](auto& o) { of.change(o), o.backbone.stack().position.max_len = 600; }}, segment),
          options);
      const std::vector<int64_t> tokens = text(count);
      EngineSequence sequence = engine->begin();
      std::vector<std::vector<float>> found;
      engine->run(sequence, tokens, [&](const float* logits) { found.emplace_back(logits, logits + kVocabulary); });
      ASSERT_EQ(found.size(), tokens.size());
      Session single(engine);
      for (size_t i = 0; i < tokens.size(); ++i) {
        single.feed({&tokens[i], 1});
        EXPECT_TRUE(at::equal(single.logits(), at::tensor(found[i]))) << of.name << " " << i;
      }
    }
  }
}

TEST(Engine, TheLoopOverTokensAllocatesNothing) {
  for (const Case& of : cases()) {
    if (of.name == "compressive") continue;  // it compresses with LibTorch when a segment ends
    for (const ops::Precision precision :
         {ops::Precision::float32, ops::Precision::int8, ops::Precision::w8a8, ops::Precision::int4}) {
      EngineOptions options{precision};
      // Beside each other, to save time.
      options.int8_keys = precision != ops::Precision::float32 &&
                          unsupported_reason(*build(of), {.int8_keys = true}).empty();
      const auto engine = std::make_shared<Engine>(build(of), options);
      Session session(engine, {.temperature = 0.9, .top_k = 5, .seed = 2});
      session.feed(text(64));
      for (int i = 0; i < 64; ++i) session.next();
      const test::MemoryMeter meter;
      for (int i = 0; i < 64; ++i) session.next();
      EXPECT_EQ(meter.requests(), 0) << of.name << " " << ops::name_of(precision);
    }
  }
}

TEST(Engine, SaysWhatItCannotRun) {
  const auto attention = [](const char* type) {
    return [type](auto& o) { o.backbone.stack().attention = Node::table({{"type", type}}); };
  };
  const Case same{"same", [&](auto& o) {
                    attention("linear")(o);
                    o.memory = {memory("grc", {{"mem_attention", "same"}})};
                  }};
  const auto model = build(same);
  EXPECT_NE(unsupported_reason(*model).find("around another core than softmax"), std::string::npos);
  test::expect_error<base::InputError>([&] { Engine engine(model); }, {"cannot run this model: unsupported: grc with"});
  EXPECT_EQ(unsupported_reason(*build({"lsh", attention("lsh")})), "unsupported: attention 'lsh'");
  const Case faithful{"faithful", [](auto& o) {
                        o.backbone.stack().attention = Node::table({{"type", "relative"}, {"rel_shift", "faithful"}});
                        o.memory = {memory("recurrent_tokens", {{"num_mem_tokens", 2}})};
                      }};
  EXPECT_EQ(unsupported_reason(*build(faithful)),
            "unsupported: rel_shift = \"faithful\" with memory rows that look to the right");
  const auto wide = build(cases()[2]);
  wide->parameters().to(at::kDouble, at::kCPU);
  EXPECT_NE(unsupported_reason(*wide).find("expected parameters of float32"), std::string::npos);
}

TEST(Engine, AnErrorLeavesTheSessionAsItWas) {
  const Case places{"places", [](auto& o) {
                      o.backbone.stack().attention = Node::table(
                          {{"type", "abc"}, {"num_slots", 4}, {"control", Node::table({{"type", "identity"}})}});
                    }};
  Session full(std::make_shared<Engine>(build(places, 8)));
  full.feed(text(3));
  const at::Tensor logits = full.logits();
  test::expect_error<base::InputError>([&] { full.feed(text(2)); }, {"takes sequences of at most 4 tokens"});
  EXPECT_TRUE(at::equal(full.logits(), logits));
  // Where it may be stopped, tokens are run in several parts: none of them where not all have a place.
  const Case many{
      "many", [](auto& o) {
        o.backbone.stack().attention = Node::table(
            {{"type", "abc"}, {"num_slots", Engine::kRows + 10}, {"control", Node::table({{"type", "identity"}})}});
      }};
  Session asked(std::make_shared<Engine>(build(many, 8)), {.should_stop = [] { return 0; }});
  asked.feed(text(3));
  test::expect_error<base::InputError>([&] { asked.feed(text(Engine::kRows + 8)); }, {"takes sequences of at most"});
  EXPECT_EQ(asked.position(), 3);
  const Case few{"few", [](auto& o) {
                   o.backbone.stack().attention = Node::table({{"type", "softmax"}}),
                   o.backbone.stack().position.type = backbones::PositionOptions::Type::learned,
                   o.backbone.stack().position.max_len = 4;
                 }};
  Session session(std::make_shared<Engine>(build(few, 8)));
  session.feed(text(3));
  const at::Tensor before = session.logits();
  test::expect_error<base::InputError>([&] { session.feed(text(2)); },
                                       {"segment and memory rows together are 5 rows, more than position.max_len = 4"});
  test::expect_error<base::InputError>(
      [&] {
        session.feed(std::vector<int64_t>{1, kVocabulary});
      },
      {"expected tokens from 0 to 22, found 23 at 1"});
  EXPECT_EQ(session.position(), 3);
  EXPECT_TRUE(at::equal(session.logits(), before));
}

TEST(Engine, CountsTheBytesOfAToken) {
  const auto model = build(cases()[0]);
  const Engine wide(model), narrow(model, {ops::Precision::bf16});
  // 10 more keys in two layers, with keys and values of 24 numbers.
  EXPECT_EQ(wide.bytes_per_token(20) - wide.bytes_per_token(10), 10 * 2 * 2 * 24 * 4);
  EXPECT_EQ(narrow.bytes_per_token(20) - narrow.bytes_per_token(10), 10 * 2 * 2 * 24 * 2);
}

}  // namespace
}  // namespace mnemo::infer
