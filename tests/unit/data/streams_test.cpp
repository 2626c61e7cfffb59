#include "data/text/streams.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "base/ignore_target.h"
#include "tests/support/text_file.h"

namespace mnemo::data {
namespace {

/// A text whose token i is i, so that a segment shows where it comes from; with documents of the given lengths, or
/// none.
std::shared_ptr<const TokenStore> counting(int64_t size) {
  auto store = std::make_shared<TokenStore>(1 << 20);
  for (int32_t i = 0; i < size; ++i) store->append(std::vector<int32_t>{i});
  return store;
}

std::shared_ptr<const TokenStore> counting(const std::vector<int64_t>& documents) {
  auto store = std::make_shared<TokenStore>(1 << 20, true);
  int32_t next = 0;
  for (const int64_t length : documents) {
    store->start_document();
    for (int64_t i = 0; i < length; ++i) store->append(std::vector<int32_t>{next++});
  }
  return store;
}

/// Checks a segment's invariants and returns each row's predicted (input, target) pairs.
std::vector<std::vector<std::pair<int64_t, int64_t>>> pairs(const Batch& segment) {
  std::vector<std::vector<std::pair<int64_t, int64_t>>> out;
  int64_t count = 0;
  for (int64_t b = 0; b < segment.input.tokens.size(0); ++b) {
    auto& row = out.emplace_back();
    bool padding = false;
    for (int64_t t = 0; t < segment.input.tokens.size(1); ++t) {
      const bool valid = !segment.input.valid.defined() || segment.input.valid[b][t].item<bool>();
      const int64_t target = token_targets(segment)[b][t].item<int64_t>();
      EXPECT_EQ(valid, target != base::kIgnoreTarget);
      EXPECT_FALSE(valid && padding) << "padding stands on the right";
      padding = !valid;
      const int64_t token = segment.input.tokens[b][t].item<int64_t>();
      if (valid) row.emplace_back(token, target);
      EXPECT_TRUE(valid || token == 0);
    }
    count += static_cast<int64_t>(row.size());
  }
  EXPECT_EQ(count, segment.num_targets);
  EXPECT_FALSE(segment.input.valid.defined() && segment.input.valid.all().item<bool>())
      << "undefined when all are real";
  return out;
}

std::string same(const Batch& a, const Batch& b) {
  if (!at::equal(a.input.tokens, b.input.tokens)) return "tokens";
  if (!at::equal(token_targets(a), token_targets(b))) return "targets";
  if (!at::equal(a.reset, b.reset)) return "reset";
  const at::Tensor &valid = a.input.valid, &other = b.input.valid;
  if (valid.defined() != other.defined() || (valid.defined() && !at::equal(valid, other))) return "valid";
  return "";
}

std::function<at::Tensor(const std::string&)> finder(const StreamBatches::NamedTensors& tensors) {
  return [tensors](const std::string& name) {
    for (const auto& [key, tensor] : tensors) {
      if (key == name) return tensor;
    }
    return at::Tensor();
  };
}

TEST(StreamBatches, ASmallTextByHand) {
  // Eight predictions on two rows: inputs 0 to 3 and 4 to 7.
  StreamBatches batches(counting(9), {.batch_size = 2});
  EXPECT_EQ(batches.predictions_per_epoch(), 8);
  const auto segments = batches.next(3, 3);
  using Row = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(pairs(segments[0]), (std::vector<Row>{{{0, 1}, {1, 2}, {2, 3}}, {{4, 5}, {5, 6}, {6, 7}}}));
  EXPECT_TRUE(segments[0].reset.all().item<bool>());
  EXPECT_FALSE(segments[0].input.valid.defined());
  EXPECT_EQ(pairs(segments[1]), (std::vector<Row>{{{3, 4}}, {{7, 8}}}));
  EXPECT_FALSE(segments[1].reset.any().item<bool>());
  EXPECT_EQ(batches.epoch(), 14.0 / 8.0);
  EXPECT_EQ(pairs(segments[2]), pairs(segments[0]));
  EXPECT_TRUE(segments[2].reset.all().item<bool>());
}

TEST(StreamBatches, DocumentsByHand) {
  // Documents 0-2, 3 (one token: nothing to predict), 4-9, 10-11.
  StreamBatches batches(counting({3, 1, 6, 2}), {.batch_size = 2});
  EXPECT_EQ(batches.predictions_per_epoch(), 8);
  using Row = std::vector<std::pair<int64_t, int64_t>>;
  auto segment = batches.next(3, 1)[0];
  EXPECT_EQ(pairs(segment), (std::vector<Row>{{{0, 1}, {1, 2}}, {{4, 5}, {5, 6}, {6, 7}}}));
  segment = batches.next(3, 1)[0];
  EXPECT_EQ(pairs(segment), (std::vector<Row>{{{10, 11}}, {{7, 8}, {8, 9}}}));
  EXPECT_TRUE(segment.reset[0].item<bool>());
  EXPECT_FALSE(segment.reset[1].item<bool>());
  segment = batches.next(3, 1)[0];  // the next epoch
  EXPECT_EQ(pairs(segment), (std::vector<Row>{{{0, 1}, {1, 2}}, {{4, 5}, {5, 6}, {6, 7}}}));
  EXPECT_TRUE(segment.reset.all().item<bool>());
}

RC_GTEST_PROP(StreamBatches, ATextIsDealtOnceAnEpochAndInOrder, ()) {
  const auto size = *rc::gen::inRange<int64_t>(2, 60);
  const auto batch = *rc::gen::inRange<int64_t>(1, std::min<int64_t>(size, 6));
  StreamBatches batches(counting(size), {.batch_size = batch});
  RC_ASSERT(batches.predictions_per_epoch() == size - 1);
  std::map<int64_t, int64_t> seen;
  std::vector<int64_t> expected(static_cast<size_t>(batch), -1);
  std::vector<int64_t> laps(static_cast<size_t>(batch), 0);
  while (*std::min_element(laps.begin(), laps.end()) < 4) {
    const auto segment = batches.next(*rc::gen::inRange<int64_t>(1, 12), 1)[0];
    const auto rows = pairs(segment);
    for (size_t b = 0; b < rows.size(); ++b) {
      RC_ASSERT(!rows[b].empty());
      const bool reset = segment.reset[static_cast<int64_t>(b)].item<bool>();
      laps[b] += reset;
      for (size_t i = 0; i < rows[b].size(); ++i) {
        const auto& [input, target] = rows[b][i];
        RC_ASSERT(target == input + 1);
        if (i > 0 || !reset) RC_ASSERT(input == expected[b]);
        expected[b] = target;
        if (laps[b] <= 3) ++seen[target];
      }
    }
  }
  RC_ASSERT(static_cast<int64_t>(seen.size()) == size - 1);
  for (const auto& [target, times] : seen) RC_ASSERT(times == 3);
}

RC_GTEST_PROP(StreamBatches, DocumentsAreDealtOnceAnEpochAndInOrder, ()) {
  const auto lengths = *rc::gen::suchThat(
      rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 12)),
      [](const auto& all) { return std::count_if(all.begin(), all.end(), [](int64_t n) { return n > 1; }) > 0; });
  const auto documents = std::count_if(lengths.begin(), lengths.end(), [](int64_t n) { return n > 1; });
  const auto batch = *rc::gen::inRange<int64_t>(1, std::min<int64_t>(documents, 4) + 1);
  const bool shuffle = *rc::gen::arbitrary<bool>();
  const auto text = counting(lengths);
  StreamBatches batches(text, {.batch_size = batch, .shuffle = shuffle, .seed = 5});

  std::vector<int64_t> starts;  // first tokens of documents, in the order in which they are assigned
  std::map<int64_t, int64_t> seen;
  std::vector<int64_t> expected(static_cast<size_t>(batch), -1);
  while (batches.epoch() < 3) {
    const auto segment = batches.next(*rc::gen::inRange<int64_t>(1, 8), 1)[0];
    const auto rows = pairs(segment);
    for (size_t b = 0; b < rows.size(); ++b) {
      RC_ASSERT(!rows[b].empty());
      const bool reset = segment.reset[static_cast<int64_t>(b)].item<bool>();
      if (reset) starts.push_back(rows[b][0].first);
      for (size_t i = 0; i < rows[b].size(); ++i) {
        const auto& [input, target] = rows[b][i];
        RC_ASSERT(target == input + 1);
        if (i > 0 || !reset) RC_ASSERT(input == expected[b]);
        expected[b] = target;
        ++seen[target];
      }
    }
  }
  // Each run of `documents` starts is one epoch: every document once; without shuffling in the order of the text.
  std::vector<int64_t> all;
  for (int64_t i = 0; i < text->num_documents(); ++i) {
    if (text->document_end(i) - text->document_begin(i) > 1) all.push_back(text->document_begin(i));
  }
  for (size_t at = 0; at + all.size() <= starts.size(); at += all.size()) {
    std::vector<int64_t> epoch(starts.begin() + static_cast<int64_t>(at),
                               starts.begin() + static_cast<int64_t>(at + all.size()));
    if (shuffle) std::sort(epoch.begin(), epoch.end());
    RC_ASSERT(epoch == all);
  }
  RC_ASSERT(starts.size() >= 2 * all.size());
}

RC_GTEST_PROP(StreamBatches, ResumedAnywhereEqualsUninterrupted, ()) {
  const bool documents = *rc::gen::arbitrary<bool>();
  const auto text = documents ? counting({5, 2, 9, 3, 1, 7, 4}) : counting(40);
  const StreamOptions options{.batch_size = *rc::gen::inRange<int64_t>(1, 5),
                              .shuffle = documents && *rc::gen::arbitrary<bool>(),
                              .seed = *rc::gen::inRange<int64_t>(0, 100)};
  StreamBatches straight(text, options);
  const auto before = *rc::gen::inRange<int64_t>(0, 30);
  const auto length = *rc::gen::inRange<int64_t>(1, 7);
  straight.next(length, before);
  StreamBatches resumed(text, options);
  resumed.next(1, 3);  // what it did before does not matter
  resumed.load(finder(straight.save()));
  RC_ASSERT(resumed.predicted() == straight.predicted());
  for (int i = 0; i < 30; ++i) {
    RC_ASSERT(same(resumed.next(length, 1)[0], straight.next(length, 1)[0]) == "");
    RC_ASSERT(resumed.epoch() == straight.epoch());
  }
}

TEST(StreamBatches, ShufflingDependsOnSeedAndEpochAlone) {
  std::vector<int64_t> lengths(50, 2);
  const auto text = counting(lengths);
  const auto order = [&](int64_t seed, int64_t batch) {
    StreamBatches batches(text, {.batch_size = batch, .shuffle = true, .seed = seed});
    std::vector<int64_t> out;
    while (out.size() < 100) {
      for (const auto& row : pairs(batches.next(1, 1)[0])) out.push_back(row[0].first / 2);
    }
    return out;
  };
  const auto one = order(1, 1);
  EXPECT_EQ(one, order(1, 5));
  EXPECT_NE(one, order(2, 1));
  EXPECT_NE(std::vector(one.begin(), one.begin() + 50), std::vector(one.begin() + 50, one.end()));
}

TEST(StreamBatches, Refuses) {
  EXPECT_INPUT_ERROR(StreamBatches(counting(4), {.batch_size = 4}), "found 3");
  EXPECT_INPUT_ERROR(StreamBatches(counting({3, 1, 3}), {.batch_size = 3}), "found 2");
  EXPECT_INPUT_ERROR(StreamBatches(counting(9), {.batch_size = 1, .shuffle = true}), "shuffle");
  EXPECT_INPUT_ERROR(StreamBatches(counting(9), {.batch_size = 0}), "batch_size");
  EXPECT_INPUT_ERROR(StreamBatches(counting(9), {.batch_size = 1}).next(0, 1), "tgt_len");
}

TEST(StreamBatches, APositionOfAnotherTextOrOptionsOrADamagedOneIsRefused) {
  const auto text = counting({5, 2, 9, 3});
  const StreamOptions options{.batch_size = 2, .shuffle = true, .seed = 3};
  StreamBatches batches(text, options);
  batches.next(2, 3);
  const auto saved = batches.save();
  const auto next = batches.next(2, 1)[0];
  const auto refuses = [&](const std::string& name, const at::Tensor& value, const char* part) {
    auto broken = saved;
    for (auto& [key, tensor] : broken) {
      if (key == name) tensor = value;
    }
    StreamBatches fresh(text, options);
    EXPECT_INPUT_ERROR((fresh.load(finder(broken)), 0), part);
    // The failed load did not change the position.
    StreamBatches untouched(text, options);
    EXPECT_EQ(same(fresh.next(2, 1)[0], untouched.next(2, 1)[0]), "");
  };
  refuses("item", {}, "\"item\" is missing");
  refuses("item", at::zeros({3}, at::kLong), "expected int64 [2]");
  refuses("item", at::zeros({2}), "expected int64 [2]");
  refuses("item", at::full({2}, 1000, at::kLong), "expected an item below");
  refuses("item", at::full({2}, -2, at::kLong), "expected an item below");
  refuses("offset", at::full({2}, 100, at::kLong), "expected an offset");
  refuses("offset", at::full({2}, -1, at::kLong), "expected an offset");
  refuses("next_item", at::full({1}, -1, at::kLong), "non-negative counts");
  refuses("predicted", at::full({1}, -1, at::kLong), "non-negative counts");
  StreamBatches other_text(counting({5, 2, 9, 4}), options);
  EXPECT_INPUT_ERROR((other_text.load(finder(saved)), 0), "another training text");
  StreamBatches other_seed(text, {.batch_size = 2, .shuffle = true, .seed = 4});
  EXPECT_INPUT_ERROR((other_seed.load(finder(saved)), 0), "batch_size, shuffle, seed = 2, 1, 4, found 2, 1, 3");
  StreamBatches good(text, options);
  good.load(finder(saved));
  EXPECT_EQ(same(good.next(2, 1)[0], next), "");
}

RC_GTEST_PROP(EvalStream, AContextIsReadAgainAndNotPredicted, ()) {
  const bool documents = *rc::gen::arbitrary<bool>();
  const auto lengths = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 12));
  const auto text = documents ? counting(lengths) : counting(*rc::gen::inRange<int64_t>(0, 60));
  const auto size = *rc::gen::inRange<int64_t>(1, 9), context = *rc::gen::inRange<int64_t>(0, size);
  EvalStream stream(text, *rc::gen::inRange<int64_t>(1, 6));
  std::map<int64_t, int64_t> seen;
  while (const auto segment = stream.next(size, context)) {
    RC_ASSERT(segment->input.tokens.size(1) <= size);
    for (int64_t b = 0; b < segment->input.tokens.size(0); ++b) {
      int64_t again = 0, fresh = 0;
      for (int64_t t = 0; t < segment->input.tokens.size(1); ++t) {
        if (segment->input.valid.defined() && !segment->input.valid[b][t].item<bool>()) continue;
        const int64_t input = segment->input.tokens[b][t].item<int64_t>(),
                      target = token_targets(*segment)[b][t].item<int64_t>();
        // The numbers of the text go up by one, also over the border between context and new tokens.
        if (t > 0) RC_ASSERT(input == segment->input.tokens[b][t - 1].item<int64_t>() + 1);
        if (target == base::kIgnoreTarget) {
          RC_ASSERT(fresh == 0 && seen[input + 1] == 1);
          ++again;
        } else {
          RC_ASSERT(target == input + 1);
          ++seen[target];
          ++fresh;
        }
      }
      RC_ASSERT(again <= context && fresh <= size - context);
      if (fresh > 0 && segment->reset[b].item<bool>()) RC_ASSERT(again == 0);
    }
  }
  RC_ASSERT(stream.predicted() == stream.total());
  for (const auto& [target, times] : seen) RC_ASSERT(times == 1);
  RC_ASSERT(static_cast<int64_t>(seen.size()) == stream.total());
}

RC_GTEST_PROP(EvalStream, EveryTokenButTheFirstIsPredictedOnceInAnySegmentation, ()) {
  const bool documents = *rc::gen::arbitrary<bool>();
  const auto lengths = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 12));
  const auto size = *rc::gen::inRange<int64_t>(0, 60);
  const auto text = documents ? counting(lengths) : counting(size);
  EvalStream stream(text, *rc::gen::inRange<int64_t>(1, 6));
  int64_t expected = std::max<int64_t>(size - 1, 0);
  if (documents) {
    expected = 0;
    for (const int64_t length : lengths) expected += length - 1;
  }
  RC_ASSERT(stream.total() == expected);
  std::map<int64_t, int64_t> seen;
  std::map<size_t, int64_t> last;
  while (const auto segment = stream.next(*rc::gen::inRange<int64_t>(1, 9))) {
    const auto rows = pairs(*segment);
    size_t longest = 0;
    for (size_t b = 0; b < rows.size(); ++b) {
      longest = std::max(longest, rows[b].size());
      if (rows[b].empty()) continue;
      if (!segment->reset[static_cast<int64_t>(b)].item<bool>()) RC_ASSERT(rows[b][0].first == last[b]);
      for (const auto& [input, target] : rows[b]) {
        RC_ASSERT(target == input + 1);
        ++seen[target];
      }
      last[b] = rows[b].back().second;
    }
    RC_ASSERT(static_cast<int64_t>(longest) == segment->input.tokens.size(1));
  }
  RC_ASSERT(static_cast<int64_t>(seen.size()) == expected);
  for (const auto& [target, times] : seen) RC_ASSERT(times == 1);
  RC_ASSERT(stream.predicted() == expected);
}

}  // namespace
}  // namespace mnemo::data
