#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::core {

/// Returns [past; fresh] along `dim`, like at::cat; past may be undefined. The arguments are not changed.
///
/// In inference mode the result has spare capacity after its rows. The first call that receives it as `past` (or its
/// last rows, as a narrow() of it) appends in place instead of copying, so a state that grows token by token only pays
/// for the new token. A second continuation of the same rows copies them.
at::Tensor append_rows(const at::Tensor& past, const at::Tensor& fresh, int64_t dim);

}  // namespace mnemo::core
