#include "metrics/bleu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "metrics/bootstrap.h"
#include "metrics/chrf.h"

namespace mnemo::metrics {
namespace {

using Lines = std::vector<std::string>;

TEST(Bleu, IsItsFormula) {
  // "the cat sat on a mat" against two references: matches 5 of 6, 3 of 5, 1 of 4, 0 of 3.
  const Lines hypotheses = {"the cat sat on a mat"};
  const std::vector<Lines> references = {{"the cat is on a mat"}, {"there is a cat that sat on mats today"}};
  const BleuScore none = corpus_bleu(hypotheses, references, {.smoothing = BleuSmoothing::none});
  EXPECT_EQ(none.counts.matches, (std::array<int64_t, 4>{6, 4, 1, 0}));
  EXPECT_EQ(none.counts.totals, (std::array<int64_t, 4>{6, 5, 4, 3}));
  EXPECT_EQ(none.counts.reference_length, 6);
  EXPECT_EQ(none.score, 0.0);
  const BleuScore exp = corpus_bleu(hypotheses, references);
  EXPECT_NEAR(exp.score, 100.0 * std::pow(1.0 * 0.8 * 0.25 * (0.5 / 3.0), 0.25), 1e-12);
  const BleuScore floor = corpus_bleu(hypotheses, references, {.smoothing = BleuSmoothing::floor});
  EXPECT_NEAR(floor.precisions[3], 100.0 * 0.1 / 3.0, 1e-12);
  const BleuScore add = corpus_bleu(hypotheses, references, {.smoothing = BleuSmoothing::add_k, .smooth_value = 2.0});
  EXPECT_NEAR(add.precisions[3], 100.0 * 2.0 / 5.0, 1e-12);
  EXPECT_EQ(add.precisions[0], 100.0);
}

TEST(Bleu, ReferenceLengthIsTheNearestAndOfTwoTheShorter) {
  const Lines hypotheses = {"a b c d"};
  const std::vector<Lines> references = {{"a b c d e"}, {"a b c"}, {"a"}};
  EXPECT_EQ(corpus_bleu(hypotheses, references).counts.reference_length, 3);
}

TEST(Bleu, TokenizersFollowTheirRules) {
  const auto tokens = [](const std::string& line, BleuTokenizer tokenizer, bool lowercase = false) {
    return bleu_tokens(line, {.tokenizer = tokenizer, .lowercase = lowercase});
  };
  const BleuTokenizer mteval = BleuTokenizer::mteval_13a, international = BleuTokenizer::international;
  EXPECT_EQ(tokens("1,000.5 a.b &quot;x&amp;&quot; 7-8 <skipped>-", mteval), "1,000.5 a . b \" x & \" 7 - 8 -");
  EXPECT_EQ(tokens("\u00ab1.5\u00bb, 3\u20ac\u2026", international), "\u00ab1.5 \u00bb , 3 \u20ac \u2026");
  EXPECT_EQ(tokens("\u00e9 b", BleuTokenizer::character), "\u00e9 b");
  EXPECT_EQ(tokens(" a\u3000b\x1c"
                   "c\u0085 ",
                   BleuTokenizer::none),
            "a b c");
  // Python's lower(): a final sigma, and the dotted I as two code points.
  EXPECT_EQ(tokens("\u039F\u0394\u039F\u03A3 \u0130", BleuTokenizer::none, true), "\u03BF\u03B4\u03BF\u03C2 i\u0307");
  EXPECT_THROW(tokens("\xFF", mteval), base::InputError);
}

TEST(Bleu, SumsOfCountsAreTheCorpus) {
  const Lines hypotheses = {"a b c d e", "x y z", ""};
  const std::vector<Lines> references = {{"a b c d", "x y", "q"}};
  BleuCounts sum;
  for (const BleuCounts& counts : bleu_counts_of(hypotheses, references)) sum += counts;
  EXPECT_EQ(bleu_of(sum, {}).score, corpus_bleu(hypotheses, references).score);
  EXPECT_THROW(corpus_bleu(hypotheses, {}), base::InputError);
  EXPECT_THROW(corpus_bleu(Lines{"a"}, references), base::InputError);
}

TEST(Chrf, IsItsFormula) {
  // Characters "abc" and "abd": 2 of 3 unigrams, 1 of 2 bigrams; of words 0 of 1.
  const Lines hypotheses = {"a bc"};
  const std::vector<Lines> references = {{"ab d"}};
  EXPECT_NEAR(corpus_chrf(hypotheses, references, {.char_order = 2}), 100.0 * (2.0 / 3 + 0.5) / 2, 1e-12);
  EXPECT_NEAR(corpus_chrf(hypotheses, references, {.char_order = 2, .word_order = 1}), 100.0 * (2.0 / 3 + 0.5) / 3,
              1e-12);
  EXPECT_THROW(corpus_chrf(hypotheses, references, {.char_order = 0}), base::InputError);
  EXPECT_THROW(corpus_chrf(hypotheses, references, {.beta = 0.0}), base::InputError);
  EXPECT_EQ(chrf_signature({.word_order = 2}, 1), "nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:2.6.0");
}

/// The mean of some values over the sentences drawn.
SampleScore mean_of(std::vector<double> values) {
  return [values = std::move(values)](std::span<const int64_t> sentences) {
    double sum = 0;
    for (const int64_t i : sentences) sum += values[static_cast<size_t>(i)];
    return sum / static_cast<double>(sentences.size());
  };
}

TEST(PairedBootstrap, TellsAClearDifferenceFromNone) {
  std::vector<double> good, poor, noise;
  for (int i = 0; i < 200; ++i) {
    good.push_back(0.6 + 0.1 * (i % 3));
    poor.push_back(0.4 + 0.1 * (i % 5));
    noise.push_back(good.back() + (i % 2 == 0 ? 0.1 : -0.1));
  }
  const PairedBootstrap clear = paired_bootstrap(200, mean_of(good), mean_of(poor));
  EXPECT_EQ(clear.better_a, 1.0);
  EXPECT_EQ(clear.better_b, 0.0);
  EXPECT_EQ(clear.p, 1.0 / 1001.0);
  EXPECT_GT(clear.low, 0.0);
  EXPECT_LT(clear.low, clear.score_a - clear.score_b);
  EXPECT_GT(clear.high, clear.score_a - clear.score_b);
  const PairedBootstrap equal = paired_bootstrap(200, mean_of(good), mean_of(noise));
  EXPECT_GT(equal.p, 0.5);
  EXPECT_NEAR(equal.better_a, 0.5, 0.1);
  const PairedBootstrap same = paired_bootstrap(200, mean_of(good), mean_of(good), 50);
  EXPECT_EQ(same.p, 1.0);
  EXPECT_EQ(same.better_a + same.better_b, 0.0);
  // The seed alone decides what is drawn.
  EXPECT_EQ(paired_bootstrap(200, mean_of(good), mean_of(noise)).p, equal.p);
  EXPECT_NE(paired_bootstrap(200, mean_of(good), mean_of(noise), 1000, 7).low, equal.low);
  EXPECT_THROW(paired_bootstrap(0, mean_of(good), mean_of(good)), base::InputError);
  EXPECT_THROW(paired_bootstrap(1, mean_of(good), mean_of(good), 0), base::InputError);
}

}  // namespace
}  // namespace mnemo::metrics
