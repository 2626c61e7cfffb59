#include "search/beam_search.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "models/model.h"
#include "tests/support/expect_error.h"
#include "tests/support/pair_models.h"

namespace mnemo::search {
namespace {

using test::pair_source;

/// Sum of log probabilities of a target, from one whole pass.
double log_probability(const core::Model& model, const at::Tensor& source, const std::vector<int64_t>& tokens) {
  const at::NoGradGuard no_grad;
  core::Segment segment;
  segment.source = source;
  segment.source_valid = source != 1;
  at::Tensor target = at::tensor(tokens, at::kLong).unsqueeze(0);
  segment.tokens = at::cat({at::full({1, 1}, 2, at::kLong), target.narrow(1, 0, target.size(1) - 1)}, 1);
  const core::StepResult step = model.forward(segment, model.initial_state(1));
  return -model.nll(step.hidden, target).sum().item<double>();
}

struct BeamSearch : testing::Test {
  BeamSearch() : model(models::build(test::pair_options(), 9, at::kDouble)) {
    at::manual_seed(8);
    source = pair_source(3, 6);
  }
  std::vector<std::vector<Hypothesis>> search(const BeamSearchOptions& options,
                                              const std::vector<std::vector<int64_t>>& prefix = {}) const {
    return beam_search(*model, {}, source, source != 1, options, prefix);
  }
  std::unique_ptr<models::Model> model;
  at::Tensor source;
};

TEST_F(BeamSearch, ScoresAreTheModelsProbabilities) {
  const auto found = search({.beam_size = 4, .length_penalty = 0.6, .max_len_b = 7});
  for (int64_t b = 0; b < 3; ++b) {
    double before = INFINITY;
    for (const Hypothesis& hypothesis : found[static_cast<size_t>(b)]) {
      EXPECT_EQ(hypothesis.tokens.back(), 2);
      EXPECT_LE(hypothesis.tokens.size(), 8u);
      const at::Tensor own = source[b].narrow(0, 0, 6 - b).unsqueeze(0);
      EXPECT_NEAR(hypothesis.sum, log_probability(*model, own, hypothesis.tokens), 1e-10);
      EXPECT_NEAR(hypothesis.score, hypothesis.sum / std::pow(static_cast<double>(hypothesis.tokens.size()), 0.6),
                  1e-12);
      EXPECT_LE(hypothesis.score, before);
      before = hypothesis.score;
    }
  }
}

TEST_F(BeamSearch, ASentenceDoesNotDependOnItsBatch) {
  const BeamSearchOptions options{.beam_size = 3, .max_len_b = 6};
  const auto all = search(options);
  for (int64_t b = 0; b < 3; ++b) {
    const at::Tensor own = source[b].narrow(0, 0, 6 - b).unsqueeze(0);
    const auto alone = beam_search(*model, {}, own, {}, options).front();
    ASSERT_EQ(alone.size(), all[static_cast<size_t>(b)].size());
    for (size_t k = 0; k < alone.size(); ++k) EXPECT_EQ(alone[k].tokens, all[static_cast<size_t>(b)][k].tokens);
  }
}

// A beam as wide as everything that can be written finds the best text of up to two tokens and its end.
TEST_F(BeamSearch, AWideBeamIsExhaustive) {
  const at::Tensor own = source[0].unsqueeze(0);
  double best = -INFINITY;
  for (int64_t a = 0; a < 19; ++a) {
    if (a == 1 || a == 2) continue;
    best = std::max(best, log_probability(*model, own, {a, 2}));
  }
  const auto found = beam_search(*model, {}, own, {},
                                 {.beam_size = 17, .length_penalty = 0.0, .min_len = 1, .max_len_b = 1});
  EXPECT_NEAR(found.front().front().sum, best, 1e-10);
}

TEST_F(BeamSearch, LengthsPrefixesAndRepeats) {
  for (const auto& hypotheses : search({.beam_size = 2, .min_len = 5, .max_len_b = 6})) {
    for (const Hypothesis& hypothesis : hypotheses) EXPECT_GE(hypothesis.tokens.size(), 6u);
  }
  const auto forced = search({.beam_size = 2, .max_len_b = 6}, {{5, 6}, {}, {7}});
  for (const Hypothesis& hypothesis : forced[0])
    EXPECT_EQ(std::vector<int64_t>(hypothesis.tokens.begin(), hypothesis.tokens.begin() + 2),
              (std::vector<int64_t>{5, 6}));
  for (const Hypothesis& hypothesis : forced[2]) EXPECT_EQ(hypothesis.tokens.front(), 7);
  for (const auto& hypotheses : search({.beam_size = 2, .min_len = 12, .max_len_b = 14, .no_repeat_ngram = 1})) {
    for (Hypothesis hypothesis : hypotheses) {
      std::sort(hypothesis.tokens.begin(), hypothesis.tokens.end());
      EXPECT_EQ(std::adjacent_find(hypothesis.tokens.begin(), hypothesis.tokens.end()), hypothesis.tokens.end());
    }
  }
}

// Directly after a prefix, and nowhere else.
TEST_F(BeamSearch, SomeTokensNeverFollowAPrefix) {
  BeamSearchOptions options{.beam_size = 4, .max_len_b = 6};
  for (int64_t token = 4; token < 18; ++token) options.not_after_prefix.push_back(token);
  const auto found = search(options, {{5, 6}, {}, {7}});
  for (const Hypothesis& hypothesis : found[0]) EXPECT_TRUE(hypothesis.tokens[2] < 4 || hypothesis.tokens[2] == 18);
  for (const Hypothesis& hypothesis : found[2]) EXPECT_TRUE(hypothesis.tokens[1] < 4 || hypothesis.tokens[1] == 18);
  const auto free = search({.beam_size = 4, .max_len_b = 6}, {{5, 6}, {}, {7}});
  for (size_t k = 0; k < free[1].size(); ++k) EXPECT_EQ(found[1][k].tokens, free[1][k].tokens) << "without a prefix";
}

// Where every token is forbidden a hypothesis ends, so that each sentence has a translation.
TEST_F(BeamSearch, AHypothesisThatNothingMayFollowEnds) {
  for (const int64_t beam : {1, 4}) {
    const BeamSearchOptions options{.beam_size = beam, .min_len = 40, .max_len_b = 50, .no_repeat_ngram = 1};
    for (const auto& hypotheses : search(options)) {
      ASSERT_EQ(hypotheses.size(), static_cast<size_t>(beam));
      for (const Hypothesis& hypothesis : hypotheses) {
        EXPECT_EQ(hypothesis.tokens.size(), 18u);  // all but padding once
        EXPECT_EQ(hypothesis.tokens.back(), 2);
      }
    }
    const auto most = [](const at::Tensor& row, int64_t, int64_t, int64_t) { return row.argmax().item<int64_t>(); };
    for (const auto& samples : sample_search(*make_model_decoder(*model), {}, source, source != 1, options, most))
      EXPECT_EQ(samples.front().tokens.size(), 18u);
  }
}

// Nothing is longer than the model's positions reach.
TEST_F(BeamSearch, TheModelsPlacesLimitTheLength) {
  models::ModelOptions options = test::pair_options();
  options.backbone.pairs().position.type = backbones::PositionOptions::Type::learned;
  options.backbone.pairs().position.max_len = 10;  // from 2 on
  model = models::build(options, 9, at::kDouble);
  for (const auto& hypotheses : search({.beam_size = 3, .min_len = 20, .max_len_b = 30})) {
    for (const Hypothesis& hypothesis : hypotheses) EXPECT_EQ(hypothesis.tokens.size(), 8u);
  }
  EXPECT_EQ(search({.beam_size = 2}, {std::vector<int64_t>(7, 5), {}, {}})[0].front().tokens.size(), 8u);
  test::expect_error<base::InputError>(
      [&] {
        search({.beam_size = 2}, {std::vector<int64_t>(8, 5), {}, {}});
      },
      {"prefix", "fewer than 8", "found 8"});
}

TEST_F(BeamSearch, Errors) {
  test::expect_error<base::InputError>([&] { search({.beam_size = 2, .max_len_a = 1e300}); }, {"max_len_a", "1e+300"});
  test::expect_error<base::InputError>([&] { search({.min_len = 7, .max_len_b = 6}); },
                                       {"'min_len': expected at most max_len_b = 6", "found 7"});
  EXPECT_NO_THROW(search({.min_len = 7, .max_len_a = 1.0, .max_len_b = 6}));
  test::expect_error<base::InputError>([&] { search({.beam_size = 2, .wanted = 3}); }, {"beam_size = 2", "3"});
  test::expect_error<base::InputError>([&] { search({.beam_size = 20}); }, {"beam_size", "19", "20"});
  test::expect_error<base::InputError>([&] { search({}, {{1}}); }, {"prefix", "3"});
  for (const auto& [name, tensor] : model->parameters().named()) {
    const at::NoGradGuard no_grad;
    if (name.ends_with("final_norm.weight") || name.ends_with("norm3.weight")) at::Tensor(tensor).fill_(NAN);
  }
  test::expect_error<base::NotFinite>([&] { search({.beam_size = 2}); }, {"not finite"});
}

/// Draws by log probabilities from (sample, length) alone, so that the batch does not matter.
int64_t drawn(const at::Tensor& row, int64_t, int64_t sample, int64_t length) {
  const double uniform = static_cast<double>(
                             base::Random{static_cast<uint64_t>(sample), static_cast<uint64_t>(length)}.below(1000)) /
                         1000.0;
  const at::Tensor before = row.exp().cumsum(0) - row.exp();
  return (before <= uniform * row.exp().sum()).logical_and(row > -1e30).nonzero().max().item<int64_t>();
}

TEST_F(BeamSearch, SamplesKeepTheLimitsAndDoNotDependOnTheirBatch) {
  const BeamSearchOptions options{.beam_size = 25, .min_len = 3, .max_len_b = 6, .no_repeat_ngram = 1};
  const auto decoder = make_model_decoder(*model);
  const auto all = sample_search(*decoder, {}, source, source != 1, options, drawn, {{5, 6}, {}, {}});
  for (int64_t b = 0; b < 3; ++b) {
    const at::Tensor own = source[b].narrow(0, 0, 6 - b).unsqueeze(0);
    const auto alone = sample_search(*make_model_decoder(*model), {}, own, {}, options, drawn,
                                     {b == 0 ? std::vector<int64_t>{5, 6} : std::vector<int64_t>{}})
                           .front();
    const auto& samples = all[static_cast<size_t>(b)];
    ASSERT_EQ(samples.size(), 25u);  // more than the vocabulary has tokens
    for (size_t k = 0; k < samples.size(); ++k) {
      std::vector<int64_t> tokens = samples[k].tokens;
      EXPECT_EQ(tokens, alone[k].tokens);
      EXPECT_NEAR(samples[k].sum, log_probability(*model, own, tokens), 1e-9);
      EXPECT_GE(tokens.size(), 4u);
      EXPECT_LE(tokens.size(), 7u);
      EXPECT_EQ(tokens.back(), 2);
      if (b == 0) {
        EXPECT_EQ(tokens[1], 6);
      }
      std::sort(tokens.begin(), tokens.end());
      EXPECT_EQ(std::adjacent_find(tokens.begin(), tokens.end()), tokens.end());
    }
    EXPECT_NE(samples.front().tokens, samples.back().tokens);
    // A sample is the same when the others are not drawn: it keeps its number when some of them end before it.
    BeamSearchOptions single = options;
    single.beam_size = 1;
    for (int64_t number = 0; number < 25; ++number) {
      const auto pick = [&](const at::Tensor& row, int64_t sentence, int64_t, int64_t length) {
        return drawn(row, sentence, number, length);
      };
      const auto one = sample_search(*make_model_decoder(*model), {}, own, {}, single, pick,
                                     {b == 0 ? std::vector<int64_t>{5, 6} : std::vector<int64_t>{}})
                           .front()
                           .front();
      EXPECT_TRUE(std::any_of(samples.begin(), samples.end(),
                              [&](const Hypothesis& sample) { return sample.tokens == one.tokens; }));
    }
  }
}

TEST_F(BeamSearch, TheLikeliestTokensAreTheGreedySearch) {
  const BeamSearchOptions options{.beam_size = 1, .max_len_b = 8};
  const auto most = [](const at::Tensor& row, int64_t, int64_t, int64_t) { return row.argmax().item<int64_t>(); };
  const auto found = sample_search(*make_model_decoder(*model), {}, source, source != 1, options, most);
  const auto expected = search(options);
  for (size_t b = 0; b < 3; ++b) EXPECT_EQ(found[b].front().tokens, expected[b].front().tokens);
}

}  // namespace
}  // namespace mnemo::search
