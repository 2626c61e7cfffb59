// Beam search as transformers defines it, compared with the definition: every hypothesis computed from its start.
#include "search/generation_search.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "tests/support/expect_error.h"
#include "tests/verify/text.h"

namespace mnemo::search::generation_test {
namespace {

using test::expect_error;

constexpr int64_t kWords = 9, kFirst = 8, kEnd = 1, kSuppressed = 4;

/// log p of each token after a hypothesis of a sentence: random, but always the same.
at::Tensor random_row(int64_t sentence, const std::vector<int64_t>& tokens) {
  base::Random random{static_cast<uint64_t>(sentence + 11), tokens.size()};
  for (const int64_t token : tokens) random = base::Random{random.next(), static_cast<uint64_t>(token)};
  at::Tensor row = at::empty({kWords}, at::kDouble);
  for (int64_t i = 0; i < kWords; ++i) row[i] = 4.0 * static_cast<double>(random.next() % 10'000) / 10'000.0;
  row[kEnd] += 0.5;
  return at::log_softmax(row, -1);
}

class RandomDecoder final : public StepDecoder {
 public:
  int64_t vocabulary() const override { return kWords; }
  void start(const at::Tensor& source, const at::Tensor&) override {
    hypotheses_.clear();
    for (int64_t b = 0; b < source.size(0); ++b) hypotheses_.push_back({source[b][0].item<int64_t>(), {}});
  }
  void start(const core::State&) override { FAIL() << "the search reads its sources itself"; }
  at::Tensor log_probabilities(std::span<const int64_t> last) override {
    std::vector<at::Tensor> rows;
    for (size_t i = 0; i < last.size(); ++i) {
      auto& [sentence, tokens] = hypotheses_[i];
      if (started_) {
        tokens.push_back(last[i]);
      } else {
        EXPECT_EQ(last[i], kFirst);
      }
      rows.push_back(random_row(sentence, tokens));
    }
    started_ = true;
    return at::stack(rows);
  }
  void select(std::span<const int64_t> parents) override {
    std::vector<std::pair<int64_t, std::vector<int64_t>>> chosen;
    for (const int64_t parent : parents) chosen.push_back(hypotheses_[static_cast<size_t>(parent)]);
    hypotheses_ = std::move(chosen);
  }

 private:
  std::vector<std::pair<int64_t, std::vector<int64_t>>> hypotheses_;
  bool started_ = false;
};

using Early = GenerationOptions::EarlyStopping;

GenerationOptions options_of(int64_t beams, double penalty, Early early) {
  GenerationOptions options;
  options.num_beams = beams;
  options.length_penalty = penalty;
  options.early_stopping = early;
  options.max_new_tokens = 7;
  return options;
}

std::vector<std::vector<Hypothesis>> searched(const GenerationOptions& options) {
  RandomDecoder decoder;
  return generation_search(decoder, kFirst, kEnd, at::arange(12).unsqueeze(1), {}, options);
}

/// By definition, with the changes of a step applied to each row.
std::vector<verify::FoundText> defined(int64_t sentence, const GenerationOptions& options) {
  const auto next = [&](const std::vector<int64_t>& generated) {
    at::Tensor row = random_row(sentence, generated);
    for (const int64_t token : options.suppressed) row[token] = -std::numeric_limits<double>::infinity();
    const auto n = static_cast<int64_t>(generated.size()) + 1, size = options.no_repeat_ngram;
    std::vector<int64_t> all = {kFirst};
    all.insert(all.end(), generated.begin(), generated.end());
    for (int64_t word = 0; word < kWords && size > 0; ++word) {
      std::vector<int64_t> longer = all;
      longer.push_back(word);
      const auto last = longer.end() - std::min<int64_t>(size, static_cast<int64_t>(longer.size()));
      if (static_cast<int64_t>(longer.size()) > size &&
          std::search(longer.begin(), longer.end() - 1, last, longer.end()) != longer.end() - 1)
        row[word] = -std::numeric_limits<double>::infinity();
    }
    if (n <= options.min_new_tokens) row[kEnd] = -std::numeric_limits<double>::infinity();
    if (options.forced_eos && n == options.max_new_tokens) {
      row.fill_(-std::numeric_limits<double>::infinity());
      row[*options.forced_eos] = 0.0;
    }
    return options.renormalize ? at::log_softmax(row, -1) : row;
  };
  verify::SearchSettings settings;
  settings.max_new_tokens = options.max_new_tokens;
  settings.num_beams = options.num_beams;
  settings.eos = kEnd;
  settings.length_penalty = options.length_penalty;
  settings.early_stopping = options.early_stopping;
  return verify::search_by_definition(next, settings);
}

void expect_defined(const GenerationOptions& options) {
  const auto found = searched(options);
  for (size_t sentence = 0; sentence < found.size(); ++sentence) {
    const auto expected = defined(static_cast<int64_t>(sentence), options);
    ASSERT_EQ(found[sentence].size(), static_cast<size_t>(options.num_beams));
    for (size_t i = 0; i < found[sentence].size(); ++i) {
      EXPECT_EQ(found[sentence][i].tokens, expected[i].tokens) << sentence << " " << i;
      EXPECT_NEAR(found[sentence][i].score, expected[i].score, 1e-12) << sentence << " " << i;
    }
  }
}

TEST(GenerationSearch, IsTheDefinition) {
  for (const double penalty : {0.0, 0.6, 1.0, 2.0}) {
    for (const Early early : {Early::yes, Early::no, Early::never}) {
      for (const int64_t beams : {2, 4}) expect_defined(options_of(beams, penalty, early));
    }
  }
}

TEST(GenerationSearch, OneBeamIsGreedyHoweverItStops) {
  const auto found = searched(options_of(1, 1.0, Early::yes)), late = searched(options_of(1, 1.0, Early::no));
  for (size_t sentence = 0; sentence < found.size(); ++sentence) {
    std::vector<int64_t> tokens;
    while (tokens.size() < 7 && (tokens.empty() || tokens.back() != kEnd))
      tokens.push_back(random_row(static_cast<int64_t>(sentence), tokens).argmax().item<int64_t>());
    EXPECT_EQ(found[sentence].at(0).tokens, tokens) << sentence;
    EXPECT_EQ(late[sentence].at(0).tokens, tokens) << sentence;
  }
}

TEST(GenerationSearch, ChangesOfAStepCountInTheScores) {
  GenerationOptions options = options_of(4, 1.0, Early::no);
  options.suppressed = {kSuppressed};
  options.forced_eos = kEnd;
  for (const bool again : {false, true}) {
    options.renormalize = again;
    expect_defined(options);
    for (const auto& hypotheses : searched(options)) {
      for (const Hypothesis& hypothesis : hypotheses) {
        EXPECT_EQ(hypothesis.tokens.back(), kEnd);
        for (const int64_t token : hypothesis.tokens) EXPECT_NE(token, kSuppressed);
      }
    }
  }
}

// "never" waits for longer hypotheses, which a penalty above 0 favours.
TEST(GenerationSearch, NeverStopsLaterThanNo) {
  const auto no = searched(options_of(2, 2.0, Early::no)), never = searched(options_of(2, 2.0, Early::never));
  bool differs = false;
  for (size_t i = 0; i < no.size(); ++i) {
    EXPECT_GE(never[i].front().score, no[i].front().score);
    differs |= never[i].front().tokens != no[i].front().tokens;
  }
  EXPECT_TRUE(differs);
}

TEST(GenerationSearch, LengthsAndRepeats) {
  for (const int64_t beams : {1, 3}) {
    GenerationOptions options = options_of(beams, 1.0, Early::no);
    for (const int64_t size : {0, 1, 2, 3}) {
      options.no_repeat_ngram = size;
      for (const int64_t least : {0, 3, 5}) {
        options.min_new_tokens = least;
        expect_defined(options);
        for (const auto& hypotheses : searched(options)) {
          for (const Hypothesis& hypothesis : hypotheses)
            EXPECT_GT(static_cast<int64_t>(hypothesis.tokens.size()), least);
        }
      }
    }
  }
}

// Where every token is forbidden, a hypothesis ends, and so does the search.
TEST(GenerationSearch, AHypothesisThatNothingMayFollowEnds) {
  GenerationOptions options = options_of(1, 1.0, Early::yes);
  options.max_new_tokens = 50;
  options.min_new_tokens = 40;
  options.no_repeat_ngram = 1;
  for (const auto& hypotheses : searched(options)) {
    ASSERT_EQ(hypotheses.size(), 1u);
    EXPECT_EQ(hypotheses.front().tokens.size(), static_cast<size_t>(kWords - 1));  // all others once, and the end
    EXPECT_EQ(hypotheses.front().tokens.back(), kEnd);
  }
}

TEST(GenerationSearch, RefusesWhatTheVocabularyLacks) {
  expect_error<base::InputError>([] { searched(options_of(kWords + 1, 1.0, Early::yes)); },
                                 {"num_beams", "at most", "9"});
  GenerationOptions options = options_of(2, 1.0, Early::yes);
  options.suppressed = {kWords};
  expect_error<base::InputError>([&] { searched(options); }, {"expected tokens below 9, found 9"});
}

}  // namespace
}  // namespace mnemo::search::generation_test
