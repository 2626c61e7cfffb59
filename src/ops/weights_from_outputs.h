#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace mnemo::ops {

/// Values [B,H,S,d] that replace an attention's own v; empty: its own.
using ReplaceValues = std::function<at::Tensor(const at::Tensor& v)>;

inline at::Tensor replaced(const ReplaceValues& replace, const at::Tensor& v) { return replace ? replace(v) : v; }

/// The weights of an attention whose outputs are linear in its values: with unit vectors as values, d rows at a time,
/// the outputs are the weight of each row.
///   run(replace) -> [B,H,T,d], the outputs with values replace(v)
/// Returns [B,H,T,S].
template <class Run>
at::Tensor weights_from_outputs(const Run& run) {
  std::vector<at::Tensor> weights;
  int64_t first = 0, rows = 0, count = 0;
  do {
    const at::Tensor outputs = run([&](const at::Tensor& v) {
      rows = v.size(2);
      count = std::min(v.size(3), rows - first);
      const at::Tensor units = at::zeros_like(v, at::MemoryFormat::Contiguous);
      units.narrow(2, first, count).narrow(3, 0, count).diagonal(0, 2, 3).fill_(1.0);
      return units;
    });
    weights.push_back(outputs.narrow(3, 0, count));
    first += count;
  } while (first < rows);
  return at::cat(weights, 3);
}

}  // namespace mnemo::ops
