#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

namespace mnemo::ops {

/// N(0, 1) in float64 from a separate stream for each list of keys (seed, layer, ...): the same on every machine and
/// with every LibTorch version, so they need not be stored in a model folder.
///   SplitMix64 (base/random.h) gives u in (0, 1] of 53 bits; pairs by Box and Muller: sqrt(-2 log u) cos(2 pi u'),
///   then the same with sin.
at::Tensor counter_normal(at::IntArrayRef shape, std::initializer_list<uint64_t> keys);

}  // namespace mnemo::ops
