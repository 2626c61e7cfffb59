#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// Sinusoids of positions p [P] (any sign): [sin(p f_0) .. sin(p f_{D/2-1}), cos(p f_0) .. cos(p f_{D/2-1})],
/// f_k = 10000^(-2k/D): two halves, not interleaved. Returns [P,D] in `options`' type; D must be even.
/// Source: Vaswani et al. 2017, section 3.5; Dai et al. 2019, released code (the order of the halves).
at::Tensor sinusoids(const at::Tensor& positions, int64_t dim, const at::TensorOptions& options);

/// Sinusoids as in fairseq: [sin(p f_0) .. sin(p f_{h-1}), cos(p f_0) .. cos(p f_{h-1})],
/// f_k = 10000^(-k/(h-1)), h = D/2 rounded down; an odd D has one more 0.
at::Tensor fairseq_sinusoids(const at::Tensor& positions, int64_t dim, const at::TensorOptions& options);

/// sinusoids() of the distances that relative attention needs for Q queries and K keys, in the order of its columns:
/// K-1, K-2 .. 0, and on to -(Q-1) if some query sees keys to its right. clamp > 0: distances clamped to [-clamp,
/// clamp]. Returns [P,D], a view of a constant table cached per thread.
at::Tensor distance_sinusoids(int64_t num_queries, int64_t num_keys, bool looks_right, int64_t clamp, int64_t dim,
                              const at::TensorOptions& options);

}  // namespace mnemo::ops
