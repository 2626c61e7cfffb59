#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/machine.h"
#include "base/options.h"
#include "infer/batcher.h"
#include "infer/session.h"
#include "models/model.h"

namespace mnemo::infer {
namespace {

constexpr int64_t kTokens = 1'000'000, kVocab = 17;

std::shared_ptr<models::Model> tiny(const std::string& config) {
  auto options = base::read_options<models::ModelOptions>(base::parse_json(config, "tiny"));
  options.embedding.vocab_size = kVocab;
  options.backbone.stack().num_layers = 1;
  options.backbone.stack().dim = 8;
  options.backbone.stack().num_heads = 1;
  options.backbone.stack().ffn_dim = 8;
  options.backbone.stack().init_std = 0.5;
  return models::build(options, 3);
}

Session started(const std::shared_ptr<models::Model>& model, int64_t seed) {
  Session session(model, {.seed = seed});
  const int64_t token = seed % kVocab;
  for (int64_t i = 0; i <= seed % 5; ++i) session.feed({&token, 1});
  return session;
}

/// Runs `steps` times; after the first tenth, memory may grow by no more than a megabyte: about one byte per token.
template <class Step>
void expect_flat(int64_t steps, const Step& step) {
  const int64_t warm = steps / 10;
  int64_t after_warm_up = 0, most = 0;
  for (int64_t i = 0; i < steps; ++i) {
    step(i);
    if (i + 1 == warm) after_warm_up = base::resident_memory();
    if (i >= warm && i % 1000 == 0) most = std::max(most, base::resident_memory());
  }
  ASSERT_GT(after_warm_up, 0);
  std::printf("resident after warm-up %.1f MB, at most %.1f MB\n", after_warm_up / 1e6, most / 1e6);
  EXPECT_LT(most - after_warm_up, 1 << 20);
}

TEST(MemoryGrowthSlow, OneSessionOfAMillionTokens) {
  const auto model = tiny(R"({"segment_size": 16, "backbone": {"attention": {"type": "abc", "num_slots": 4}}})");
  Session session = started(model, 1);
  session.next();
  const int64_t bytes = session.state_bytes(), place = session.position();
  static_assert(kTokens % 16 == 0, "both readings are taken at the same place of a segment");
  expect_flat(kTokens, [&](int64_t) { session.next(); });
  EXPECT_EQ(session.position(), place + kTokens);
  EXPECT_EQ(session.state_bytes(), bytes);
}

TEST(MemoryGrowthSlow, SessionsSideBySideWithAMillionTokensInAll) {
  const auto model = tiny(R"({"segment_size": 8, "memory": [{"type": "recurrent_tokens", "num_mem_tokens": 2},
                                                            {"type": "segment_cache", "mem_len": 12}]})");
  constexpr int64_t kSessions = 50;
  Batcher batcher(model);
  std::vector<Batcher::Id> ids;
  for (int64_t seed = 0; seed < kSessions; ++seed) ids.push_back(batcher.add(started(model, seed)));
  expect_flat(kTokens / kSessions, [&](int64_t i) {
    batcher.step();
    if (i % 7 != 0) return;
    // One session leaves, generates on a copy that is thrown away, and returns.
    Batcher::Id& id = ids[static_cast<size_t>(i / 7 % kSessions)];
    Session session = batcher.remove(id);
    const Session::Mark mark = session.mark();
    session.fork().next();
    session.next();
    session.rewind(mark);
    id = batcher.add(std::move(session));
  });
}

}  // namespace
}  // namespace mnemo::infer
