#include "data/answers/samples.h"

#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include "base/error.h"
#include "base/ignore_target.h"

namespace mnemo::data {
namespace {

std::string numbers_text(const at::Tensor& row) {
  const at::Tensor values = row.contiguous();
  std::string text;
  for (int64_t i = 0; i < values.numel(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : " ", values.const_data_ptr<int64_t>()[i]);
  return text;
}

}  // namespace

int64_t segment_length(int64_t length, int64_t num_segments) { return (length + num_segments - 1) / num_segments; }

void AnswerOptions::require_cut(int64_t length, const base::Where& where) const {
  where.require(curriculum.empty() == (curriculum_steps == 0), "curriculum_steps",
                "expected curriculum and curriculum_steps together, found one of them");
  where.require(curriculum.empty() || num_segments > 0, "curriculum",
                "expected num_segments, which it leads to, found none");
  const auto require = [&](const char* key, int64_t segments) {
    const int64_t size = segment_length(length, segments), count = (length + size - 1) / size;
    where.require(count == segments, key,
                  "a sample of {} tokens cannot be cut into {} equal segments; segments of {} give {}", length,
                  segments, size, count);
  };
  if (num_segments > 0) require("num_segments", num_segments);
  for (const int64_t segments : curriculum) require("curriculum", segments);
}

int64_t AnswerOptions::training_segment(int64_t length, int64_t size, int64_t step) const {
  if (curriculum.empty() || step / curriculum_steps >= static_cast<int64_t>(curriculum.size())) return size;
  return segment_length(length, curriculum[static_cast<size_t>(step / curriculum_steps)]);
}

std::vector<Batch> cut_segments(const SampleBatch& batch, int64_t segment_size) {
  base::ensure(segment_size > 0, "segments of {} tokens", segment_size);
  const int64_t rows = batch.inputs.size(0), length = batch.inputs.size(1);
  const at::Tensor targets = batch.targets.masked_fill(batch.answer.logical_not(), base::kIgnoreTarget);
  std::vector<Batch> segments;
  for (int64_t at = 0; at < length; at += segment_size) {
    const int64_t count = std::min(segment_size, length - at);
    const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(1, at, count).contiguous(); };
    Batch segment;
    segment.input.tokens = part(batch.inputs);
    if (batch.valid.defined()) segment.input.valid = part(batch.valid);
    segment.targets = TokenTargets{part(targets)};
    segment.reset = at::full({rows}, at == 0, at::kBool);
    segment.num_targets = batch.answer.narrow(1, at, count).sum().item<int64_t>();
    segments.push_back(std::move(segment));
  }
  return segments;
}

at::Tensor answer_column(const SampleBatch& batch, int64_t row) {
  const at::Tensor answer = batch.answer[row];
  return answer.to(at::kLong).add(answer.logical_and(batch.scored[row].logical_not()).to(at::kLong));
}

void write_samples(const SampleSource& source, Part part, int64_t count, std::ostream& out) {
  out << "input\ttarget\tanswer\n";
  for (int64_t i = 0; i < count; ++i) {
    // One batch per sample: sample i does not depend on `count`.
    const SampleBatch batch = source.batch(part, i, 1);
    const int64_t length = batch.valid.defined() ? batch.valid[0].sum().item<int64_t>() : batch.inputs.size(1);
    const auto column = [&](const at::Tensor& row) { return numbers_text(row.narrow(0, 0, length)); };
    out << column(batch.inputs[0]) << '\t' << column(batch.targets[0]) << '\t' << column(answer_column(batch, 0))
        << '\n';
  }
}

}  // namespace mnemo::data
