#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/mode.h"

namespace mnemo::core {

// Random choices that are made anew in training (a control's slots, random projections) are a number that a sequence
// carries in its state, from which they follow by a fixed rule. So a segment that runs again, a resumed training and a
// decoder make the same choices.

/// A sequence whose draw has not been made, and the draw of evaluation, which is always the same.
inline constexpr int64_t kNotDrawn = -1, kFixedDraw = 0;

/// The draw of each sequence, int64 [batch]: the one that it carries; where there is none yet, kFixedDraw in evaluation
/// and in training a number from 1 to 2^53 - 1, which LibTorch's generator draws for the whole batch
/// (ops/batch_rows.h). In training every call draws, so that the ranks of a job keep the same generators.
///   carried int64 [batch], undefined = no draw has been made
at::Tensor draws(const at::Tensor& carried, int64_t batch, Mode mode);

/// Throws InputError if a state carries a draw that the mechanism does not make (redraw = "never"), ShapeError if it
/// lacks one that it makes.
void require_draw(const char* who, const at::Tensor& carried, bool redraws, int64_t batch);

/// A seed combined with a draw; the seed itself for kFixedDraw.
inline uint64_t drawn_seed(int64_t seed, int64_t draw) {
  return static_cast<uint64_t>(seed) + static_cast<uint64_t>(draw) * 0x9E3779B97F4A7C15ULL;
}

}  // namespace mnemo::core
