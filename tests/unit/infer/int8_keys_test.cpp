// Keys and values in int8. ops/decode_rows_test.cpp compares their rows and loops with naive twins.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>

#include "base/error.h"
#include "infer/open_text.h"
#include "infer/session.h"
#include "tests/support/expect_error.h"
#include "tests/unit/infer/decoding_cases.h"

namespace mnemo::infer {
namespace {

using base::InputError;

const EngineOptions kInt8Keys = {.int8_keys = true};

std::shared_ptr<const Engine> engine_of(const std::shared_ptr<models::Model>& model,
                                        EngineOptions options = kInt8Keys) {
  return std::make_shared<const Engine>(model, options);
}

TEST(Int8Keys, AreOfAttentionsOverIndividualKeysAndRefusedElsewhere) {
  std::set<std::string> found;
  for (const Case& of : cases()) {
    const auto model = build(of);
    const std::string reason = unsupported_reason(*model, kInt8Keys);
    if (reason.empty()) {
      found.insert(of.name);
      continue;
    }
    test::expect_error<InputError>([&] { engine_of(model); }, {"cannot run this model: unsupported: keys and values in "
                                                               "int8 of attention '"});
    test::expect_error<InputError>([&] { make_engine(model, {}, "test", "int8"); },
                                   {"test: --kv-precision int8: ", "leave the option out"});
    EXPECT_NE(make_engine(model, {}, "test", "auto"), nullptr);
  }
  EXPECT_EQ(found, (std::set<std::string>{"gpt_neox_rmt", "llama", "relative_buckets", "relative_buckets_rmt",
                                          "rotary_xl_grouped", "softmax", "softmax_sinusoidal_tanh", "softmax_unscaled",
                                          "window", "window_xl", "xl_pre_softmax"}));
  test::expect_error<InputError>([&] { make_engine(build(cases()[0]), {}, "test", "int4"); },
                                 {"test: --kv-precision: expected auto or int8, found 'int4'"});
}

// To the bit, with the keys of rotary positions turned back in the file, in the middle of a segment and between two.
TEST(Int8Keys, GoOnFromAFileAndAForkAndStayNearFloat32) {
  for (const Case& of : cases()) {
    const auto model = build(of, 5);
    if (!unsupported_reason(*model, kInt8Keys).empty()) continue;
    Session session(engine_of(model)), wide(engine_of(model, {})), moved(engine_of(model));
    for (const int64_t count : {1, 3, 4, 2, 7}) {
      for (Session* each : {&session, &wide, &moved}) each->feed(text(count));
      moved = Session::load_bytes(moved.save_bytes(), engine_of(model));
      Session fork = session.fork();
      const at::Tensor logits = session.logits();
      EXPECT_TRUE(at::equal(moved.logits(), logits)) << of.name << " " << session.position();
      EXPECT_TRUE(at::equal(fork.logits(), logits)) << of.name << " " << session.position();
      const double off = (logits - wide.logits()).norm().item<double>() / wide.logits().norm().item<double>();
      EXPECT_LT(off, 0.1) << of.name << " " << session.position();
      EXPECT_TRUE(session.position() < 4 || off > 1e-6) << of.name << " " << off;
      EXPECT_LE(session.state_bytes(), wide.state_bytes()) << of.name;
    }
    for (int i = 0; i < 9; ++i) EXPECT_EQ(moved.next(), session.next()) << of.name;
  }
}

TEST(Int8Keys, TakeOneByteANumberAndTwoARow) {
  const auto model = build(cases()[0]);  // 2 layers of 3 heads of 8
  Session session(engine_of(model));
  session.feed(text(3));
  EXPECT_EQ(session.state_bytes(), 3 * 2 * 2 * 3 * (8 + 2));
  const auto engine = session.shared_engine();
  EXPECT_EQ(engine->bytes_per_token(20) - engine->bytes_per_token(10), 10 * 2 * 2 * 3 * (8 + 2));
}

TEST(Int8Keys, SessionsOfAnotherPrecisionAreRefused) {
  const auto model = build(cases()[0]);
  Session narrow(engine_of(model)), wide(engine_of(model, {}));
  for (Session* session : {&narrow, &wide}) session->feed(text(3));
  for (const bool engine : {true, false}) {
    test::expect_error<InputError>(
        [&] {
          if (engine) {
            Session::load_bytes(narrow.save_bytes(), engine_of(model, {}));
          } else {
            Session::load_bytes(narrow.save_bytes(), model);
          }
        },
        {"session: expected a session with kv_precision auto, found int8; continue it with the kv_precision that it "
         "was "
         "saved with"});
  }
  test::expect_error<InputError>([&] { Session::load_bytes(wide.save_bytes(), engine_of(model)); },
                                 {"expected a session with kv_precision int8, found auto"});
  test::expect_error<InputError>([&] { narrow.rewind(wide.mark()); }, {"another precision"});
}

}  // namespace
}  // namespace mnemo::infer
