#include "ops/attention/task_attention.h"

#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/heads.h"
#include "ops/decode/decode_rows.h"
#include "ops/row_kernels.h"

namespace mnemo::ops {
namespace {

/// The rows of heads [..,n,d] in the layout of the decoding loops: contiguous, zero-padded to a whole step.
at::Tensor padded_rows(const at::Tensor& heads) {
  const int64_t extra = (kHeadStep - heads.size(-1) % kHeadStep) % kHeadStep;
  return extra == 0 ? heads.contiguous() : at::constant_pad_nd(heads, {0, extra}).contiguous();
}

int64_t memory_rows(const TaskKeys& keys) { return keys.memory_k.defined() ? keys.memory_k.size(1) : 0; }

/// One head of one image.
struct Head {
  const float *old_k, *old_v, *class_k, *class_v, *memory_k, *memory_v;
  int64_t old_rows, width;
};

/// o [width] = the output of one class row; scores: buffer for all keys it sees.
void read(const Head& head, const float* q, const TaskSight& sight, float* scores, float* part, float* o) {
  const int64_t width = head.width;
  int64_t count = head.old_rows;
  key_scores<float>(q, nullptr, head.old_k, nullptr, head.old_rows, width, scores);
  const auto score = [&](const float* keys, int64_t first, int64_t last) {
    key_scores<float>(q, nullptr, keys + first * width, nullptr, last - first, width, scores + count);
    count += last - first;
  };
  for (const int64_t row : sight.classes) score(head.class_k, row, row + 1);
  for (const auto& [first, last] : sight.memories) score(head.memory_k, first, last);
  const float shift = add_then_max<float>(scores, nullptr, count);
  const float share = 1.0f / exp_then_sum(scores, count, shift);
  multiply(scores, count, share);
  weigh_values<float>(scores, head.old_v, head.old_rows, width, o);
  int64_t at = head.old_rows;
  const auto weigh = [&](const float* values, int64_t first, int64_t last) {
    weigh_values<float>(scores + at, values + first * width, last - first, width, part);
    accumulate(o, part, width);
    at += last - first;
  };
  for (const int64_t row : sight.classes) weigh(head.class_v, row, row + 1);
  for (const auto& [first, last] : sight.memories) weigh(head.memory_v, first, last);
}

}  // namespace

at::Tensor task_mask(const std::vector<TaskSight>& sights, int64_t old_rows, int64_t memory_rows) {
  const auto tasks = static_cast<int64_t>(sights.size());
  at::Tensor mask = at::zeros({tasks, old_rows + tasks + memory_rows}, at::kBool);
  mask.narrow(1, 0, old_rows).fill_(true);
  for (int64_t k = 0; k < tasks; ++k) {
    const TaskSight& sight = sights[static_cast<size_t>(k)];
    for (const int64_t row : sight.classes) mask[k][old_rows + row] = true;
    for (const auto& [first, last] : sight.memories)
      mask[k].narrow(0, old_rows + tasks + first, last - first).fill_(true);
  }
  return mask;
}

at::Tensor task_attention(const at::Tensor& q, const TaskKeys& keys, const std::vector<TaskSight>& sights,
                          double scale) {
  base::ensure(q.is_cpu() && q.scalar_type() == at::kFloat, "task_attention is for float on the CPU, found {} on {}",
               at::toString(q.scalar_type()), q.device().str());
  base::ensure(q.size(2) == static_cast<int64_t>(sights.size()), "{} class rows, but {} sights", q.size(2),
               sights.size());
  const int64_t batch = q.size(0), num_heads = q.size(1), tasks = q.size(2),
                width = (q.size(3) + kHeadStep - 1) / kHeadStep * kHeadStep;
  const int64_t old_rows = keys.old_k.size(2), memory = memory_rows(keys);
  const at::Tensor queries = padded_rows(q * scale);
  const at::Tensor old_k = padded_rows(keys.old_k), old_v = padded_rows(keys.old_v);
  const at::Tensor class_k = padded_rows(keys.class_k), class_v = padded_rows(keys.class_v);
  const at::Tensor memory_k = memory > 0 ? padded_rows(keys.memory_k) : at::Tensor(),
                   memory_v = memory > 0 ? padded_rows(keys.memory_v) : at::Tensor();
  at::Tensor o = empty_heads(q, tasks, q.size(3));
  const Heads<float> out = heads_of<float>(o);
  const auto rows = [](const at::Tensor& tensor, int64_t at) { return tensor.const_data_ptr<float>() + at; };
  at::parallel_for(0, batch * num_heads, 1, [&](int64_t first, int64_t last) {
    std::vector<float> scores(static_cast<size_t>(old_rows + tasks + memory)), part(static_cast<size_t>(width)),
        sum(part);
    for (int64_t i = first; i < last; ++i) {
      const int64_t b = i / num_heads, h = i % num_heads;
      const Head head{rows(old_k, i * old_rows * width),
                      rows(old_v, i * old_rows * width),
                      rows(class_k, i * tasks * width),
                      rows(class_v, i * tasks * width),
                      memory > 0 ? rows(memory_k, h * memory * width) : nullptr,
                      memory > 0 ? rows(memory_v, h * memory * width) : nullptr,
                      old_rows,
                      width};
      for (int64_t k = 0; k < tasks; ++k) {
        read(head, rows(queries, (i * tasks + k) * width), sights[static_cast<size_t>(k)], scores.data(), part.data(),
             sum.data());
        std::copy_n(sum.data(), q.size(3), out.row(b, h, k));
      }
    }
  });
  return o;
}

}  // namespace mnemo::ops
