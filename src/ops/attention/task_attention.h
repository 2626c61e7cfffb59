#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace mnemo::ops {

/// The rows that one task's class row sees in addition to the existing rows: class rows by index, including its own,
/// and memory rows [first, last).
struct TaskSight {
  std::vector<int64_t> classes;
  std::vector<std::pair<int64_t, int64_t>> memories;
};

/// Keys and values of one attention with several tasks.
/// B images, H heads, T old rows, K tasks with a class row, M memory rows of all tasks, d head width.
///   old_k, old_v        [B,H,T,d]
///   class_k, class_v    [B,H,K,d]
///   memory_k, memory_v  [H,M,d], the same for every image; undefined = none
struct TaskKeys {
  at::Tensor old_k, old_v, class_k, class_v, memory_k, memory_v;
};

/// The attention mask over [existing rows; class rows; memory]: bool [K, T+K+M]; source: Sandler et al. 2022, table 1.
at::Tensor task_mask(const std::vector<TaskSight>& sights, int64_t old_rows, int64_t memory_rows);

/// Softmax attention of the tasks' class rows, without a mask and without invisible keys: every class row reads the
/// existing keys and then those it sees.
///   q [B,H,K,d] -> o [B,H,K,d]
/// Row k depends, bit for bit, only on the existing rows and the rows that task k sees, not on other tasks or their
/// order. Float on the CPU; no derivatives. Returns o [B,H,K,d], whose memory is [B,K,H,d].
at::Tensor task_attention(const at::Tensor& q, const TaskKeys& keys, const std::vector<TaskSight>& sights,
                          double scale);

}  // namespace mnemo::ops
