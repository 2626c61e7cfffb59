#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/option_rules.h"
#include "data/answers/samples.h"
#include "data/epoch_order.h"
#include "data/text/lines.h"

namespace mnemo::data {

/// Samples from a file, in the format written by write_samples and `mnemo data`.
class TaskSamples {
 public:
  static constexpr int64_t kMaxTokens = 1 << 24;    ///< maximum number of distinct tokens
  static constexpr int64_t kLongestLine = 1 << 26;  ///< bytes

  /// Parses one line of the file; the first must be "input<TAB>target<TAB>answer". Throws InputError that names file,
  /// line and column.
  void add_line(const LinePlace& place, std::string_view line);
  /// Throws InputError for a file without samples.
  void finish(std::string_view file) const;

  /// Throws InputError that names file and line unless every input behind a target of the answer is that target: a
  /// model that reads its own answer back replaces that input.
  void require_answers_read_back(std::string_view file) const;

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  int64_t length() const { return longest_; }
  int64_t answer_length() const { return longest_answer_; }
  /// A hash of all three columns.
  uint64_t fingerprint() const { return fingerprint_.value(); }
  /// The largest token plus one.
  int64_t vocabulary_size() const { return vocabulary_size_; }
  /// A batch of the samples with these indices; shorter ones are padded with 0 on the right.
  SampleBatch batch(const std::vector<int64_t>& samples) const;

 private:
  void add_numbers(const LinePlace& place, std::string_view line, int64_t column, const char* name,
                   std::vector<int32_t>& out) const;

  // of all samples, concatenated
  std::vector<int32_t> inputs_, targets_;
  std::vector<uint8_t> answer_;
  std::vector<int64_t> ends_;
  std::vector<int32_t> numbers_, column_;  // of the current line
  int64_t longest_ = 0, longest_answer_ = 0, vocabulary_size_ = 0;
  base::Fingerprint fingerprint_;
};

TaskSamples read_task_file(const std::string& path);

/// `[data] type = "task_file"`.
struct TaskFileOptions {
  std::string train;
  std::string valid;
  std::string test;
  AnswerOptions answer = {};

  template <class V>
  void visit(V&& v) {
    v("train", train,
      "training samples: a table with the columns input, target and answer, as printed by `mnemo data copy`");
    v("valid", valid, "validation samples; empty: none");
    v("test", test, "test samples; empty: none");
    answer.visit(v);
  }
};

/// The parts of a task, one file each.
class TaskFiles final : public SampleSource {
 public:
  /// Reads the files. Throws InputError that names file, line and column, or data.train if it is missing; with
  /// decoding = "greedy" and answers of several symbols also for an answer that is not read back.
  TaskFiles(const TaskFileOptions& options, bool shuffle, int64_t seed);

  std::string name() const override { return name_; }
  SampleBatch batch(Part part, int64_t number, int64_t batch_size) const override;
  std::optional<int64_t> size(Part part) const override;
  uint64_t fingerprint() const override { return train_.fingerprint(); }
  int64_t vocabulary_size() const override { return largest(&TaskSamples::vocabulary_size); }
  int64_t length() const override { return largest(&TaskSamples::length); }
  int64_t answer_length() const override { return largest(&TaskSamples::answer_length); }

 private:
  void require_answers_read_back(const TaskFileOptions& options) const;
  const TaskSamples* samples(Part part) const;
  int64_t largest(int64_t (TaskSamples::*of)() const) const;

  std::string name_;
  TaskSamples train_;
  std::unique_ptr<TaskSamples> valid_, test_;
  mutable EpochOrder order_;  // caches the epoch's order
};

}  // namespace mnemo::data
