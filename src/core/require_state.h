#pragma once

#include <ATen/core/Tensor.h>

#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace mnemo::core {

/// Throws ShapeError unless a tensor of the state has that shape. If it does not, the state belongs to another model or
/// batch.
inline void require_state(const char* who, const at::Tensor& tensor, at::IntArrayRef expected) {
  if (tensor.defined() && tensor.sizes() == expected) return;
  throw base::ShapeError(fmt::format(
      "[{}] expected a state of [{}], found {}; is it of another model or another batch?", who,
      fmt::join(expected, ","), tensor.defined() ? fmt::format("[{}]", fmt::join(tensor.sizes(), ",")) : "none"));
}

/// Throws InputError unless the state of a layer context has rows for exactly the layers that it serves. rows: one
/// entry per layer of the model, undefined for layers that it does not serve.
inline void require_layers(std::string_view who, const std::vector<at::Tensor>& rows, int64_t num_layers,
                           const std::vector<int64_t>& served) {
  std::vector<int64_t> found;
  for (size_t layer = 0; layer < rows.size(); ++layer) {
    if (rows[layer].defined()) found.push_back(static_cast<int64_t>(layer));
  }
  base::require(static_cast<int64_t>(rows.size()) == num_layers && found == served,
                "[{}] expected a state of {} layers with rows for [{}], found one of {} with rows for [{}]; is it of "
                "another model?",
                who, num_layers, fmt::join(served, ","), rows.size(), fmt::join(found, ","));
}

/// Throws InputError unless a state has as many rows as the segment that is open leaves.
inline void require_rows(std::string_view who, int64_t expected, int64_t found) {
  base::require(found == expected, "[{}] the state's rows contradict one another: expected {}, found {}", who, expected,
                found);
}

/// Throws InputError unless a sequence can have so many tokens.
inline void require_position(std::string_view who, int64_t position) {
  constexpr int64_t kMost = int64_t{1} << 48;
  base::require(position >= 0 && position <= kMost, "[{}] expected a position of 0 to {}, found {}", who, kMost,
                position);
}

}  // namespace mnemo::core
