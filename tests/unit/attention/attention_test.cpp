// Both attentions compared with their formulas, written out pair by pair.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <memory>

#include "attention/linear.h"
#include "attention/lsh.h"
#include "attention/relative.h"
#include "attention/relative_buckets.h"
#include "attention/sliding_window.h"
#include "attention/softmax.h"
#include "core/grouped_queries.h"
#include "core/inspection.h"
#include "core/kv_state.h"
#include "ops/attention/attention.h"
#include "ops/attention/position.h"
#include "ops/naive/attention.h"
#include "tests/support/numbers.h"

namespace mnemo::attention {
namespace {

using core::AttendTable;
using core::Rule;
using core::SpanKind;
using test::difference;
using test::Numbers;

constexpr int64_t kDim = 6, kHeads = 2, kWidth = 4;

template <class A>
struct Subject {
  explicit Subject(const typename A::Options& options)
      : parameters(1, at::kDouble),
        attention(
            std::make_unique<A>(options, core::AttentionBuild{parameters.root() / "attn", parameters.root() / "layer",
                                                              parameters.root(), kDim, kHeads, kWidth, true, 0.1})) {
    const at::NoGradGuard no_grad;
    Numbers numbers(4);
    for (const auto& [name, tensor] : parameters.named())
      at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.5);
  }
  at::Tensor project(const std::string& name, const at::Tensor& rows) const {
    const at::Tensor bias = parameters.find("attn." + name + ".bias");
    const at::Tensor out = at::matmul(rows, parameters.find("attn." + name + ".weight").t());
    return bias.defined() ? out + bias : out;
  }

  layers::ParameterSet parameters;
  std::unique_ptr<A> attention;
};

double sinusoid(double p, int64_t column) {
  const int64_t k = column % (kDim / 2);
  const double angle = p * std::pow(10000.0, -2.0 * static_cast<double>(k) / kDim);
  return column < kDim / 2 ? std::sin(angle) : std::cos(angle);
}

/// y for x [Q,D] of one sequence, with keys from rows [K,D]; score(h, i, j) is added to q.k / sqrt(d).
template <class A>
at::Tensor by_definition(
    const Subject<A>& s, const at::Tensor& x, const at::Tensor& rows, const at::Tensor& mask,
    const std::function<double(int64_t h, int64_t i, int64_t j, const at::Tensor& q, const at::Tensor& k)>& score) {
  const at::Tensor q = s.project("q", x), k = s.project("k", rows), v = s.project("v", rows);
  at::Tensor joined = at::zeros({x.size(0), kHeads * kWidth}, at::kDouble);
  for (int64_t h = 0; h < kHeads; ++h) {
    const auto head = [&](const at::Tensor& t, int64_t row) { return t[row].narrow(0, h * kWidth, kWidth); };
    for (int64_t i = 0; i < x.size(0); ++i) {
      at::Tensor sum = at::zeros({kWidth}, at::kDouble);
      double total = 0;
      for (int64_t j = 0; j < rows.size(0); ++j) {
        if (!mask[i][j].item<bool>()) continue;
        const double weight = std::exp(score(h, i, j, head(q, i), head(k, j)));
        total += weight;
        sum = sum + weight * head(v, j);
      }
      if (total > 0) joined[i].narrow(0, h * kWidth, kWidth).copy_(sum / total);
    }
  }
  return s.project("o", joined);
}

double score_of(const at::Tensor& a, const at::Tensor& b) { return (a * b).sum().item<double>(); }

/// The relative score: ((q + u).k + (q + v).r(p)) / sqrt(d).
auto relative_score(const Subject<Relative>& s, const std::string& owner, int64_t context, int64_t clamp) {
  return [&s, owner, context, clamp](int64_t h, int64_t i, int64_t j, const at::Tensor& q, const at::Tensor& k) {
    auto p = static_cast<double>(i + context - j);
    if (clamp > 0) p = std::clamp(p, -static_cast<double>(clamp), static_cast<double>(clamp));
    at::Tensor sines = at::zeros({kDim}, at::kDouble);
    for (int64_t c = 0; c < kDim; ++c) sines[c] = sinusoid(p, c);
    const at::Tensor r = s.project("r", sines).narrow(0, h * kWidth, kWidth);
    return (score_of(q + s.parameters.find(owner + "u")[h], k) + score_of(q + s.parameters.find(owner + "v")[h], r)) /
           std::sqrt(double{kWidth});
  };
}

/// A table with some of everything: a cache, a read block that looks right, tokens.
AttendTable some_table(int64_t cached, int64_t tokens) {
  AttendTable table({SpanKind::tokens, tokens});
  table.append_context({SpanKind::cache, cached}, Rule::causal());
  table.prepend_rows({SpanKind::read, 2})
      .set_rule(SpanKind::read, SpanKind::read, Rule::all())
      .set_rule(SpanKind::tokens, SpanKind::read, Rule::all());
  return table;
}

TEST(Softmax, IsItsFormula) {
  for (const bool bias : {false, true}) {
    SoftmaxOptions options;
    options.bias = bias;
    const Subject<Softmax> s(options);
    Numbers numbers(1);
    const at::Tensor x = numbers.normal({2, 5, kDim}), context = numbers.normal({2, 3, kDim});
    const AttendTable table = some_table(3, 3);
    const at::Tensor found = s.attention->forward({x, context, table}, s.attention->initial_state(2)).y;
    for (int64_t b = 0; b < 2; ++b) {
      const at::Tensor rows = at::cat({context[b], x[b]});
      EXPECT_LE(difference(found[b], by_definition<Softmax>(
                                         s, x[b], rows, table.expand(),
                                         [](int64_t, int64_t, int64_t, const at::Tensor& q, const at::Tensor& k) {
                                           return score_of(q, k) / std::sqrt(double{kWidth});
                                         })),
                1e-13);
    }
  }
}

TEST(Softmax, QkvBiasIsRuledByItself) {
  SoftmaxOptions options;
  options.bias = true;
  options.qkv_bias = false;
  const Subject<Softmax> s(options);
  EXPECT_FALSE(s.parameters.find("attn.q.bias").defined());
  EXPECT_TRUE(s.parameters.find("attn.o.bias").defined());
}

TEST(Softmax, CrossAttentionReadsTheContextAlone) {
  const Subject<Softmax> s(SoftmaxOptions{});
  Numbers numbers(1);
  const at::Tensor x = numbers.normal({1, 2, kDim}), encoder = numbers.normal({1, 4, kDim});
  AttendTable table = AttendTable::cross({SpanKind::tokens, 2}, {SpanKind::tokens, 4});
  const auto score = [](int64_t, int64_t, int64_t, const at::Tensor& q, const at::Tensor& k) {
    return score_of(q, k) / std::sqrt(double{kWidth});
  };
  EXPECT_LE(difference(s.attention->forward({x, encoder, table}, {}).y[0],
                       by_definition<Softmax>(s, x[0], encoder[0], table.expand(), score)),
            1e-13);
  table.set_valid(at::tensor({1, 0, 1, 0}).view({1, 4}).to(at::kBool));
  EXPECT_LE(difference(s.attention->forward({x, encoder, table}, {}).y[0],
                       by_definition<Softmax>(s, x[0], encoder[0], table.expand()[0], score)),
            1e-13);
}

TEST(Softmax, AQueryWithoutAKeyGetsTheBiasOfO) {
  const Subject<Softmax> s(SoftmaxOptions{});
  AttendTable table({SpanKind::tokens, 3});
  table.set_valid(at::tensor({0, 0, 1}).view({1, 3}).to(at::kBool));
  const at::Tensor y = s.attention->forward({Numbers(1).normal({1, 3, kDim}), {}, table}, {}).y;
  EXPECT_LE(difference(y[0][0], s.parameters.find("attn.o.bias")), 1e-15);
  EXPECT_GT(difference(y[0][2], s.parameters.find("attn.o.bias")), 1e-3);
}

TEST(Relative, PositionDropoutIsOfTheSinusoids) {
  RelativeOptions options;
  options.position_dropout = 0.5;
  const Subject<Relative> s(options);
  const at::Tensor x = Numbers(1).normal({2, 5, kDim});
  const AttendTable table({SpanKind::tokens, 5});
  at::manual_seed(3);
  const at::Tensor found = s.attention->forward({x, {}, table, core::Mode::train}, s.attention->initial_state(2)).y;
  at::manual_seed(3);
  const at::Tensor sines = at::dropout(ops::distance_sinusoids(5, 5, false, 0, kDim, at::kDouble), 0.5, true);
  const at::Tensor r = s.project("r", sines).view({-1, kHeads, kWidth}).permute({1, 2, 0});
  const auto heads = [&](const char* name) { return s.project(name, x).view({2, 5, kHeads, kWidth}).transpose(1, 2); };
  const auto bias = [&](const char* name) { return s.parameters.find(name).unsqueeze(1); };
  const at::Tensor o = ops::attention_naive(heads("q") + bias("u"), heads("k"), heads("v"),
                                            at::matmul(heads("q") + bias("v"), r), ops::RelShift::signed_,
                                            table.expand(), 1.0 / std::sqrt(double{kWidth}));
  EXPECT_LE(difference(found, s.project("o", o.transpose(1, 2).flatten(2))), 1e-13);
  // Nothing is dropped in evaluation.
  const Subject<Relative> plain(RelativeOptions{});
  EXPECT_TRUE(at::equal(s.attention->forward({x, {}, table}, s.attention->initial_state(2)).y,
                        plain.attention->forward({x, {}, table}, s.attention->initial_state(2)).y));
}

TEST(Relative, IsItsFormulaWithKeysOnBothSides) {
  for (const bool shared : {true, false}) {
    for (const int64_t clamp : {0, 2}) {
      for (const int64_t batch : {1, 6}) {  // few queries fold W_r into the query, many do not
        RelativeOptions options;
        options.shared_uv = shared;
        options.clamp_len = clamp;
        options.bias = !shared;
        const Subject<Relative> s(options);
        Numbers numbers(1);
        const at::Tensor x = numbers.normal({batch, 6, kDim}), context = numbers.normal({batch, 3, kDim});
        const AttendTable table = some_table(3, 4);
        const at::Tensor found = s.attention->forward({x, context, table}, s.attention->initial_state(batch)).y;
        for (int64_t b = 0; b < std::min<int64_t>(batch, 2); ++b) {
          const at::Tensor rows = at::cat({context[b], x[b]});
          EXPECT_LE(difference(found[b], by_definition<Relative>(s, x[b], rows, table.expand(),
                                                                 relative_score(s, shared ? "" : "layer.", 3, clamp))),
                    1e-13);
        }
      }
    }
  }
}

TEST(Relative, ClampsByTheModeItRunsIn) {
  RelativeOptions options;
  options.clamp_len = 1;
  options.eval_clamp_len = 3;
  const Subject<Relative> s(options);
  const at::Tensor x = Numbers(1).normal({1, 6, kDim});
  const AttendTable table({SpanKind::tokens, 6});
  for (const core::Mode mode : {core::Mode::train, core::Mode::evaluate}) {
    const int64_t clamp = mode == core::Mode::train ? 1 : 3;
    const at::Tensor found = s.attention->forward({x, {}, table, mode}, {}).y[0];
    EXPECT_LE(
        difference(found, by_definition<Relative>(s, x[0], x[0], table.expand(), relative_score(s, "", 0, clamp))),
        1e-13);
  }
}

TEST(Relative, FaithfulShiftTakesTheNextQueryForKeysFarRight) {
  RelativeOptions options;
  options.rel_shift = RelativeOptions::Shift::faithful;
  const Subject<Relative> s(options);
  const at::Tensor x = Numbers(1).normal({1, 4, kDim}), q = s.project("q", x[0]);
  const AttendTable table({SpanKind::tokens, 4}, Rule::all());
  const at::Tensor u = s.parameters.find("u"), v = s.parameters.find("v");
  const auto position = [&](int64_t h, int64_t query, double p) {
    at::Tensor sines = at::zeros({kDim}, at::kDouble);
    for (int64_t c = 0; c < kDim; ++c) sines[c] = sinusoid(p, c);
    return score_of(q[query].narrow(0, h * kWidth, kWidth) + v[h], s.project("r", sines).narrow(0, h * kWidth, kWidth));
  };
  const auto score = [&](int64_t h, int64_t i, int64_t j, const at::Tensor& qi, const at::Tensor& kj) {
    double term = 0;
    if (j <= i) term = position(h, i, static_cast<double>(i - j));
    if (j >= i + 2) term = position(h, i + 1, static_cast<double>(4 + 1 + i - j));
    return (score_of(qi + u[h], kj) + term) / std::sqrt(double{kWidth});
  };
  EXPECT_LE(difference(s.attention->forward({x, {}, table}, {}).y[0],
                       by_definition<Relative>(s, x[0], x[0], table.expand(), score)),
            1e-13);
}

TEST(KvCache, IsKeptWhileASegmentIsOpenOnly) {
  const Subject<Softmax> s(SoftmaxOptions{});
  const at::Tensor x = Numbers(1).normal({2, 4, kDim});
  const AttendTable first({SpanKind::tokens, 3});
  const auto open = s.attention->forward({x.narrow(1, 0, 3), {}, first, core::Mode::evaluate, false},
                                         s.attention->initial_state(2));
  EXPECT_EQ(open.state.as<core::KvState>().k.sizes(), at::IntArrayRef({2, kHeads, 3, kWidth}));
  AttendTable second({SpanKind::tokens, 1});
  second.append_context({SpanKind::tokens, 3}, Rule::causal());
  const auto closed = s.attention->forward({x.narrow(1, 3, 1), {}, second}, open.state);
  EXPECT_TRUE(closed.state.fields().empty());
  const AttendTable whole({SpanKind::tokens, 4});
  EXPECT_LE(difference(closed.y, s.attention->forward({x, {}, whole}, {}).y.narrow(1, 3, 1)), 1e-14);
}

/// The weights of inspect() times the values equal the input of forward()'s output projection.
template <class A>
void expect_weights_of_forward(const typename A::Options& options, AttendTable table, const at::Tensor& context) {
  const Subject<A> s(options);
  const at::NoGradGuard no_grad;
  const at::Tensor x = Numbers(8).normal({2, table.num_rows(), kDim});
  const core::AttentionInput input{x, context, table};
  const core::AttentionView view = s.attention->inspect(input, s.attention->initial_state(2), {});
  ASSERT_EQ(view.maps.size(), 1u);
  EXPECT_EQ(view.maps[0].name, "attention");
  const at::Tensor rows = context.defined() ? at::cat({context, x}, 1) : x;
  const at::Tensor v = s.project("v", rows).unflatten(2, {-1, kWidth}).transpose(1, 2);  // of the key heads
  const at::Tensor heads = at::matmul(view.maps[0].weights, core::for_queries(v, kHeads)).transpose(1, 2).flatten(2);
  EXPECT_LE(difference(s.project("o", heads), s.attention->forward(input, s.attention->initial_state(2)).y), 1e-13);
}

TEST(Look, WeightsOfValuesAreTheOutput) {
  AttendTable cached({SpanKind::tokens, 5});
  cached.append_context({SpanKind::cache, 3}, Rule::causal());
  AttendTable memory({SpanKind::tokens, 5});
  memory.prepend_rows({SpanKind::read, 2})
      .set_rule(SpanKind::read, SpanKind::read, Rule::all())
      .set_rule(SpanKind::tokens, SpanKind::read, Rule::all());
  AttendTable padded({SpanKind::tokens, 5});
  padded.set_valid(at::tensor({1, 1, 1, 1, 1, 0, 0, 1, 1, 1}, at::kLong).view({2, 5}).to(at::kBool));
  const at::Tensor context = Numbers(9).normal({2, 3, kDim});
  for (const auto& [table, rows] :
       {std::pair{cached, context}, std::pair{memory, at::Tensor()}, std::pair{padded, at::Tensor()}}) {
    expect_weights_of_forward<Softmax>({}, table, rows);
    SoftmaxOptions turned;
    turned.num_kv_heads = 1;
    turned.rotary = core::RotaryOptions{.base = 50.0};
    expect_weights_of_forward<Softmax>(turned, table, rows);
    for (const bool scaled : {false, true}) {
      RelativeBucketsOptions buckets;
      buckets.num_buckets = 6;
      buckets.max_distance = 5;
      buckets.scaled = scaled;
      expect_weights_of_forward<RelativeBuckets>(buckets, table, rows);
    }
    for (const auto shift : {RelativeOptions::Shift::signed_, RelativeOptions::Shift::faithful}) {
      RelativeOptions options;
      options.rel_shift = shift;
      expect_weights_of_forward<Relative>(options, table, rows);
    }
  }
}

TEST(Look, UnitValuesGiveTheWeightsOfAnyCore) {
  AttendTable cached({SpanKind::tokens, 9});
  cached.append_context({SpanKind::cache, 4}, Rule::causal());
  SlidingWindowOptions window;
  window.window_size = 3;
  expect_weights_of_forward<SlidingWindow>(window, cached, Numbers(9).normal({2, 4, kDim}));
  const AttendTable plain({SpanKind::tokens, 9});  // more rows than the width of a head
  using FeatureMap = LinearOptions::FeatureMap;
  for (const FeatureMap map : {FeatureMap::elu, FeatureMap::t2r, FeatureMap::rfa}) {
    LinearOptions options;
    options.feature_map = map;
    expect_weights_of_forward<Linear>(options, plain, {});
  }
  LshOptions hashing;
  hashing.num_buckets = 4;
  hashing.chunk_len = 3;
  expect_weights_of_forward<Lsh>(hashing, plain, {});
}

TEST(Look, LinearAttentionKnowsWhatIsPast) {
  LinearOptions options;
  options.gate = true;
  const Subject<Linear> s(options);
  const at::NoGradGuard no_grad;
  const at::Tensor x = Numbers(8).normal({2, 10, kDim});
  const AttendTable part({SpanKind::tokens, 5}), whole({SpanKind::tokens, 10});
  const core::State state = s.attention->forward({x.narrow(1, 0, 5), {}, part}, s.attention->initial_state(2)).state;
  const core::State history = s.attention->history({x.narrow(1, 0, 5), {}, part}, s.attention->initial_state(2), {});
  const core::WeightMap later = s.attention->inspect({x.narrow(1, 5, 5), {}, part}, state, history).maps.at(0);
  const at::Tensor
      all = s.attention->inspect({x, {}, whole}, s.attention->initial_state(2), {}).maps.at(0).weights.narrow(2, 5, 5);
  EXPECT_LE(difference(later.weights, all.narrow(3, 5, 5)), 1e-13);
  EXPECT_LE(difference(later.past, all.narrow(3, 0, 5).sum(3)), 1e-13);
}

}  // namespace
}  // namespace mnemo::attention
