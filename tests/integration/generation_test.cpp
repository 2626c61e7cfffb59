#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <set>

#include "base/error.h"
#include "base/options.h"
#include "infer/batcher.h"
#include "infer/session.h"
#include "models/model.h"
#include "models/registry.h"
#include "tests/support/configurations.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "weights/safetensors.h"

namespace mnemo::infer {
namespace {

constexpr int64_t kVocab = 13, kSegment = 5;

struct Case {
  std::string name;
  std::string config;  // members of the model's table other than the sizes, as JSON
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

/// Variants that matter to generation. Memories that are missing here are added by cases().
std::vector<Case> variants() {
  return {
      {"softmax", R"("backbone": {"attention": "softmax"})"},
      {"softmax_pre_norm_learned",
       R"("backbone": {"attention": "softmax", "norm": "pre", "final_norm": true, "position": {"type": "learned", "max_len": 32}})"},
      {"relative", R"("backbone": {"attention": "relative"})"},
      {"segment_cache", R"("memory": [{"type": "segment_cache", "mem_len": 7}])"},
      {"segment_cache_longer_than_segment", R"("memory": [{"type": "segment_cache", "mem_len": 12}])"},
      {"segment_cache_same_length", R"("memory": [{"type": "segment_cache", "mem_len": 7, "same_length": true}])"},
      {"segment_cache_eval_length", R"("memory": [{"type": "segment_cache", "mem_len": 3, "eval_mem_len": 9}])"},
      {"attention_cache", R"("memory": [{"type": "attention_cache", "mem_len": 7}])"},
      {"compressive",
       R"("memory": [{"type": "compressive", "mem_len": 4, "compressed_len": 3, "compression_rate": 2}])"},
      {"compressive_most_used_pre_norm",
       // Without positions, rows of the same token are alike, and rounding would choose among them.
       R"("backbone": {"attention": "softmax", "norm": "pre", "position": {"type": "learned", "max_len": 32}},
          "memory": [{"type": "compressive", "mem_len": 4, "compressed_len": 3, "compression_rate": 3, "compression": "most_used"}])"},
      {"adaptive",
       R"("embedding": {"type": "adaptive", "cutoffs": [4, 9], "div_val": 2},
          "head": {"adaptive": {"cutoffs": [4, 9], "div_val": 2}, "tied": false}, "memory": [{"type": "segment_cache", "mem_len": 7}])"},
      {"memory_tokens", R"("memory": [{"type": "memory_tokens", "num_mem_tokens": 3}])"},
      {"memory_tokens_authors", R"("memory": [{"type": "memory_tokens", "num_mem_tokens": 3, "variant": "authors"}])"},
      {"recurrent_tokens", R"("memory": [{"type": "recurrent_tokens", "num_mem_tokens": 3}])"},
      {"recurrent_tokens_learned_positions",
       R"("backbone": {"attention": "softmax", "position": {"type": "learned", "max_len": 64}},
          "memory": [{"type": "recurrent_tokens", "num_mem_tokens": 3, "block_mask": "causal"}])"},
      {"recurrent_tokens_and_cache",
       R"("memory": [{"type": "recurrent_tokens", "num_mem_tokens": 3}, {"type": "segment_cache", "mem_len": 7}])"},
      {"recurrent_tokens_reading_a_cache_of_tokens",
       R"("memory": [{"type": "recurrent_tokens", "num_mem_tokens": 2, "read_mem_from_cache": true},
                     {"type": "segment_cache", "mem_len": 11, "keep_memory_rows": false}])"},
      {"grc_of_the_model", R"("memory": [{"type": "grc", "cache_len": 4}])"},
      {"grc_of_the_sequence", R"("memory": [{"type": "grc", "cache_len": 4, "lifetime": "sequence"}])"},
      {"grc_softmax_and_cache",
       R"("backbone": {"attention": "softmax"},
          "memory": [{"type": "grc", "cache_len": 8, "lifetime": "sequence"}, {"type": "segment_cache", "mem_len": 7}])"},
      {"abc_exp", R"("backbone": {"attention": {"type": "abc", "num_slots": 4}})"},
      {"abc_relu", R"("backbone": {"attention": {"type": "abc", "num_slots": 4, "control": {"activation": "relu"}}})"},
      {"abc_sigmoid",
       R"("backbone": {"attention": {"type": "abc", "num_slots": 4, "control": {"activation": "sigmoid"}}})"},
      {"abc_random",
       R"("backbone": {"attention": {"type": "abc", "num_slots": 4, "control": "random", "mask_empty_slots": true}})"},
      {"abc_clustering", R"("backbone": {"attention": {"type": "abc", "num_slots": 4, "control": "clustering"}})"},
      {"abc_dilated",
       R"("backbone": {"attention": {"type": "abc", "num_slots": 4, "control": "dilated", "mask_empty_slots": true}})"},
      {"linear", R"("backbone": {"attention": {"type": "linear", "feature_map": "elu"}})"},
      {"linear_gate",
       R"("backbone": {"attention": {"type": "linear", "feature_map": "rfa", "num_features": 16, "gate": true}})"},
      {"relative_buckets", R"("backbone": {"attention": {"type": "relative_buckets"}})"},
      {"sliding_window",
       R"("backbone": {"attention": {"type": "sliding_window", "window_size": 3}}, "memory": [{"type": "segment_cache", "mem_len": 7}])"},
      {"abc_in_grc",
       R"("backbone": {"attention": {"type": "abc", "num_slots": 4}}, "memory": [{"type": "grc", "cache_len": 4, "lifetime": "sequence"}])"},
  };
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> list = variants();
    std::string named;
    for (const Case& c : list) named += c.config;
    for (const test::Configuration& c : test::combinations()) {
      if (c.attention() != "relative" || c.options.memory.size() != 1) continue;
      const std::string memory = c.options.memory[0].type();
      if (named.find("\"" + memory + "\"") == std::string::npos)
        list.push_back({memory, "\"memory\": [" + base::to_json(c.options.memory[0].table(), 0) + "]"});
    }
    return list;
  }();
  return all;
}

std::shared_ptr<models::Model> make(const Case& c, at::ScalarType dtype) {
  auto options = base::read_options<models::ModelOptions>(base::parse_json("{" + c.config + "}", c.name));
  options.embedding.vocab_size = kVocab;
  options.segment_size = kSegment;
  options.head.set("tied", false);  // a tied head makes a fresh model repeat itself
  options.backbone.stack().num_layers = 2;
  options.backbone.stack().dim = 16;
  options.backbone.stack().num_heads = 2;
  options.backbone.stack().ffn_dim = 24;
  options.backbone.stack().init_std = 0.3;  // far from uniform, so that a wrong state shows in the text
  std::shared_ptr<models::Model> model = models::build(options, 7, dtype);
  // A model's own cache is all zeros before training; fill it with something to read.
  at::manual_seed(5);
  model->commit(model->initial_state(1).map([](const core::Field& field, const at::Tensor& tensor) {
    return field.per_sequence() ? tensor : at::randn_like(tensor);
  }));
  return model;
}

std::vector<int64_t> prompt(int64_t length, int64_t salt = 0) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back((i * i + 3 * i + salt * 5) % kVocab);
  return tokens;
}

Session fed(const std::shared_ptr<models::Model>& model, int64_t length, int64_t salt = 0) {
  Session session(
      model, salt % 2 == 0 ? GenerateOptions::greedy() : GenerateOptions{.temperature = 1.2, .top_k = 9, .seed = salt});
  session.feed(prompt(length, salt));
  return session;
}

std::vector<int64_t> take(Session& session, int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(session.next());
  return tokens;
}

class Generation : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Memories, Generation, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(GenerationCases, CoverEveryMechanism) {
  std::string all;
  for (const Case& c : cases()) all += c.config;
  // The first three are bidirectional; and the boundaries of lsh's chunks move with later tokens, so its text is not
  // that of whole segments.
  all += R"("bigbird" "linformer" "disentangled" "lsh")";
  all += R"("learnable_tokens")";  // for vision models
  for (const auto& names : {models::Mechanisms::all().memories.names(), models::Mechanisms::all().attentions.names()}) {
    for (const std::string& name : names) EXPECT_NE(all.find("\"" + name + "\""), std::string::npos) << name;
  }
}

TEST_P(Generation, TokenByTokenIsWholeSegments) {
  for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-12}, std::pair{at::kFloat, 1e-5}}) {
    const auto model = make(GetParam(), dtype);
    Session whole(model), single(model), odd(model);
    const std::vector<int64_t> tokens = prompt(4 * kSegment + 3);
    for (size_t i = 0; i < tokens.size(); ++i) {
      single.feed({&tokens[i], 1});
      if (i + 1 == 8 || i + 1 == 9 || i + 1 == tokens.size()) {
        odd.feed(std::span(tokens).subspan(static_cast<size_t>(odd.position()),
                                           i + 1 - static_cast<size_t>(odd.position())));
        EXPECT_TRUE(at::allclose(odd.logits(), single.logits(), tolerance, tolerance))
            << i << "\n"
            << odd.logits() - single.logits();
      }
    }
    whole.feed(tokens);
    EXPECT_TRUE(at::allclose(whole.logits(), single.logits(), tolerance, tolerance))
        << whole.logits() - single.logits();
    EXPECT_EQ(whole.num_bytes(), single.num_bytes());
  }
}

TEST_P(Generation, SessionsSeeTheSameAsTheModelRunOverSegments) {
  const auto model = make(GetParam(), at::kDouble);
  const std::vector<int64_t> tokens = prompt(3 * kSegment);
  const at::NoGradGuard no_grad;
  core::State state = model->initial_state(1);
  at::Tensor logits;
  for (int64_t s = 0; s < 3; ++s) {
    core::Segment segment;
    segment.tokens = at::tensor(
                         std::vector<int64_t>(tokens.begin() + s * kSegment, tokens.begin() + (s + 1) * kSegment))
                         .unsqueeze(0);
    auto step = model->forward(segment, state);
    logits = model->logits(step.hidden.select(1, kSegment - 1)).select(0, 0);
    state = std::move(step.state);
  }
  Session session(model);
  session.feed(tokens);
  EXPECT_TRUE(at::allclose(session.logits(), logits, 0, 1e-12));
}

TEST_P(Generation, ContinuesAsRecomputedFromTheStart) {
  const auto model = make(GetParam(), at::kDouble);
  for (const int64_t salt : {0, 1}) {
    Session session = fed(model, 3, salt);
    std::vector<int64_t> tokens = prompt(3, salt);
    for (int64_t i = 0; i < 4 * kSegment; ++i) {
      Session again(model, session.sampling());
      again.feed(tokens);
      const int64_t token = session.next();
      ASSERT_EQ(token, again.next()) << i;
      ASSERT_TRUE(at::allclose(session.logits(), again.logits(), 0, 1e-11)) << i;
      tokens.push_back(token);
    }
    if (salt == 1) {
      EXPECT_GT(std::set<int64_t>(tokens.begin() + 3, tokens.end()).size(), 4u) << "too dull a text to tell";
    }
  }
}

TEST_P(Generation, BatchedIsAlone) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const auto model = make(GetParam(), dtype);
    Batcher batcher(model);
    std::map<int64_t, std::vector<int64_t>> texts;
    std::map<int64_t, Session> starts;
    auto join = [&](int64_t length, int64_t salt) {
      Session session = fed(model, length, salt);
      starts.emplace(batcher.add(session), session);
    };
    auto run = [&](int64_t steps) {
      for (int64_t i = 0; i < steps; ++i) {
        for (const auto& [id, token] : batcher.step()) texts[id].push_back(token);
      }
    };
    join(3, 0);
    join(14, 1);
    join(3, 3);
    run(7);
    join(1, 5);
    join(22, 2);
    run(9);
    Session leaver = batcher.remove(1);
    run(11);
    for (const int64_t token : take(leaver, 11)) texts[1].push_back(token);
    for (auto& [id, start] : starts) {
      Session alone = start.fork();
      EXPECT_EQ(texts[id], take(alone, static_cast<int64_t>(texts[id].size()))) << id;
      if (id == 1) continue;
      Session back = batcher.remove(id);
      if (dtype == at::kDouble) {
        EXPECT_LE((back.logits() - alone.logits()).abs().max().item<double>(), 1e-11) << id;
      }
    }
  }
}

TEST_P(Generation, TheStateStaysAsSmallInABatchAsAlone) {
  const auto model = make(GetParam(), at::kFloat);
  Batcher batcher(model);
  // Two sessions half a segment apart, so that each is the longer one half of the time; both caches fill up.
  const auto a = batcher.add(fed(model, 1, 0));
  const auto b = batcher.add(fed(model, 3, 1));
  Session alone = fed(model, 1, 0);
  for (int64_t i = 0; i < 12 * kSegment; ++i) {
    batcher.step();
    alone.next();
  }
  EXPECT_LE(batcher.remove(a).num_bytes(), alone.num_bytes());
  batcher.remove(b);
}

TEST_P(Generation, ForkRewindSaveAndLoadContinueIdentically) {
  const test::TemporaryFolder folder;
  const auto model = make(GetParam(), at::kFloat);
  for (const int64_t made : {0, 2, 3, 6}) {
    Session session = fed(model, 2 * kSegment + 1, 1);
    take(session, made);
    session.save(folder / "session.safetensors");
    Session fork = session.fork(), loaded = Session::load(folder / "session.safetensors", model);
    const Session::Mark mark = session.mark();
    const std::vector<int64_t> text = take(session, 3 * kSegment);
    const at::Tensor logits = session.logits();
    EXPECT_EQ(take(fork, 3 * kSegment), text) << made;
    EXPECT_TRUE(at::equal(fork.logits(), logits)) << made;
    EXPECT_EQ(take(loaded, 3 * kSegment), text) << made;
    EXPECT_TRUE(at::equal(loaded.logits(), logits)) << made;
    session.rewind(mark);
    EXPECT_EQ(take(session, 3 * kSegment), text) << made;
    EXPECT_TRUE(at::equal(session.logits(), logits)) << made;
  }
}

TEST_P(Generation, AnOpenSegmentOfAnotherLengthIsRefused) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "session.safetensors";
  const auto model = make(GetParam(), at::kFloat);
  fed(model, 2 * kSegment + 2, 1).save(path);
  for (const char* name : {"open.length", "open.read_rows"}) {
    weights::TensorFile file = weights::read_safetensors(path);
    for (auto& [key, tensor] : file.tensors) {
      if (key == std::string("state.") + name) tensor = tensor + 1;
    }
    weights::write_safetensors(folder / "other.safetensors", file.tensors, file.metadata);
    test::expect_error<base::InputError>([&] { Session::load(folder / "other.safetensors", model); },
                                         {"contradict", name});
  }
}

TEST_P(Generation, GeneratingNeverMovesTheModel) {
  const auto model = make(GetParam(), at::kFloat);
  const std::string before = fingerprint(*model);
  const auto shared = model->initial_state(1).fields();
  Session session = fed(model, 7, 1);
  take(session, 3 * kSegment);
  EXPECT_EQ(fingerprint(*model), before);
  const auto after = model->initial_state(1).fields();
  for (size_t i = 0; i < shared.size(); ++i)
    EXPECT_TRUE(at::equal(shared[i].second, after[i].second)) << shared[i].first.path;
}

}  // namespace
}  // namespace mnemo::infer
