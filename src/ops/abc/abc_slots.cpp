#include "ops/abc/abc_slots.h"

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <vector>

#include "ops/row_kernels.h"

namespace mnemo::ops {
namespace {

/// SplitMix64 (Steele, Lea and Flood 2014).
uint64_t split_mix(uint64_t z) {
  z += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

/// The clusters of one sequence as its keys arrive.
template <class T>
class Clusters {
 public:
  Clusters(const T* sums, const T* counts, int64_t clusters, int64_t width)
      : n_(clusters),
        width_(width),
        sums_(sums, sums + clusters * width),
        counts_(counts, counts + clusters),
        squares_(clusters),
        dots_(clusters) {
    for (int64_t j = 0; j < n_; ++j) squares_[j] = inner_product(sum(j), sum(j), width_);
  }

  int64_t add(const T* key) {
    matrix_vector<T>(sums_.data(), key, nullptr, dots_.data(), n_, width_);
    const int64_t j = choose_cluster(counts_.data(), squares_.data(), dots_.data(), n_);
    accumulate(sum(j), key, width_);
    counts_[j] += T(1);
    squares_[j] = inner_product(sum(j), sum(j), width_);
    return j;
  }

 private:
  T* sum(int64_t j) { return sums_.data() + j * width_; }

  int64_t n_, width_;
  std::vector<T> sums_, counts_, squares_, dots_;
};

}  // namespace

int64_t random_slot(int64_t number, int64_t slots, uint64_t seed, uint64_t layer) {
  const uint64_t stream = split_mix(split_mix(seed) ^ layer);
  return static_cast<int64_t>(
      ((split_mix(stream ^ static_cast<uint64_t>(number)) >> 32) * static_cast<uint64_t>(slots)) >> 32);
}

at::Tensor random_slots(const at::Tensor& numbers, int64_t slots, uint64_t seed, uint64_t layer) {
  const at::Tensor flat = numbers.to(at::kCPU).contiguous();
  at::Tensor drawn = at::empty_like(flat);
  const int64_t* in = flat.const_data_ptr<int64_t>();
  int64_t* out = drawn.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) out[i] = random_slot(in[i], slots, seed, layer);
  return drawn.to(numbers.device());
}

at::Tensor nearest_means(const at::Tensor& keys, const at::Tensor& sums, const at::Tensor& counts,
                         const at::Tensor& valid) {
  const at::NoGradGuard no_grad;
  const auto plain = [](const at::Tensor& x) { return x.defined() ? x.detach().to(at::kCPU).contiguous() : x; };
  const at::Tensor key = plain(keys), sum = plain(sums), count = plain(counts), real = plain(valid);
  const int64_t time = key.size(1), width = key.size(2), clusters = sum.size(1);
  at::Tensor chosen = at::zeros({key.size(0), time}, at::kLong);
  AT_DISPATCH_FLOATING_TYPES(key.scalar_type(), "nearest_means", [&] {
    const scalar_t *rows = key.const_data_ptr<scalar_t>(), *first = sum.const_data_ptr<scalar_t>(),
                   *members = count.const_data_ptr<scalar_t>();
    const bool* is_real = real.defined() ? real.const_data_ptr<bool>() : nullptr;
    int64_t* out = chosen.mutable_data_ptr<int64_t>();
    at::parallel_for(0, key.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        Clusters<scalar_t> all(first + b * clusters * width, members + b * clusters, clusters, width);
        for (int64_t t = b * time; t < (b + 1) * time; ++t) {
          if (is_real == nullptr || is_real[t]) out[t] = all.add(rows + t * width);
        }
      }
    });
  });
  return chosen.to(keys.device());
}

}  // namespace mnemo::ops
