#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/abc/abc.h"

/// Operations by definition, one formula after the other: what the fast forms are compared with, and what runs where
/// there is no fast form. Arguments and results are those of the fast form.
namespace mnemo::ops {

/// abc_causal(), token by token.
AbcOutput abc_causal_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                           const AbcMemory& memory, const at::Tensor& valid, AbcActivation activation, double eps,
                           double scale);

/// abc_sums(), token by token.
AbcSumsOutput abc_sums_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& phi,
                             const AbcSums& sums, const AbcReading& reading, double scale);

/// abc_window(), token by token.
AbcSumsOutput abc_window_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AbcSums& queue,
                               const at::Tensor& open, const std::vector<int64_t>& seen, double scale);

/// nearest_means(), key by key with ATen operations.
at::Tensor nearest_means_naive(const at::Tensor& keys, const at::Tensor& sums, const at::Tensor& counts,
                               const at::Tensor& valid);

}  // namespace mnemo::ops
