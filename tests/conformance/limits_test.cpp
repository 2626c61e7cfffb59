// Laws 3 to 6 for a mechanism that is switched off: the rest of the model is unchanged, bit for bit.
#include "core/attention_build.h"
#include "models/registry.h"
#include "ops/abc/abc_scan.h"
#include "ops/attention/attention.h"
#include "ops/naive/abc.h"
#include "ops/naive/attention.h"
#include "tests/conformance/suite.h"

namespace mnemo::test {
namespace {

/// Copies the parameters of `from` that `to` has too; returns their number.
size_t copy_parameters(const layers::ParameterSet& from, const layers::ParameterSet& to) {
  const at::NoGradGuard no_grad;
  size_t copied = 0;
  for (const auto& [name, tensor] : to.named()) {
    const at::Tensor source = from.find(name);
    if (!source.defined()) continue;
    at::Tensor(tensor).copy_(source);
    ++copied;
  }
  return copied;
}

/// Expects both models to return the same hidden states, bit for bit, over several segments in both modes.
void expect_same_model(models::Model& left, models::Model& right) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(3).tokens({3, 11}, kVocab);
  const Plan plan = left.options().backbone.causal() ? segments({4}) + parts({2, 2}) + segments({3})
                                                     : segments({4, 4, 3});
  for (const core::Mode mode : {core::Mode::evaluate, core::Mode::train}) {
    EXPECT_TRUE(same_bits(run(left, tokens, plan, left.initial_state(3), mode).hidden,
                          run(right, tokens, plan, right.initial_state(3), mode).hidden));
  }
}

/// Compares a model whose first memory is switched off by assignments with the same model without it.
void expect_switched_off(std::vector<std::string> with, const std::vector<std::string>& without, double lambda = 0) {
  auto off = make_model(configuration("with", with).options);
  auto plain = make_model(configuration("without", without).options, at::kDouble, 9);
  EXPECT_EQ(copy_parameters(off->parameters(), plain->parameters()), plain->parameters().all().size());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : off->parameters().named()) {
    if (lambda != 0 && name.ends_with("grc.lambda")) at::Tensor(tensor).fill_(lambda);
  }
  expect_same_model(*off, *plain);
}

TEST(Limits, GrcWithoutACacheShareIsItsInnerAttention) {
  const std::vector<std::vector<std::string>> inner = {
      {"backbone.attention.type=softmax"},
      {"backbone.attention.type=relative"},
      {"backbone.attention.type=abc", "backbone.attention.num_slots=3"},
      {"backbone.attention.type=linear"},
      {"backbone.attention.type=sliding_window", "backbone.attention.window_size=3"},
      {"backbone.attention.type=lsh", "backbone.attention.num_buckets=4", "backbone.attention.chunk_len=3"}};
  for (const auto& attention : inner) {
    for (const char* lifetime : {"model", "sequence"}) {
      auto with = attention;
      for (const char* option : {"memory[0].type=grc", "memory[0].cache_len=3"}) with.emplace_back(option);
      with.push_back(std::string("memory[0].lifetime=") + lifetime);
      expect_switched_off(with, attention, -1e9);
    }
  }
  for (const char* attention : {"backbone.attention.type=softmax", "backbone.attention.type=linear"}) {
    expect_switched_off({attention, "memory[0].type=grc", "memory[0].cache_len=3", "memory[0].mem_attention=same"},
                        {attention}, -1e9);
  }
}

TEST(Limits, GrcWithoutACacheShareIsItsInnerAttentionInAnEncoderToo) {
  const std::string abc = "backbone.attention.type=abc", slots = "backbone.attention.num_slots=3",
                    control = "backbone.attention.control.type=";
  const std::vector<std::vector<std::string>> inner = {
      {"backbone.attention.type=softmax"},
      {"backbone.attention.type=relative"},
      {"backbone.attention.type=linear"},
      {"backbone.attention.type=sliding_window", "backbone.attention.window_size=3"},
      {"backbone.attention.type=bigbird"},
      {"backbone.attention.type=linformer", "backbone.attention.max_len=16"},
      {"backbone.attention.type=lsh", "backbone.attention.num_buckets=4", "backbone.attention.chunk_len=3"},
      {"backbone.attention.type=lsh", "backbone.attention.variant=lra"},
      {abc, slots},
      {abc, slots, "backbone.attention.control.activation=relu"},
      {abc, slots, control + "random"},
      {abc, slots, control + "clustering"},
      {abc, slots, control + "window"},
      {abc, slots, control + "luna"}};
  const std::vector<std::vector<std::string>> readings = {{"memory[0].variant=authors"},
                                                          {"memory[0].lifetime=sequence"},
                                                          {"memory[0].eval_read=stored"},
                                                          {"memory[0].attend=batch_mean"},
                                                          {}};
  for (auto attention : inner) {
    attention.emplace_back("backbone.type=encoder");
    for (const auto& reading : readings) {
      SCOPED_TRACE(testing::PrintToString(attention) + testing::PrintToString(reading));
      auto with = attention;
      with.insert(with.end(), {"memory[0].type=grc", "memory[0].cache_len=3"});
      with.insert(with.end(), reading.begin(), reading.end());
      expect_switched_off(with, attention, -1e9);
    }
  }
}

TEST(Limits, MemoryTokensAndRecurrentTokensOfNoneAreTheBackbone) {
  const std::string xl = "memory[1].type=segment_cache", rows = "memory[1].mem_len=6";
  for (const char* memory : {"memory_tokens", "recurrent_tokens"}) {
    const std::string type = std::string("memory[0].type=") + memory, none = "memory[0].num_mem_tokens=0";
    expect_switched_off({"backbone.attention.type=relative", type, none}, {"backbone.attention.type=relative"});
    expect_switched_off({"backbone.attention.type=softmax", type, none, "backbone.position.type=learned"},
                        {"backbone.attention.type=softmax", "backbone.position.type=learned"});
    for (const char* read : {"memory[0].read_mem_from_cache=false", "memory[0].read_mem_from_cache=true"}) {
      expect_switched_off({"backbone.attention.type=relative", type, none, read, xl, rows},
                          {"backbone.attention.type=relative", "memory[0].type=segment_cache", "memory[0].mem_len=6"});
    }
  }
}

TEST(Limits, ASegmentCacheOfNoRowsIsTheBaseline) {
  for (const char* attention : {"backbone.attention.type=relative", "backbone.attention.type=softmax"}) {
    expect_switched_off({attention, "memory[0].type=segment_cache", "memory[0].mem_len=0"}, {attention});
  }
  // Only in evaluation: there it equals the baseline, in training it does not.
  auto off = make_model(
      configuration("with", {"memory[0].type=segment_cache", "memory[0].mem_len=5", "memory[0].eval_mem_len=0"})
          .options);
  auto plain = make_model(configuration("without", {}).options);
  copy_parameters(off->parameters(), plain->parameters());
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(3).tokens({2, 8}, kVocab);
  const auto hidden = [&](models::Model& model, core::Mode mode) {
    return run(model, tokens, segments({4, 4}), model.initial_state(2), mode).hidden;
  };
  EXPECT_TRUE(same_bits(hidden(*off, core::Mode::evaluate), hidden(*plain, core::Mode::evaluate)));
  EXPECT_GT(difference(hidden(*off, core::Mode::train), hidden(*plain, core::Mode::train)), 1e-6);
}

TEST(Limits, AContextThatCompressesNothingIsTheSegmentCache) {
  for (const std::string attention : {"backbone.attention.type=relative", "backbone.attention.type=softmax"}) {
    for (const std::string rows : {"memory[0].mem_len=6", "memory[0].mem_len=3"}) {
      expect_switched_off({attention, "memory[0].type=compressive", rows, "memory[0].compressed_len=0",
                           "memory[0].compression_rate=1", "memory[0].compression=mean_pooling"},
                          {attention, "memory[0].type=segment_cache", rows});
      expect_switched_off({attention, "memory[0].type=attention_cache", rows},
                          {attention, "memory[0].type=segment_cache", rows});
    }
  }
}

// Law 4, evaluation.
class FrozenCache : public Conformance {};

TEST_P(FrozenCache, EvaluationNeverMovesItAndTrainingDoes) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 2);
  const auto cache = [](const core::State& state) {
    std::vector<at::Tensor> found;
    for (const auto& [field, tensor] : state.fields()) {
      if (!field.per_sequence()) found.push_back(tensor.clone());
    }
    return found;
  };
  const auto before = cache(warm);
  ASSERT_EQ(before.size(), 2U);
  const at::Tensor tokens = Numbers(3).tokens({2, 9}, kVocab);
  for (const Plan& plan : {segments({4, 5}), in_parts(config(), {4, 1, 4})}) {
    const auto evaluated = cache(run(*model, tokens, plan, warm).state);
    const auto trained = cache(run(*model, tokens, plan, warm, core::Mode::train).state);
    ASSERT_EQ(evaluated.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(same_bits(evaluated[i], before[i]));
      EXPECT_GT(difference(trained[i], before[i]), 1e-6);
    }
  }
  // A new sequence starts from the committed cache, and evaluation does not commit.
  const auto fresh = cache(model->initial_state(5));
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(fresh[i], before[i]));
}

INSTANTIATE_TEST_SUITE_P(All, FrozenCache, testing::ValuesIn(configurations_where(has_model_cache)), name_of);
INSTANTIATE_TEST_SUITE_P(Encoders, FrozenCache, testing::ValuesIn([] {
                           std::vector<Configuration> chosen;
                           std::copy_if(encoders().begin(), encoders().end(), std::back_inserter(chosen),
                                        has_model_cache);
                           return chosen;
                         }()),
                         name_of);

class BatchOrder : public Conformance {};

TEST_P(BatchOrder, OrderAndCompanyDoNotMatterInEvaluation) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  const core::State warm = warm_state(*model, 3);
  const at::Tensor tokens = Numbers(3).tokens({3, 9}, kVocab), order = at::tensor({2, 0, 1}, at::kLong);
  const Plan plan = segments({4}) + in_parts(config(), {2, 3});
  const Outcome expected = run(*model, tokens, plan, warm);
  const Outcome permuted = run(*model, tokens.index_select(0, order), plan, core::select_batch(warm, order));
  expect_near(permuted, {expected.hidden.index_select(0, order), core::select_batch(expected.state, order)}, 1e-12,
              "another order");
  for (int64_t row = 0; row < 3; ++row) {
    const at::Tensor only = at::tensor({row}, at::kLong);
    const Outcome alone = run(*model, tokens.index_select(0, only), plan, core::select_batch(warm, only));
    expect_near(alone, {expected.hidden.index_select(0, only), core::select_batch(expected.state, only)}, 1e-12,
                "alone");
  }
}

INSTANTIATE_TEST_SUITE_P(All, BatchOrder, testing::ValuesIn(decoders_and_encoders()), name_of);

// Law 4 for bidirectional attention, which no causal model contains: tests the module itself.
TEST(Limits, GrcOfBothReadingsAroundOpenAttention) {
  const auto& mechanisms = models::Mechanisms::all();
  for (const char* variant : {"paper", "authors"}) {
    layers::ParameterSet parameters(1, at::kDouble);
    const layers::Scope root = parameters.root();
    const core::AttentionBuild build{root, root, root, 8, 2, 4, false, 0.3};
    const base::TypedOptions softmax = mechanisms.attention_types.read(base::Node::table({{"type", "softmax"}}));
    const base::TypedOptions grc = mechanisms.memory_types.read(
        base::Node::table({{"type", "grc"}, {"variant", variant}, {"cache_len", 3}}));
    const auto attention = mechanisms.memories.find("grc").wrap_attention(
        grc, build, mechanisms.attentions.find("softmax").make(softmax, build));
    layers::ParameterSet plain_parameters(2, at::kDouble);
    const layers::Scope plain_root = plain_parameters.root();
    const auto plain = mechanisms.attentions.find("softmax").make(
        softmax, {plain_root, plain_root, plain_root, 8, 2, 4, false, 0.3});
    copy_parameters(parameters, plain_parameters);

    const at::NoGradGuard no_grad;
    Numbers numbers(3);
    const core::AttendTable table({core::SpanKind::tokens, 5}, core::Rule::all());
    const at::Tensor x = numbers.normal({3, 5, 8}), order = at::tensor({2, 0, 1}, at::kLong);
    core::State state = attention->forward({x, {}, table, core::Mode::train}, attention->initial_state(3)).state;
    const auto evaluated = attention->forward({x, {}, table}, state);
    EXPECT_EQ(state_difference(evaluated.state, state, 0.0), "") << variant;
    expect_near(attention->forward({x.index_select(0, order), {}, table}, state).y, evaluated.y.index_select(0, order),
                1e-14, variant);

    const at::Tensor expected = plain->forward({x, {}, table}, plain->initial_state(3)).y;
    EXPECT_GT(difference(evaluated.y, expected), 1e-6) << variant;
    parameters.find("grc.lambda").fill_(-1e9);
    EXPECT_TRUE(same_bits(attention->forward({x, {}, table}, state).y, expected)) << variant;
  }
}

// Law 3, on the operations: token i is written only to slot i.
struct Heads {
  at::Tensor q, k, v;
};

Heads random_heads(int64_t tokens) {
  Numbers numbers(static_cast<uint64_t>(tokens));
  return {numbers.normal({2, 2, tokens, 4}), numbers.normal({2, 2, tokens, 4}), numbers.normal({2, 2, tokens, 4})};
}

/// Control logits [B,H,T,n]: `on` where slot = token, `off` elsewhere.
at::Tensor one_slot_each(int64_t tokens, int64_t slots, double on, double off) {
  const at::Tensor s = at::full({tokens, slots}, off, at::kDouble);
  s.diagonal().fill_(on);
  return s.expand({2, 2, tokens, slots}).contiguous();
}

ops::AbcMemory empty(int64_t slots, ops::AbcActivation activation) {
  return ops::abc_empty(2, 2, slots, 4, activation, at::TensorOptions().dtype(at::kDouble));
}

TEST(AbcIsSoftmax, ForEveryQueryWhenItLooksBothWays) {
  for (const int64_t tokens : {1, 7}) {
    const Heads h = random_heads(tokens);
    const at::Tensor expected = ops::attention_naive(h.q, h.k, h.v, {}, ops::RelShift::none, {}, 0.5);
    const auto full = [&](double on, double off, ops::AbcActivation activation) {
      return ops::abc_full(h.q, h.k, h.v, one_slot_each(tokens, tokens, on, off), {}, activation, 1e-6, 0.5).o;
    };
    expect_near(full(1e4, -1e4, ops::AbcActivation::exp), expected, 1e-13, "exp");
    expect_near(full(1e8, -1, ops::AbcActivation::relu), expected, 1e-12, "relu");
  }
}

TEST(AbcIsSoftmax, ForTheQueryThatFillsTheLastSlot) {
  // With t slots, the query of token t reads t filled slots and no empty one: row t of causal softmax attention.
  const int64_t tokens = 7;
  const Heads h = random_heads(tokens);
  const at::Tensor mask = at::ones({tokens, tokens}, at::kBool).tril();
  const at::Tensor expected = ops::attention_naive(h.q, h.k, h.v, {}, ops::RelShift::none, mask, 0.5);
  for (const auto& [activation, on, off] :
       {std::tuple{ops::AbcActivation::exp, 1e4, -1e4}, std::tuple{ops::AbcActivation::relu, 1e8, -1.0}}) {
    for (int64_t t = 1; t <= tokens; ++t) {
      const auto first = [&](const at::Tensor& x) { return x.narrow(2, 0, t); };
      const at::Tensor s = one_slot_each(t, t, on, off);
      for (const auto& causal : {&ops::abc_causal, &ops::abc_causal_naive}) {
        const auto out = causal(first(h.q), first(h.k), first(h.v), s, empty(t, activation), {}, activation, 1e-6, 0.5);
        expect_near(out.o.select(2, t - 1), expected.select(2, t - 1), 1e-12, fmt::format("query {}", t));
      }
    }
  }
}

TEST(AbcIsSoftmax, OnceTheMassOfEmptySlotsIsTakenOut) {
  // The slots of later tokens are empty: K = V = 0, score 0. Each takes e^0 of the softmax and contributes nothing, so
  //   o_t (Z_t + n - t) / Z_t,  Z_t = sum_{i<=t} e^{q.k_i scale},
  // is causal softmax attention. s = -inf writes nothing at all.
  const int64_t tokens = 7;
  const double minus_infinity = -std::numeric_limits<double>::infinity();
  const Heads h = random_heads(tokens);
  const at::Tensor mask = at::ones({tokens, tokens}, at::kBool).tril();
  const at::Tensor expected = ops::attention_naive(h.q, h.k, h.v, {}, ops::RelShift::none, mask, 0.5);
  const at::Tensor s = one_slot_each(tokens, tokens, 0.0, minus_infinity);
  const auto literal = ops::abc_exp_scan(h.q, h.k, h.v, s, empty(tokens, ops::AbcActivation::exp), 0.5);
  const at::Tensor z = (at::matmul(h.q, h.k.transpose(-1, -2)) * 0.5).exp().mul(mask).sum(-1);
  const at::Tensor empties = at::arange(tokens - 1, -1, -1, at::kDouble);
  expect_near(literal.o * ((z + empties) / z).unsqueeze(-1), expected, 1e-12, "masked by hand");
  EXPECT_GT(difference(literal.o, expected), 1e-3);
}

}  // namespace
}  // namespace mnemo::test
