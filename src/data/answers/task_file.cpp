#include "data/answers/task_file.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "base/error.h"
#include "base/printable.h"
#include "data/answers/words.h"

namespace mnemo::data {
namespace {

constexpr std::array<const char*, 3> kColumns = {"input", "target", "answer"};

/// The columns of a line, and their start (in bytes, from 1).
struct Table {
  std::vector<std::string_view> text;
  std::vector<int64_t> begin;
};

Table split_cells(std::string_view line) {
  Table cells;
  for (size_t at = 0;;) {
    const size_t tab = line.find('\t', at);
    cells.text.push_back(line.substr(at, tab == std::string_view::npos ? tab : tab - at));
    cells.begin.push_back(static_cast<int64_t>(at) + 1);
    if (tab == std::string_view::npos || cells.text.size() > kColumns.size()) return cells;
    at = tab + 1;
  }
}

}  // namespace

void TaskSamples::add_numbers(const LinePlace& place, std::string_view text, int64_t column, const char* name,
                              std::vector<int32_t>& out) const {
  const bool answer = name == kColumns[2];
  const int64_t most = answer ? 2 : kMaxTokens - 1;
  each_word(text, [&](std::string_view word, int64_t at) {
    int64_t number = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    base::require(error == std::errc() && end == word.data() + word.size() && number >= 0 && number <= most,
                  "{}: column '{}': expected integers from 0 to {} separated by spaces, found '{}'",
                  place.at(column + at), name, most, base::printable(word, 40));
    out.push_back(static_cast<int32_t>(number));
  });
}

void TaskSamples::add_line(const LinePlace& place, std::string_view line) {
  const Table cells = split_cells(line);
  if (place.line == 1) {
    for (size_t i = 0; i < std::max(kColumns.size(), cells.text.size()); ++i) {
      const bool there = i < cells.text.size(), wanted = i < kColumns.size();
      const int64_t column = there ? cells.begin[i] : static_cast<int64_t>(line.size()) + 1;
      base::require(there && wanted && cells.text[i] == kColumns[i],
                    "{}: expected the columns input, target and answer, separated by tabs, found {} as column {}",
                    place.at(column), there ? "'" + base::printable(cells.text[i], 40) + "'" : std::string("nothing"),
                    i + 1);
    }
    return;
  }
  base::require(
      cells.text.size() == kColumns.size(),
      "{}: expected 3 columns separated by tabs (input, target, answer), found {}",
      place.at(cells.text.size() > kColumns.size() ? cells.begin.back() : static_cast<int64_t>(line.size()) + 1),
      cells.text.size() > kColumns.size() ? "more" : std::to_string(cells.text.size()));
  int64_t length = 0, answers = 0;
  for (size_t i = 0; i < kColumns.size(); ++i) {
    numbers_.clear();
    add_numbers(place, cells.text[i], cells.begin[i], kColumns[i], numbers_);
    const auto count = static_cast<int64_t>(numbers_.size());
    fingerprint_.mix(static_cast<uint64_t>(count));
    for (const int32_t number : numbers_) fingerprint_.mix(static_cast<uint64_t>(number));
    if (i == 0) {
      base::require(count > 0, "{}: column 'input': expected tokens, found none", place.at(cells.begin[i]));
      length = count;
    }
    base::require(count == length, "{}: column '{}': expected as many numbers as 'input', {}, found {}",
                  place.at(cells.begin[i]), kColumns[i], length, count);
    if (i == 2) {
      answers = count - std::count(numbers_.begin(), numbers_.end(), 0);
      base::require(answers > 0, "{}: column 'answer': expected a 1 where the target counts, found none",
                    place.at(cells.begin[i]));
      answer_.insert(answer_.end(), numbers_.begin(), numbers_.end());
    } else {
      vocabulary_size_ = std::max<int64_t>(vocabulary_size_, *std::max_element(numbers_.begin(), numbers_.end()) + 1);
      std::vector<int32_t>& all = i == 0 ? inputs_ : targets_;
      all.insert(all.end(), numbers_.begin(), numbers_.end());
    }
  }
  ends_.push_back(static_cast<int64_t>(answer_.size()));
  longest_ = std::max(longest_, length);
  longest_answer_ = std::max(longest_answer_, answers);
}

void TaskSamples::finish(std::string_view file) const {
  base::require(size() > 0, "{}: expected samples below a line with the columns input, target and answer, found none",
                file);
}

void TaskSamples::require_answers_read_back(std::string_view file) const {
  int64_t begin = 0;
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t end = ends_[static_cast<size_t>(i)];
    for (int64_t t = begin; t + 1 < end; ++t) {
      const auto at = static_cast<size_t>(t);
      // The first line of the file names the columns.
      base::require(answer_[at] == 0 || inputs_[at + 1] == targets_[at],
                    "{}:{}: column 'input': expected {} as number {}, the target before it, which belongs to the "
                    "answer that a model reads back, found {}; or set data.decoding = \"teacher_forced\"",
                    file, i + 2, targets_[at], t - begin + 2, inputs_[at + 1]);
    }
    begin = end;
  }
}

SampleBatch TaskSamples::batch(const std::vector<int64_t>& samples) const {
  const auto range = [&](int64_t i) {
    return std::pair(i == 0 ? 0 : ends_[static_cast<size_t>(i - 1)], ends_[static_cast<size_t>(i)]);
  };
  int64_t length = 0, least = INT64_MAX;
  for (const int64_t i : samples) {
    const auto [begin, end] = range(i);
    length = std::max(length, end - begin);
    least = std::min(least, end - begin);
  }
  const auto rows = static_cast<int64_t>(samples.size());
  SampleBatch out{at::zeros({rows, length}, at::kLong), at::zeros({rows, length}, at::kLong),
                  at::zeros({rows, length}, at::kBool), at::zeros({rows, length}, at::kBool)};
  if (least < length) out.valid = at::zeros({rows, length}, at::kBool);
  for (int64_t b = 0; b < rows; ++b) {
    const auto [begin, end] = range(samples[static_cast<size_t>(b)]);
    const int64_t row = b * length;
    for (int64_t i = begin, at = row; i < end; ++i, ++at) {
      const auto from = static_cast<size_t>(i);
      out.inputs.mutable_data_ptr<int64_t>()[at] = inputs_[from];
      out.targets.mutable_data_ptr<int64_t>()[at] = targets_[from];
      out.answer.mutable_data_ptr<bool>()[at] = answer_[from] != 0;
      out.scored.mutable_data_ptr<bool>()[at] = answer_[from] == 1;
      if (out.valid.defined()) out.valid.mutable_data_ptr<bool>()[at] = true;
    }
  }
  return out;
}

TaskSamples read_task_file(const std::string& path) {
  TaskSamples samples;
  for_each_line(text::TextSource(path).without_byte_order_mark(), TaskSamples::kLongestLine,
                [&](const LinePlace& place, std::string_view line) { samples.add_line(place, line); });
  samples.finish(path);
  return samples;
}

namespace {

TaskSamples read_train(const TaskFileOptions& options) {
  base::require(!options.train.empty(),
                "data.train: expected a file of samples, found none; use --set data.train=FILE");
  return read_task_file(options.train);
}

std::unique_ptr<TaskSamples> read_if_named(const std::string& path) {
  return path.empty() ? nullptr : std::make_unique<TaskSamples>(read_task_file(path));
}

}  // namespace

TaskFiles::TaskFiles(const TaskFileOptions& options, bool shuffle, int64_t seed)
    : name_(options.train),
      train_(read_train(options)),
      valid_(read_if_named(options.valid)),
      test_(read_if_named(options.test)),
      order_(train_.size(), shuffle, seed) {
  // Nothing is read back where every answer is one symbol.
  if (options.answer.decoding == AnswerOptions::Decoding::greedy && answer_length() > 1)
    require_answers_read_back(options);
}

void TaskFiles::require_answers_read_back(const TaskFileOptions& options) const {
  train_.require_answers_read_back(options.train);
  if (valid_) valid_->require_answers_read_back(options.valid);
  if (test_) test_->require_answers_read_back(options.test);
}

const TaskSamples* TaskFiles::samples(Part part) const {
  return part == Part::train ? &train_ : part == Part::valid ? valid_.get() : test_.get();
}

std::optional<int64_t> TaskFiles::size(Part part) const {
  const TaskSamples* of_part = samples(part);
  return of_part == nullptr ? 0 : of_part->size();
}

int64_t TaskFiles::largest(int64_t (TaskSamples::*of)() const) const {
  int64_t found = (train_.*of)();
  for (const auto& part : {valid_.get(), test_.get()}) {
    if (part != nullptr) found = std::max(found, (part->*of)());
  }
  return found;
}

SampleBatch TaskFiles::batch(Part part, int64_t number, int64_t batch_size) const {
  const TaskSamples* of_part = samples(part);
  base::require(batch_size > 0 && number >= 0 && of_part != nullptr, "{}: batch {} of {} samples", name_, number,
                batch_size);
  std::vector<int64_t> rows;
  for (int64_t i = number * batch_size; i < (number + 1) * batch_size; ++i) {
    if (part == Part::train) {
      rows.push_back(order_[i]);
    } else if (i < of_part->size()) {
      rows.push_back(i);
    }
  }
  base::ensure(!rows.empty(), "{}: batch {} of {} samples is past the end", name_, number, batch_size);
  return of_part->batch(rows);
}

}  // namespace mnemo::data
