#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::core {

/// [past; fresh] along `dim`, as at::cat gives it; past may be undefined. Neither is changed.
///
/// In inference mode the result has spare room behind its rows, and the first call that gets it as `past` (or its last
/// rows, a narrow() of it) writes there instead of copying what is past: a state that grows token by token costs the
/// token alone. A second continuation of the same rows is a copy.
at::Tensor append_rows(const at::Tensor& past, const at::Tensor& fresh, int64_t dim);

}  // namespace mnemo::core
