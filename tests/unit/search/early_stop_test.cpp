// A search for the best few hypotheses of its beam ends early, and finds what the plain search finds.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "search/beam_search.h"

namespace mnemo::search::early_stop_test {
namespace {

constexpr int64_t kWords = 8, kEnd = 2;

/// Log probabilities that only depend on the sentence and the tokens so far; counts its steps.
class CountingDecoder final : public StepDecoder {
 public:
  CountingDecoder(uint64_t seed, double end) : seed_(seed), end_(end) {}
  int64_t vocabulary() const override { return kWords; }
  void start(const at::Tensor& source, const at::Tensor&) override {
    pasts_.clear();
    for (int64_t b = 0; b < source.size(0); ++b) pasts_.push_back(base::Random{seed_, static_cast<uint64_t>(b)}.next());
  }
  void start(const core::State&) override { FAIL() << "the search reads its sources itself"; }
  at::Tensor log_probabilities(std::span<const int64_t> last) override {
    rows += static_cast<int64_t>(last.size());
    at::Tensor all = at::empty({static_cast<int64_t>(last.size()), kWords}, at::kDouble);
    for (size_t i = 0; i < last.size(); ++i) {
      base::Random random{pasts_[i], static_cast<uint64_t>(last[i])};
      pasts_[i] = random.next();
      double* row = all.mutable_data_ptr<double>() + static_cast<int64_t>(i) * kWords;
      double sum = 0.0;
      for (int64_t word = 0; word < kWords; ++word) {
        row[word] = 5.0 * static_cast<double>(random.next() % 4096) / 4096.0 + (word == kEnd ? end_ : 0.0);
        sum += std::exp(row[word]);
      }
      for (int64_t word = 0; word < kWords; ++word) row[word] -= std::log(sum);
    }
    return all;
  }
  void select(std::span<const int64_t> parents) override {
    std::vector<uint64_t> chosen;
    for (const int64_t parent : parents) chosen.push_back(pasts_[static_cast<size_t>(parent)]);
    pasts_ = std::move(chosen);
  }
  int64_t rows = 0;  ///< hypotheses that took a step

 private:
  uint64_t seed_;
  double end_;
  std::vector<uint64_t> pasts_;
};

TEST(EarlyStop, FindsWhatThePlainSearchFinds) {
  int64_t earlier = 0, with_penalty = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    base::Random random{seed, 7};
    const auto draw = [&](uint64_t count) { return static_cast<int64_t>(random.next() % count); };
    const double penalties[] = {0.0, 0.0, 0.1, 0.5, 1.0, 2.0}, ends[] = {-1.0, 1.0, 4.0};
    BeamSearchOptions options;
    options.beam_size = 1 + draw(5);
    options.length_penalty = penalties[draw(6)];
    options.min_len = draw(5);
    options.max_len_a = draw(2) == 0 ? 0.0 : 0.5;
    options.max_len_b = 1 + draw(12);
    if (options.max_len_a == 0.0) options.min_len = std::min(options.min_len, options.max_len_b);
    options.no_repeat_ngram = draw(3);
    std::vector<std::vector<int64_t>> prefixes(3);
    for (auto& prefix : prefixes) {
      for (int64_t left = draw(2) * draw(8); left > 0; --left) prefix.push_back(3 + draw(5));
    }
    const double end = ends[draw(3)];
    const at::Tensor source = at::full({3, 4}, 3, at::kLong);
    CountingDecoder plain(seed, end);
    const auto expected = beam_search(plain, {}, source, {}, options, prefixes);
    for (options.wanted = 1; options.wanted <= options.beam_size; ++options.wanted) {
      CountingDecoder early(seed, end);
      const auto found = beam_search(early, {}, source, {}, options, prefixes);
      for (size_t sentence = 0; sentence < 3; ++sentence) {
        const size_t count = std::min(expected[sentence].size(), static_cast<size_t>(options.wanted));
        ASSERT_EQ(found[sentence].size(), count) << seed;
        for (size_t k = 0; k < count; ++k) {
          ASSERT_EQ(found[sentence][k].tokens, expected[sentence][k].tokens) << seed << ' ' << options.wanted;
          ASSERT_EQ(found[sentence][k].score, expected[sentence][k].score) << seed << ' ' << options.wanted;
        }
      }
      EXPECT_LE(early.rows, plain.rows);
      earlier += early.rows < plain.rows ? 1 : 0;
      with_penalty += early.rows < plain.rows && options.length_penalty > 0.0 ? 1 : 0;
    }
  }
  EXPECT_GT(earlier, 100);
  EXPECT_GT(with_penalty, 20);
}

// An end that is the second best candidate of one beam is not taken.
TEST(OneBeam, IsTheGreedySearch) {
  const auto most = [](const at::Tensor& row, int64_t, int64_t, int64_t) { return row.argmax().item<int64_t>(); };
  const at::Tensor source = at::full({3, 4}, 3, at::kLong);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const BeamSearchOptions options{.beam_size = 1, .max_len_b = 8};
    CountingDecoder one(seed, 1.0), greedy(seed, 1.0);
    const auto found = beam_search(one, {}, source, {}, options);
    const auto expected = sample_search(greedy, {}, source, {}, options, most);
    for (size_t sentence = 0; sentence < 3; ++sentence)
      ASSERT_EQ(found[sentence].front().tokens, expected[sentence].front().tokens) << seed;
  }
}

TEST(MinLen, IsTheNumberOfTokensBeforeAnEndThatIsLikeliest) {
  CountingDecoder decoder(1, 20.0);
  const at::Tensor source = at::full({3, 4}, 3, at::kLong);
  for (const auto& found : beam_search(decoder, {}, source, {}, {.beam_size = 1, .min_len = 3, .max_len_b = 8}))
    EXPECT_EQ(found.front().tokens.size(), 4U);
}

}  // namespace
}  // namespace mnemo::search::early_stop_test
