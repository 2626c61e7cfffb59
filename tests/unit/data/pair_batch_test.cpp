#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/pairs/pair_documents.h"
#include "tests/support/expect_error.h"

namespace mnemo::data {
namespace {

// The ids of a published model's vocabulary are its own: one of its tokens has the number of our padding.
TEST(PairBatch, ATokenWithTheNumberOfThePaddingIsReal) {
  const Batch batch = make_pair_batch({{{1, 5, 1}, {2}}, {{7}, {2}}}, {0, 1});
  EXPECT_TRUE(at::equal(batch.input.source_valid, at::tensor({1, 1, 1, 1, 0, 0}).view({2, 3}).to(at::kBool)));
}

// Real tokens are known by length: in other vocabularies our padding's id is a word, or the end (T5).
TEST(PairBatchTest, PaddingIsNotAToken) {
  const Batch batch = make_pair_batch({{{1, 5, 1}, {7, 1}}, {{1}, {1}}}, {0, 1}, {9, 0});
  EXPECT_TRUE(at::equal(batch.input.source, at::tensor({1, 5, 1, 1, 0, 0}, at::kLong).view({2, 3})));
  EXPECT_TRUE(
      at::equal(batch.input.source_valid.to(at::kLong), at::tensor({1, 1, 1, 1, 0, 0}, at::kLong).view({2, 3})));
  EXPECT_TRUE(at::equal(batch.input.tokens, at::tensor({9, 7, 9, 0}, at::kLong).view({2, 2})));
}

// Every row reads documents from their first pair to their last; an epoch has each of them once.
TEST(DocumentBatchesTest, ReadDocumentsInOrderAndResume) {
  auto part = std::make_shared<PairPart>();
  int64_t number = 10;
  for (const auto& [document, count] : {std::pair{0, 3}, {1, 1}, {2, 5}, {-1, 1}, {-1, 1}, {3, 2}}) {
    for (int i = 0; i < count; ++i, ++number) {
      part->samples.push_back({{number, 2}, {number, 2}});
      part->texts.push_back({"", "", document});
    }
  }
  const std::vector<PairDocument> documents = documents_of(*part);
  ASSERT_EQ(documents.size(), 6u);
  EXPECT_EQ(documents[2].first, 4);
  EXPECT_EQ(documents[2].count, 5);
  EXPECT_EQ(documents[4].count, 1) << "pairs without a document stand alone";

  DocumentBatches batches(part, 2, true, 7);
  std::vector<Batch> seen;
  std::vector<std::pair<int64_t, at::Tensor>> places;
  std::multiset<int64_t> starts;
  for (int step = 0; step < 40; ++step) {
    places.emplace_back(batches.begun(), batches.rows());
    seen.push_back(batches.next());
    const Batch& now = seen.back();
    for (int64_t row = 0; row < 2; ++row) {
      const int64_t here = now.input.source[row][0].item<int64_t>();
      if (now.reset[row].item<bool>()) {
        if (starts.size() < 12) starts.insert(here);
      } else {
        EXPECT_EQ(here, seen[seen.size() - 2].input.source[row][0].item<int64_t>() + 1);
      }
    }
  }
  for (const PairDocument& document : documents) EXPECT_EQ(starts.count(10 + document.first), 2u) << document.first;

  DocumentBatches again(part, 2, true, 7);
  for (const size_t place : {size_t{0}, size_t{13}, size_t{30}}) {
    again.seek(places[place].first, places[place].second);
    for (size_t i = place; i < place + 6; ++i) {
      const Batch now = again.next();
      EXPECT_TRUE(at::equal(now.input.source, seen[i].input.source)) << i;
      EXPECT_TRUE(at::equal(now.reset, seen[i].reset)) << i;
    }
  }
  test::expect_error<base::InputError>([&] { again.seek(0, at::zeros({3, 2}, at::kLong)); }, {"2 rows"});
  test::expect_error<base::InputError>([&] { again.seek(0, at::full({2, 2}, 6, at::kLong)); }, {"6 documents"});
}
}  // namespace
}  // namespace mnemo::data
