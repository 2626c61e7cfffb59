#include "data/answers/task_file.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "data/answers/algorithmic.h"
#include "tests/support/text_file.h"

namespace mnemo::data {
namespace {

using test::TextFile;

std::string header(const std::string& rest) { return "input\ttarget\tanswer\n" + rest; }

TEST(TaskFile, WhatIsWrittenIsReadAgain) {
  for (const AlgorithmicOptions& options :
       {AlgorithmicOptions{.task = "copy", .num_symbols = 5}, AlgorithmicOptions{.task = "retrieval"},
        AlgorithmicOptions{.task = "quadratic"}}) {
    const AlgorithmicTask task(options, 3);
    std::ostringstream text;
    write_samples(task, Part::train, 7, text);
    const TextFile file(text.str());
    const TaskSamples samples = read_task_file(file.path());
    ASSERT_EQ(samples.size(), 7);
    EXPECT_EQ(samples.length(), task.length());
    EXPECT_EQ(samples.answer_length(), task.answer_length());
    EXPECT_LE(samples.vocabulary_size(), task.vocabulary_size());
    const SampleBatch read = samples.batch({4, 1});
    for (int64_t b = 0; b < 2; ++b) {
      const SampleBatch made = task.batch(Part::train, b == 0 ? 4 : 1, 1);
      EXPECT_TRUE(at::equal(read.inputs[b], made.inputs[0]));
      EXPECT_TRUE(at::equal(read.targets[b], made.targets[0]));
      EXPECT_TRUE(at::equal(read.answer[b], made.answer[0]));
      EXPECT_TRUE(at::equal(read.scored[b], made.scored[0]));
    }
    EXPECT_FALSE(read.valid.defined());
  }
}

TEST(TaskFile, ShorterSamplesArePaddedOnTheRight) {
  const TextFile file(header("5 6 7\t6 7 8\t0 1 2\r\n9\t4\t1\n"));
  const SampleBatch batch = read_task_file(file.path()).batch({0, 1});
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(batch.valid.sum(1)[1].item<int64_t>(), 1);
  EXPECT_TRUE(batch.valid[1][0].item<bool>());
  EXPECT_EQ(batch.targets[1][0].item<int64_t>(), 4);
  EXPECT_EQ(batch.answer.sum().item<int64_t>(), 3);
  EXPECT_EQ(batch.scored.sum().item<int64_t>(), 2);
  std::ostringstream again;
  TaskFileOptions options;
  options.train = file.path();
  write_samples(TaskFiles(options, false, 0), Part::train, 2, again);
  EXPECT_EQ(again.str(), header("5 6 7\t6 7 8\t0 1 2\n9\t4\t1\n"));
}

TEST(TaskFile, MistakesAreToldByFileLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "expected samples below a line"},
      {header(""), "expected samples below a line"},
      {"input\ttarget\n1\t1\n",
       ":1:13: expected the columns input, target and answer, separated by tabs, found nothing as column 3"},
      {"input\tanswer\ttarget\n",
       ":1:7: expected the columns input, target and answer, separated by tabs, found 'answer' as column 2"},
      {"input\ttarget\tanswer\tmore\n",
       ":1:21: expected the columns input, target and answer, separated by tabs, found 'more' as column 4"},
      {header("1 2\t3 4\n"), ":2:8: expected 3 columns separated by tabs (input, target, answer), found 2"},
      {header("1 2\t3 4\t0 1\t7\n"), ":2:13: expected 3 columns separated by tabs (input, target, answer), found more"},
      {header("1 2\t3 x\t0 1\n"),
       ":2:7: column 'target': expected integers from 0 to 16777215 separated by spaces, found 'x'"},
      {header("1 -2\t3 4\t0 1\n"), ":2:3: column 'input': expected integers"},
      {header("1 2\t3 16777216\t0 1\n"),
       ":2:7: column 'target': expected integers from 0 to 16777215 separated by spaces, found '16777216'"},
      {header("1 2\t3 4\t0 3\n"), ":2:11: column 'answer': expected integers from 0 to 2"},
      {header("1 2\t3\t0 1\n"), ":2:5: column 'target': expected as many numbers as 'input', 2, found 1"},
      {header("1 2\t3 4\t0 1 1\n"), ":2:9: column 'answer': expected as many numbers as 'input', 2, found 3"},
      {header("1\t2\t1\n1 2\t3 4\t0 0\n"), ":3:9: column 'answer': expected a 1 where the target counts, found none"},
      {header("\t\t\n"), ":2:1: column 'input': expected tokens, found none"},
  };
  for (const auto& [text, message] : cases) {
    const TextFile file(text);
    const std::string found = test::input_error_of([&] { read_task_file(file.path()); });
    EXPECT_NE(found.find(message), std::string::npos) << "expected: " << message << "\nfound: " << found;
    EXPECT_TRUE(found.starts_with(file.path())) << found;
  }
  EXPECT_INPUT_ERROR(TaskFiles({}, false, 0), "data.train: expected a file of samples, found none");
}

// A model that reads its own answer back would read something else than the file says.
TEST(TaskFile, AnAnswerThatIsNotReadBackGoesWithTeacherForcing) {
  const TextFile good(header("2 7 4 5\t3 4 5 1\t0 1 1 0\n3 4\t4 9\t1 1\n")),
      bad(header("3 4 5\t4 5 6\t1 1 1\n1 3 9 9\t3 4 5 6\t0 1 1 1\n")), one(header("3 9 9\t4 5 6\t1 0 0\n"));
  TaskFileOptions options;
  options.train = bad.path();
  EXPECT_INPUT_ERROR(TaskFiles(options, false, 0),
                     bad.path() + ":3: column 'input': expected 4 as number 3, the target before it");
  EXPECT_INPUT_ERROR(TaskFiles(options, false, 0), "found 9; or set data.decoding = \"teacher_forced\"");
  options.answer.decoding = AnswerOptions::Decoding::teacher_forced;
  EXPECT_EQ(TaskFiles(options, false, 0).size(Part::train), 2);
  options.answer.decoding = AnswerOptions::Decoding::greedy;
  options.train = one.path();
  EXPECT_EQ(TaskFiles(options, false, 0).size(Part::train), 1) << "an answer of one symbol is not read back";
  options.test = bad.path();
  EXPECT_INPUT_ERROR(TaskFiles(options, false, 0), one.path() + ":2: column 'input': expected 4");
  options.train = good.path();
  EXPECT_INPUT_ERROR(TaskFiles(options, false, 0), bad.path() + ":3: ");
  options.test.clear();
  EXPECT_EQ(TaskFiles(options, false, 0).size(Part::train), 2);
}

// A training may only go on with equal data: all three columns of the file count.
TEST(TaskFile, TheFingerprintIsOfAllColumns) {
  const auto of = [](const std::string& lines) {
    const TextFile file(header(lines));
    TaskFileOptions options;
    options.train = file.path();
    return TaskFiles(options, false, 0).fingerprint();
  };
  const uint64_t usual = of("5 6\t6 7\t0 1\n");
  EXPECT_EQ(usual, of("5 6\t6 7\t0 1\n"));
  for (const char* other : {"4 6\t6 7\t0 1\n", "5 6\t6 8\t0 1\n", "5 6\t6 7\t0 2\n", "5 6\t6 7\t0 1\n5\t6\t1\n"})
    EXPECT_NE(of(other), usual) << other;
}

TEST(TaskFile, TrainingGoesRoundAndHeldOutSamplesEnd) {
  std::string lines;
  for (int64_t i = 1; i <= 5; ++i) lines += fmt::format("{}\t{}\t1\n", i, i);
  const TextFile file(header(lines)), valid(header("7\t7\t1\n8\t8\t1\n9\t9\t1\n"));
  TaskFileOptions options;
  options.train = file.path();
  options.valid = valid.path();
  const TaskFiles plain(options, false, 0), shuffled(options, true, 1);
  EXPECT_EQ(plain.size(Part::train), 5);
  EXPECT_EQ(plain.size(Part::test), 0);
  EXPECT_EQ(plain.vocabulary_size(), 10);
  EXPECT_EQ(plain.batch(Part::train, 2, 2).inputs[1].item<int64_t>(), 1);
  EXPECT_EQ(plain.batch(Part::valid, 1, 2).inputs.size(0), 1);
  std::vector<int64_t> orders[2];
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 5; ++i) {
      orders[epoch].push_back(shuffled.batch(Part::train, epoch * 5 + i, 1).inputs[0].item<int64_t>());
      seen.insert(orders[epoch].back());
    }
    EXPECT_EQ(seen.size(), 5U);
  }
  EXPECT_NE(orders[0], orders[1]);
  // A batch is determined by its number alone.
  EXPECT_EQ(shuffled.batch(Part::train, 3, 1).inputs[0].item<int64_t>(), orders[0][3]);
}

}  // namespace
}  // namespace mnemo::data
