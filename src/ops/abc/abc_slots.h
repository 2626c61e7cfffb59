#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace mnemo::ops {

/// Random slots by a stateless rule: the slot of token p is uniform in 0 .. n-1 and depends only on (seed, layer, p),
/// so it does not depend on how a sequence is divided.
///   x = mix(mix(mix(seed) ^ layer) ^ p),  slot = floor(n (x div 2^32) / 2^32),  mix the output function of SplitMix64
///   after adding its step
///   numbers int64 of any shape, >= 0. Returns int64 of that shape.
at::Tensor random_slots(const at::Tensor& numbers, int64_t slots, uint64_t seed, uint64_t layer);

/// The random slot of one number.
int64_t random_slot(int64_t number, int64_t slots, uint64_t seed, uint64_t layer);

/// Distances that differ by less than this many roundings of their terms count as equal: equal tokens found several
/// clusters, and rounding, which a batch changes, must not choose among those.
inline constexpr double kTie = 64;

/// The first of distances that equals the least, distances[nearest], whose terms have the size `terms`.
template <class T>
int64_t first_of_equals(const T* distances, int64_t nearest, T terms) {
  const T most = distances[nearest] + T(kTie) * std::numeric_limits<T>::epsilon() * terms;
  return std::find_if(distances, distances + nearest, [&](T distance) { return distance <= most; }) - distances;
}

/// Online k-means (MacQueen 1967): each key joins the first empty cluster or, if there is none, the cluster with the
/// nearest mean of its members so far, the first among equals (kTie). Loops over rows on the CPU (tensors on other
/// devices are copied there).
///   keys [B,T,D]  sums [B,n,D] and counts [B,n] of earlier members  valid bool [B,T], undefined = all: other
///   keys join no cluster
/// Returns int64 [B,T], 0 if not valid. Has no gradient.
at::Tensor nearest_means(const at::Tensor& keys, const at::Tensor& sums, const at::Tensor& counts,
                         const at::Tensor& valid);

}  // namespace mnemo::ops
