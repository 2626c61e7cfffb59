#include "data/answers/algorithmic.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <sstream>

#include "base/ignore_target.h"
#include "tests/support/text_file.h"

namespace mnemo::data {
namespace {

std::vector<int64_t> row(const at::Tensor& tensor, int64_t b) {
  const at::Tensor values = tensor[b].to(at::kLong).contiguous();
  return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
}

/// The whole sample of n + 1 tokens; also checks that targets are the inputs shifted by one.
std::vector<int64_t> whole(const SampleBatch& batch, int64_t b) {
  std::vector<int64_t> out = row(batch.inputs, b);
  const std::vector<int64_t> targets = row(batch.targets, b);
  EXPECT_TRUE(std::equal(out.begin() + 1, out.end(), targets.begin()));
  out.push_back(targets.back());
  return out;
}

RC_GTEST_PROP(Algorithmic, CopyAndReverse, ()) {
  const auto n = *rc::gen::inRange<int64_t>(1, 20);
  const auto alphabet = *rc::gen::inRange<int64_t>(1, 12);
  for (const char* name : {"copy", "reverse"}) {
    const bool copy = std::string_view(name) == "copy";
    const AlgorithmicTask task({.task = name, .num_symbols = n, .alphabet = alphabet}, 7);
    const SampleBatch batch = task.batch(Part::train, 3, 4);
    RC_ASSERT(task.length() == n * (copy ? 3 : 2));
    RC_ASSERT(task.vocabulary_size() == alphabet + 2);
    for (int64_t b = 0; b < 4; ++b) {
      const auto tokens = whole(batch, b);
      const std::vector<int64_t> x(tokens.begin(), tokens.begin() + n);
      std::vector<int64_t> expected = x;
      expected.push_back(1);
      if (copy) {
        expected.insert(expected.end(), x.begin(), x.end());
        expected.insert(expected.end(), x.begin(), x.end());
      } else {
        expected.insert(expected.end(), x.rbegin(), x.rend());
      }
      RC_ASSERT(tokens == expected);
      for (const int64_t symbol : x) RC_ASSERT(symbol >= 2 && symbol < 2 + alphabet);
      const auto answer = row(batch.answer, b);
      for (int64_t t = 0; t < task.length(); ++t) RC_ASSERT(answer[static_cast<size_t>(t)] == (t >= n));
    }
  }
}

RC_GTEST_PROP(Algorithmic, Retrieval, ()) {
  const auto pairs = *rc::gen::inRange<int64_t>(1, 11);
  const AlgorithmicTask task({.task = "retrieval", .num_pairs = pairs}, *rc::gen::inRange<int64_t>(0, 1000));
  RC_ASSERT(task.vocabulary_size() == 37);
  RC_ASSERT(task.length() == 2 * pairs + 2);
  const SampleBatch batch = task.batch(Part::test, 0, 3);
  for (int64_t b = 0; b < 3; ++b) {
    const auto tokens = whole(batch, b);
    std::map<int64_t, int64_t> table;
    std::set<int64_t> values;
    for (int64_t i = 0; i < pairs; ++i) {
      const int64_t key = tokens[static_cast<size_t>(2 * i)], value = tokens[static_cast<size_t>(2 * i + 1)];
      RC_ASSERT(key >= 11 && key <= 36);
      RC_ASSERT(value >= 0 && value <= 9);
      table[key] = value;
      values.insert(value);
    }
    RC_ASSERT(static_cast<int64_t>(table.size()) == pairs);
    RC_ASSERT(static_cast<int64_t>(values.size()) == pairs);
    const auto end = tokens.size();
    RC_ASSERT(tokens[end - 2] == 10);
    RC_ASSERT(tokens[end - 1] == table.at(tokens[end - 3]));
    RC_ASSERT(batch.answer[b].sum().item<int64_t>() == 1);
    RC_ASSERT(batch.answer[b][task.length() - 1].item<bool>());
  }
}

TEST(Algorithmic, DependsOnSeedPartAndStepAlone) {
  const AlgorithmicOptions options{.task = "copy", .num_symbols = 16};
  const AlgorithmicTask task(options, 1);
  const at::Tensor one = task.batch(Part::train, 5, 8).inputs;
  EXPECT_TRUE(at::equal(one, AlgorithmicTask(options, 1).batch(Part::train, 5, 8).inputs));
  EXPECT_TRUE(at::equal(one.narrow(0, 0, 3), task.batch(Part::train, 5, 3).inputs));
  EXPECT_FALSE(at::equal(one, task.batch(Part::valid, 5, 8).inputs));
  EXPECT_FALSE(at::equal(one, task.batch(Part::train, 6, 8).inputs));
  EXPECT_FALSE(at::equal(one, AlgorithmicTask(options, 2).batch(Part::train, 5, 8).inputs));
}

TEST(Algorithmic, SymbolsAreUniform) {
  const AlgorithmicTask task({.task = "copy", .num_symbols = 100, .alphabet = 10}, 3);
  const at::Tensor x = task.batch(Part::train, 0, 1000).inputs.narrow(1, 0, 100);
  // 10,000 of each are expected; 474 is five standard deviations.
  for (int64_t symbol = 2; symbol < 12; ++symbol) EXPECT_NEAR(x.eq(symbol).sum().item<double>(), 10000, 474);
}

TEST(Algorithmic, Segments) {
  // 16 symbols in 12 segments of 4.
  const AlgorithmicTask task({.task = "copy", .num_symbols = 16}, 1);
  const SampleBatch batch = task.batch(Part::train, 0, 2);
  const auto segments = cut_segments(batch, 4);
  ASSERT_EQ(segments.size(), 12u);
  std::vector<at::Tensor> tokens, targets;
  int64_t answers = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    EXPECT_EQ(segments[i].input.tokens.size(1), 4);
    EXPECT_EQ(segments[i].reset.all().item<bool>(), i == 0);
    EXPECT_EQ(segments[i].reset.any().item<bool>(), i == 0);
    EXPECT_FALSE(segments[i].input.valid.defined());
    EXPECT_EQ(segments[i].num_targets, token_targets(segments[i]).ne(base::kIgnoreTarget).sum().item<int64_t>());
    tokens.push_back(segments[i].input.tokens);
    targets.push_back(token_targets(segments[i]));
    answers += segments[i].num_targets;
  }
  EXPECT_EQ(answers, 2 * 32);
  EXPECT_TRUE(at::equal(at::cat(tokens, 1), batch.inputs));
  const at::Tensor joined = at::cat(targets, 1);
  EXPECT_TRUE(at::equal(joined.narrow(1, 16, 32), batch.targets.narrow(1, 16, 32)));
  EXPECT_TRUE(joined.narrow(1, 0, 16).eq(base::kIgnoreTarget).all().item<bool>());
}

TEST(Algorithmic, TheLastSegmentMayBeShorter) {
  const AlgorithmicTask task({.task = "copy", .num_symbols = 16}, 1);
  const SampleBatch batch = task.batch(Part::train, 0, 2);
  EXPECT_EQ(segment_length(48, 5), 10);
  const auto segments = cut_segments(batch, 10);
  ASSERT_EQ(segments.size(), 5U);
  EXPECT_EQ(segments.back().input.tokens.size(1), 8);
  EXPECT_EQ(segments.back().num_targets, 16);
  std::vector<at::Tensor> tokens;
  for (const Batch& segment : segments) tokens.push_back(segment.input.tokens);
  EXPECT_TRUE(at::equal(at::cat(tokens, 1), batch.inputs));
  // 49 segments of a sample of 48, and 31 of one length: 24 segments of 2 are the nearest.
  const AlgorithmicOptions options{.task = "copy", .num_symbols = 16};
  const auto cut_into = [&](int64_t num_segments) {
    AlgorithmicOptions cut = options;
    cut.answer.num_segments = num_segments;
    base::check_options(cut);
  };
  cut_into(5);
  EXPECT_INPUT_ERROR(
      cut_into(49),
      "'num_segments': a sample of 48 tokens cannot be cut into 49 equal segments; segments of 1 give 48");
  EXPECT_INPUT_ERROR(cut_into(31), "segments of 2 give 24");
}

TEST(Algorithmic, BadOptions) {
  EXPECT_INPUT_ERROR(AlgorithmicTask({.task = "sort"}, 0), "task");
  EXPECT_INPUT_ERROR(AlgorithmicTask({.task = "copy", .num_symbols = 0}, 0), "num_symbols");
  EXPECT_INPUT_ERROR(AlgorithmicTask({.task = "retrieval", .num_pairs = 11}, 0), "num_pairs");
  EXPECT_INPUT_ERROR(AlgorithmicTask({.task = "retrieval", .num_symbols = 5}, 0),
                     "'num_symbols': has no effect with task = \"retrieval\"; leave it out, found 5");
  EXPECT_INPUT_ERROR(AlgorithmicTask({.task = "quadratic", .alphabet = 5}, 0), "'alphabet': has no effect");
  EXPECT_INPUT_ERROR(AlgorithmicTask({.task = "copy", .num_pairs = 5}, 0), "'num_pairs': has no effect");
  EXPECT_INPUT_ERROR(AlgorithmicTask({.task = "reverse", .num_keys = 5}, 0), "'num_keys': has no effect");
}

TEST(Algorithmic, SamplesAsLines) {
  const AlgorithmicTask task({.task = "copy", .num_symbols = 2, .alphabet = 1}, 0);
  std::ostringstream out;
  write_samples(task, Part::train, 2, out);
  EXPECT_EQ(out.str(),
            "input\ttarget\tanswer\n2 2 1 2 2 2\t2 1 2 2 2 2\t0 0 1 1 1 1\n2 2 1 2 2 2\t2 1 2 2 2 2\t0 0 1 1 1 1\n");
}

}  // namespace
}  // namespace mnemo::data
