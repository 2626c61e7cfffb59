// Law 12: a session that is fed in parts, exported and imported, or run beside others writes the same tokens.
#include "infer/scheduler.h"
#include "infer/text_session.h"
#include "tests/conformance/suite.h"
#include "tests/support/pieces_tokenizer.h"

namespace mnemo::test {
namespace {

using infer::Engine;
using infer::EngineOptions;
using infer::GenerateOptions;
using infer::Scheduler;
using infer::Session;
using infer::TextSession;

constexpr size_t kWritten = 12;

class Sessions : public Conformance {
 protected:
  static std::vector<int64_t> prompt(int64_t length, int64_t seed) {
    const at::Tensor tokens = Numbers(static_cast<uint64_t>(seed)).tokens({length}, kVocab);
    return {tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + length};
  }
  static TextSession open(const std::shared_ptr<const Engine>& engine, int64_t seed, bool reset) {
    Session session(engine, {.temperature = 1.1, .seed = seed});
    session.set_reset_segments(reset);
    return {std::move(session), std::make_shared<PiecesTokenizer>(kVocab)};
  }
  static std::vector<int64_t> take(Session& session, size_t count) {
    std::vector<int64_t> tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(session.next());
    return tokens;
  }

  /// Read and written in parts, and carried to another engine of the same weights after each.
  static std::vector<int64_t> in_parts(const std::shared_ptr<const models::Model>& model, const EngineOptions& options,
                                       bool reset) {
    const auto moved = [&](const Session& session) {
      return Session::load_bytes(session.save_bytes(), std::make_shared<const Engine>(model, options));
    };
    Session session = moved(open(std::make_shared<const Engine>(model, options), 3, reset).session());
    const std::vector<int64_t> tokens = prompt(9, 20);
    size_t fed = 0;
    for (const size_t count : {1, 2, 4, 2}) {
      session.feed(std::span(tokens).subspan(fed, count));
      session = moved(session);
      fed += count;
    }
    std::vector<int64_t> written;
    for (const size_t count : {1, 4, 2, 5}) {
      for (const int64_t token : take(session, count)) written.push_back(token);
      session = moved(session);
    }
    return written;
  }

  /// Beside three others, of which one has begun before and one ends early.
  static std::vector<int64_t> beside(const std::shared_ptr<const Engine>& engine, bool reset) {
    Scheduler scheduler(engine);
    const auto submit = [&](int64_t length, int64_t seed, size_t most) {
      return scheduler.submit(open(engine, seed, reset), {prompt(length, 17 + seed)},
                              {.max_tokens = static_cast<int64_t>(most)});
    };
    submit(6, 1, kWritten);
    scheduler.tick();
    scheduler.tick();
    submit(2, 2, 3);
    const auto id = submit(9, 3, kWritten);
    submit(5, 4, kWritten);
    std::vector<int64_t> written;
    while (scheduler.running() + scheduler.waiting() > 0) {
      for (const Scheduler::Event& event : scheduler.tick()) {
        EXPECT_EQ(event.error, "");
        if (event.id == id) written.push_back(event.token);
      }
    }
    return written;
  }
};

TEST_P(Sessions, WriteTheSameTokensInPartsElsewhereAndBesideOthers) {
  const std::shared_ptr<models::Model> model = make_model(config().options, at::kFloat);
  warm_state(*model, 2);
  if (!infer::unsupported_reason(*model).empty()) return;
  for (const EngineOptions& options : {EngineOptions{},
                                       {.precision = ops::Precision::bf16},
                                       {.precision = ops::Precision::int8},
                                       {.int8_keys = true}}) {
    if (!infer::unsupported_reason(*model, options).empty()) continue;
    for (const bool reset : {false, true}) {
      const std::string where = fmt::format("{}{}{}", ops::name_of(options.precision),
                                            options.int8_keys ? ", int8 keys" : "", reset ? ", reset" : "");
      const auto engine = std::make_shared<const Engine>(model, options);
      TextSession whole = open(engine, 3, reset);
      whole.session().feed(prompt(9, 20));
      const std::vector<int64_t> expected = take(whole.session(), kWritten);
      EXPECT_EQ(in_parts(model, options, reset), expected) << where;
      EXPECT_EQ(beside(engine, reset), expected) << where;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Sessions, testing::ValuesIn(configurations()), name_of);

}  // namespace
}  // namespace mnemo::test
