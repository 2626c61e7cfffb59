#pragma once

#include <ATen/core/Tensor.h>

#include "core/head.h"
#include "layers/parts.h"

namespace mnemo::models {

/// The rows that a head reads, StepResult.hidden, of hidden states [B,Q,D], of which `count` rows from `first` on are
/// the tokens or the image; without a head all of these. valid [B,count]: for a mean; undefined = no padding.
inline at::Tensor hidden_rows(const core::Head* head, const at::Tensor& hidden, int64_t first, int64_t count,
                              const at::Tensor& valid) {
  const core::HeadInput reads = head == nullptr ? core::HeadInput::tokens : head->input();
  if (reads == core::HeadInput::first_row || reads == core::HeadInput::first_token) return hidden.narrow(1, 0, 1);
  const at::Tensor rows = count == hidden.size(1) ? hidden : hidden.narrow(1, first, count);
  return reads == core::HeadInput::tokens ? rows : layers::mean_rows(rows, valid);
}

}  // namespace mnemo::models
