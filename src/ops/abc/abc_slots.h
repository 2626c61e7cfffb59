#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
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

/// The cluster of n that a key joins: the first without members or, if all have some, the one with the nearest mean of
/// its members, the first among equals (kTie). |m - key|^2 = |m|^2 - 2 m.key + |key|^2; the last term is the same for
/// all.
///   counts of members; squares |s|^2 and dots s.key of their sums s; dots become distances
template <class T>
int64_t choose_cluster(const T* counts, const T* squares, T* dots, int64_t n) {
  const T* empty = std::find_if(counts, counts + n, [](T count) { return count <= T(0); });
  if (empty != counts + n) return empty - counts;
  int64_t nearest = 0;
  T terms = 0;  // of the least distance
  for (int64_t j = 0; j < n; ++j) {
    const T square = squares[j] / (counts[j] * counts[j]), twice = T(2) * dots[j] / counts[j];
    dots[j] = square - twice;
    if (j == 0 || dots[j] < dots[nearest]) nearest = j, terms = square + std::abs(twice);
  }
  const T most = dots[nearest] + T(kTie) * std::numeric_limits<T>::epsilon() * terms;
  return std::find_if(dots, dots + nearest, [&](T distance) { return distance <= most; }) - dots;
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
