#include "data/text/span_corruption.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "text/open_tokenizer.h"

namespace mnemo::data {
namespace {

const SpanCorruption kLikeT5{.density = 0.15, .mean_span = 3.0, .sentinels = {99, 98, 97, 96, 95, 94}, .end = 1};

/// The text of a source and what stands in its spans.
std::vector<int64_t> put_together(const PairSample& sample, const std::vector<int64_t>& sentinels) {
  std::vector<int64_t> text;
  auto span = sample.target.begin();
  for (const int64_t token : sample.source) {
    const bool sentinel = std::count(sentinels.begin(), sentinels.end(), token) > 0;
    if (!sentinel) {
      text.push_back(token);
      continue;
    }
    EXPECT_EQ(*span, token) << "spans come in order";
    for (++span; std::count(sentinels.begin(), sentinels.end(), *span) == 0 && *span != 1; ++span)
      text.push_back(*span);
  }
  EXPECT_EQ(*span, 1);
  text.pop_back();
  return text;
}

TEST(SpanCorruption, SourceAndTargetAreTheTextTogether) {
  for (int64_t length = 2; length < 120; ++length) {
    std::vector<int64_t> tokens(static_cast<size_t>(length));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = 2 + static_cast<int64_t>(i % 80);
    base::Random random{static_cast<uint64_t>(length)};
    const PairSample sample = corrupt_spans(tokens, kLikeT5, random);
    EXPECT_EQ(put_together(sample, kLikeT5.sentinels), tokens) << length;
    EXPECT_EQ(sample.source.back(), 1);
    EXPECT_EQ(sample.source.front(), 2) << "the text begins with what stays";
  }
}

TEST(SpanCorruption, AsMuchIsTakenOutAsAskedFor) {
  std::vector<int64_t> tokens(100);
  std::iota(tokens.begin(), tokens.end(), 200);
  std::set<std::vector<int64_t>> different;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    base::Random random{seed};
    const PairSample sample = corrupt_spans(tokens, kLikeT5, random);
    EXPECT_EQ(sample.target.size(), 15U + 5 + 1) << "15 tokens in 5 spans of 3 on average";
    EXPECT_EQ(sample.source.size(), 85U + 5 + 1);
    different.insert(sample.target);
  }
  EXPECT_EQ(different.size(), 50U);
  SpanCorruption few = kLikeT5;
  few.sentinels = {99, 98};
  base::Random random{1};
  EXPECT_EQ(corrupt_spans(tokens, few, random).target.size(), 15U + 2 + 1);
}

TEST(SpanCorruption, SentinelsAreThoseOfT5) {
  const auto tokenizer = text::open_tokenizer(MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/tokenizer_t5");
  const std::vector<int64_t> ids = sentinels_of(*tokenizer);
  ASSERT_EQ(ids.size(), 100U);
  EXPECT_EQ(ids[0], tokenizer->find("<extra_id_0>"));
  EXPECT_EQ(ids[99], ids[0] - 99);
}

}  // namespace
}  // namespace mnemo::data
