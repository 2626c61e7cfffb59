#include "infer/sampling.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace mnemo::infer {
namespace {

using base::InputError;
using test::expect_error;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> shares(const Sampler& sampler, const at::Tensor& logits, int64_t draws) {
  std::vector<double> counts(static_cast<size_t>(logits.size(0)), 0.0);
  for (int64_t n = 0; n < draws; ++n) counts[sampler.pick(logits, static_cast<uint64_t>(n))] += 1.0 / draws;
  return counts;
}

/// The frequencies agree with softmax(logits / temperature) over `allowed`, within four standard deviations of each
/// count.
void expect_shares(const std::vector<double>& found, const at::Tensor& logits, double temperature,
                   const std::set<int64_t>& allowed, int64_t draws) {
  double total = 0.0;
  for (const int64_t id : allowed) total += std::exp(logits[id].item<double>() / temperature);
  for (int64_t id = 0; id < logits.size(0); ++id) {
    const double p = allowed.contains(id) ? std::exp(logits[id].item<double>() / temperature) / total : 0.0;
    EXPECT_NEAR(found[id], p, 4 * std::sqrt(p * (1 - p) / draws)) << "token " << id;
  }
}

TEST(Sampling, GreedyTakesTheLikeliestAndTheFirstOfEquals) {
  const Sampler greedy(GenerateOptions::greedy());
  EXPECT_EQ(greedy.pick(at::tensor({0.0, 3.0, -1.0, 3.0}), 7), 1);
  EXPECT_EQ(greedy.pick(at::tensor({-kInf, -5.0, -kInf}), 0), 1);
  EXPECT_EQ(greedy.pick(at::tensor({-2.5f}), 0), 0);
}

TEST(Sampling, TheUnknownTokenIsSampledOnlyWhereAskedFor) {
  const at::Tensor logits = at::tensor({1.0, 9.0, 0.0});
  for (const GenerateOptions& options :
       {GenerateOptions::greedy(), GenerateOptions{}, GenerateOptions{.temperature = 1.0, .top_k = 2}}) {
    for (uint64_t draw = 0; draw < 50; ++draw) EXPECT_NE(Sampler(options, 1).pick(logits, draw), 1);
    GenerateOptions asked = options;
    asked.sample_unknown = true;
    EXPECT_EQ(Sampler(asked, 1).pick(logits, 0), 1);
    EXPECT_EQ(Sampler(options).pick(logits, 0), 1);
    const std::vector<float> plain = {1.0f, 9.0f, 0.0f};
    EXPECT_NE(Sampler(options, 1).pick(std::span<const float>(plain), 0), 1);
    for (uint64_t draw = 0; draw < 50; ++draw) EXPECT_EQ(Sampler(options, 1, 1).pick(logits, draw), 0);
    const std::vector<Sampler> rows = {Sampler(options, 1), Sampler(options)};
    const std::vector<uint64_t> draws = {0, 0};
    const std::vector<int64_t> picked = pick_rows(at::stack({logits, logits}), rows, draws);
    EXPECT_NE(picked[0], 1);
    EXPECT_EQ(picked[1], 1);
  }
}

TEST(Sampling, SharesFollowTheTemperature) {
  const at::Tensor logits = at::tensor({1.0, 0.0, -1.0, 2.0, -kInf});
  for (const double temperature : {0.5, 1.0, 2.0}) {
    const Sampler sampler({.temperature = temperature, .seed = 3});
    expect_shares(shares(sampler, logits, 20000), logits, temperature, {0, 1, 2, 3, 4}, 20000);
  }
}

TEST(Sampling, TopKKeepsExactlyTheKLikeliest) {
  const at::Tensor logits = at::tensor({1.0, 1.5, -1.0, 2.0, 1.0, 1.0});
  const Sampler sampler({.temperature = 1.0, .top_k = 3, .seed = 5});
  // Only the first of the three tokens with logit 1 remains.
  expect_shares(shares(sampler, logits, 20000), logits, 1.0, {0, 1, 3}, 20000);
  const Sampler one({.temperature = 1.0, .top_k = 1});
  for (uint64_t draw = 0; draw < 50; ++draw) EXPECT_EQ(one.pick(logits, draw), 3);
  const Sampler more({.temperature = 1.0, .top_k = 100, .seed = 5}), all({.temperature = 1.0, .seed = 5});
  for (uint64_t draw = 0; draw < 200; ++draw) EXPECT_EQ(more.pick(logits, draw), all.pick(logits, draw));
}

TEST(Sampling, TopPKeepsTheFewestThatHoldTheShare) {
  const at::Tensor logits = at::tensor({0.1, 0.4, 0.2, 0.3}).log();
  auto allowed = [&](double top_p) {
    std::set<int64_t> seen;
    const Sampler sampler({.temperature = 1.0, .top_p = top_p, .seed = 1});
    for (uint64_t draw = 0; draw < 2000; ++draw) seen.insert(sampler.pick(logits, draw));
    return seen;
  };
  EXPECT_EQ(allowed(0.01), (std::set<int64_t>{1}));
  EXPECT_EQ(allowed(0.39), (std::set<int64_t>{1}));
  EXPECT_EQ(allowed(0.41), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(allowed(0.69), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(allowed(0.71), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(allowed(0.999), (std::set<int64_t>{0, 1, 2, 3}));
  expect_shares(shares(Sampler({.temperature = 1.0, .top_p = 0.6, .seed = 2}), logits, 20000), logits, 1.0, {1, 3},
                20000);
}

TEST(Sampling, TopPCountsTheMassOfTheTopK) {
  // The most likely two are 0.4 and 0.3: the first has 0.57 of their mass.
  const at::Tensor logits = at::tensor({0.1, 0.4, 0.2, 0.3}).log();
  const Sampler narrow({.temperature = 1.0, .top_k = 2, .top_p = 0.55, .seed = 1}),
      wide({.temperature = 1.0, .top_k = 2, .top_p = 0.6, .seed = 1});
  std::set<int64_t> few, many;
  for (uint64_t draw = 0; draw < 500; ++draw) {
    few.insert(narrow.pick(logits, draw));
    many.insert(wide.pick(logits, draw));
  }
  EXPECT_EQ(few, (std::set<int64_t>{1}));
  EXPECT_EQ(many, (std::set<int64_t>{1, 3}));
}

TEST(Sampling, MinPKeepsWhatHasAShareOfTheLikeliest) {
  const at::Tensor logits = at::tensor({0.1, 0.4, 0.2, 0.3}).log();
  auto allowed = [&](const GenerateOptions& options) {
    std::set<int64_t> seen;
    for (uint64_t draw = 0; draw < 2000; ++draw) seen.insert(Sampler(options).pick(logits, draw));
    return seen;
  };
  EXPECT_EQ(allowed({.temperature = 1.0, .min_p = 0.0}).size(), 4u);
  EXPECT_EQ(allowed({.temperature = 1.0, .min_p = 0.26}), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(allowed({.temperature = 1.0, .min_p = 0.51}), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(allowed({.temperature = 1.0, .min_p = 0.76}), (std::set<int64_t>{1}));
  EXPECT_EQ(allowed({.temperature = 1.0, .min_p = 1.0}), (std::set<int64_t>{1}));
  // After the temperature, as in vLLM and Transformers: at 2, the shares are 0.5 and 0.71 in place of 0.25 and 0.5.
  EXPECT_EQ(allowed({.temperature = 2.0, .min_p = 0.6}), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(allowed({.temperature = 1.0, .top_k = 2, .min_p = 0.26}), (std::set<int64_t>{1, 3}));
  expect_shares(shares(Sampler({.temperature = 1.0, .min_p = 0.51, .seed = 2}), logits, 20000), logits, 1.0, {1, 3},
                20000);
  expect_error<InputError>([] { Sampler({.temperature = 0.0, .min_p = 0.1}); }, {"min_p", "temperature 0"});
  expect_error<InputError>([] { Sampler({.temperature = 1.0, .min_p = 1.5}); }, {"min_p", "0 to 1", "1.5"});
}

TEST(Sampling, PenaltiesFollowTheirFormulas) {
  TokenCounts seen;
  seen.add_read(std::vector<int64_t>{0, 1}, 4);
  for (const int64_t token : {2, 2, 2, 1}) seen.add_written(token, 4);
  // By hand: token 0 was read, 1 read and written, 2 written three times, 3 is new.
  const at::Tensor logits = at::tensor({1.5, -0.5, 2.5, 0.25});
  const auto expected = [&](const GenerateOptions& o) {
    at::Tensor out = logits.clone();
    out[0] = 1.5 / o.repetition_penalty;
    out[1] = -0.5 * o.repetition_penalty - o.frequency_penalty - o.presence_penalty;
    out[2] = 2.5 / o.repetition_penalty - 3 * o.frequency_penalty - o.presence_penalty;
    return out;
  };
  for (const GenerateOptions& options : {GenerateOptions{.temperature = 1.0, .repetition_penalty = 2.0, .seed = 3},
                                         GenerateOptions{.temperature = 1.0, .frequency_penalty = 0.5, .seed = 4},
                                         GenerateOptions{.temperature = 1.0, .presence_penalty = -0.75, .seed = 5},
                                         GenerateOptions{.temperature = 1.0,
                                         .repetition_penalty = 1.3,
                                         .frequency_penalty = 0.4,
                                         .presence_penalty = 0.2,
                                         .seed = 6}}) {
    GenerateOptions plain{.temperature = 1.0};
    plain.seed = options.seed;
    const at::Tensor by_hand = expected(options);
    const at::Tensor floats = logits.to(at::kFloat);
    for (uint64_t draw = 0; draw < 500; ++draw) {
      const int64_t token = Sampler(options).pick(logits, draw, seen);
      ASSERT_EQ(token, Sampler(plain).pick(by_hand, draw));
      ASSERT_EQ(Sampler(options).pick(std::span(floats.const_data_ptr<float>(), 4), draw, seen), token);
      ASSERT_EQ(Sampler(options).pick(logits, draw), Sampler(plain).pick(logits, draw)) << "nothing was seen";
    }
  }
  // Also where the most likely token is taken.
  EXPECT_EQ(Sampler(GenerateOptions::greedy()).pick(logits, 0, seen), 2);
  EXPECT_EQ(Sampler({.temperature = 0.0, .frequency_penalty = 0.5}).pick(logits, 0, seen), 0);
  expect_error<InputError>([] { Sampler({.temperature = 1.0, .repetition_penalty = 0.0}); },
                           {"repetition_penalty", "0.01"});
  expect_error<InputError>([] { Sampler({.temperature = 1.0, .frequency_penalty = 3.0}); },
                           {"frequency_penalty", "-2 to 2"});
}

TEST(Sampling, ALargeVocabularyHasTheNucleusOfAFullSort) {
  at::manual_seed(4);
  const at::Tensor logits = at::randn({3000}, at::kDouble);
  const double top_p = 0.8;
  const auto [sorted, order] = at::softmax(logits, 0).sort(0, true);
  std::set<int64_t> nucleus;
  double sum = 0.0;
  for (int64_t i = 0; sum < top_p; ++i) {
    nucleus.insert(order[i].item<int64_t>());
    sum += sorted[i].item<double>();
  }
  ASSERT_GT(nucleus.size(), 600u);
  const Sampler sampler({.temperature = 1.0, .top_p = top_p, .seed = 9});
  std::set<int64_t> seen;
  for (uint64_t draw = 0; draw < 6000; ++draw) seen.insert(sampler.pick(logits, draw));
  for (const int64_t id : seen) EXPECT_TRUE(nucleus.contains(id)) << id;
  EXPECT_GT(seen.size(), nucleus.size() * 9 / 10);
}

TEST(Sampling, ADrawFollowsFromSeedAndNumberAlone) {
  const at::Tensor logits = at::zeros({1000});
  const Sampler a({.temperature = 1.0, .seed = 1}), same({.temperature = 1.0, .seed = 1}),
      other({.temperature = 1.0, .seed = 2});
  int64_t equal = 0;
  std::set<int64_t> seen;
  for (uint64_t draw = 0; draw < 100; ++draw) {
    const int64_t token = a.pick(logits, draw);
    EXPECT_EQ(token, same.pick(logits, draw));
    EXPECT_EQ(token, a.pick(logits, draw));
    equal += token == other.pick(logits, draw) ? 1 : 0;
    seen.insert(token);
  }
  EXPECT_LT(equal, 5);
  EXPECT_GT(seen.size(), 85u);
}

TEST(Sampling, TypesAgree) {
  const at::Tensor logits = at::tensor({1.0, 0.5, -1.0, 2.0, -kInf}).to(at::kBFloat16);  // exact in all types
  const Sampler sampler({.temperature = 1.0, .top_k = 3, .top_p = 0.9, .seed = 8});
  for (uint64_t draw = 0; draw < 100; ++draw) {
    const int64_t token = sampler.pick(logits, draw);
    EXPECT_EQ(sampler.pick(logits.to(at::kFloat), draw), token);
    EXPECT_EQ(sampler.pick(logits.to(at::kDouble), draw), token);
    EXPECT_EQ(sampler.pick(logits.to(at::kHalf).repeat({2, 1}).t().select(1, 0), draw), token);
  }
}

TEST(Sampling, RowsArePickedEachWithItsOwnOptions) {
  const at::Tensor logits = at::randn({3, 50}, at::kDouble);
  const std::vector<Sampler> samplers = {Sampler(GenerateOptions::greedy()), Sampler({.temperature = 1.0, .seed = 4}),
                                         Sampler({.temperature = 1.0, .top_k = 2, .seed = 5})};
  const std::vector<uint64_t> draws = {0, 11, 12};
  const std::vector<int64_t> tokens = pick_rows(logits, samplers, draws);
  for (size_t b = 0; b < 3; ++b) EXPECT_EQ(tokens[b], samplers[b].pick(logits[static_cast<int64_t>(b)], draws[b]));
  expect_error<base::ShapeError>([&] { pick_rows(logits, std::span(samplers).first(2), draws); }, {"3 rows", "2"});
}

TEST(Sampling, UnusableLogitsAreErrors) {
  const Sampler sampler, greedy(GenerateOptions::greedy());
  for (const Sampler* s : {&sampler, &greedy}) {
    expect_error<base::NotFinite>([&] { s->pick(at::tensor({0.0, std::nan(""), 1.0}), 0); }, {"NaN"});
    expect_error<InputError>([&] { s->pick(at::tensor({0.0, kInf}), 0); }, {"+inf"});
    expect_error<InputError>([&] { s->pick(at::tensor({-kInf, -kInf}), 0); }, {"only -inf"});
    expect_error<base::ShapeError>([&] { s->pick(at::zeros({2, 3}), 0); }, {"[V]", "[2, 3]"});
    expect_error<base::ShapeError>([&] { s->pick(at::zeros({0}), 0); }, {"[V]"});
    expect_error<InputError>([&] { s->pick(at::zeros({3}, at::kLong), 0); }, {"floating", "Long"});
  }
}

TEST(Sampling, OptionsOutOfRangeAreErrors) {
  expect_error<InputError>([] { Sampler({.temperature = -1.0}); }, {"temperature", "-1"});
  expect_error<InputError>([] { Sampler({.temperature = std::nan("")}); }, {"temperature"});
  expect_error<InputError>([] { Sampler({.temperature = 1.0, .top_k = -2}); }, {"top_k", "-2"});
  expect_error<InputError>([] { Sampler({.temperature = 1.0, .top_p = 0.0}); }, {"top_p", "0"});
  expect_error<InputError>([] { Sampler({.temperature = 1.0, .top_p = 1.5}); }, {"top_p", "1.5"});
  expect_error<InputError>([] { Sampler({.temperature = 1.0, .seed = -1}); }, {"seed"});
  expect_error<InputError>([] { Sampler({.temperature = 0.0, .top_k = 5}); }, {"top_k", "temperature 0"});
  expect_error<InputError>([] { Sampler({.temperature = 0.0, .top_p = 0.5}); }, {"top_p", "temperature 0"});
}

TEST(Sampling, ExtremeTemperaturesStayDefined) {
  const at::Tensor logits = at::tensor({1000.0, -1000.0, 999.0});
  EXPECT_EQ(Sampler({.temperature = 1e-300}).pick(logits, 1), 0);
  const auto found = shares(Sampler({.temperature = 1e6, .seed = 1}), logits, 9000);
  for (const double share : found) EXPECT_NEAR(share, 1.0 / 3, 0.03);
}

}  // namespace
}  // namespace mnemo::infer
