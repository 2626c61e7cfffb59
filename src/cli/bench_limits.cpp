#include "cli/bench_limits.h"

#include <ATen/Parallel.h>
#include <malloc.h>
#include <torch/types.h>

#include <chrono>
#include <fstream>

#include "cli/bench_rounds.h"
#include "cli/machine.h"

namespace mnemo::cli {
namespace {

constexpr int64_t kFloats = int64_t{1} << 26;  // 256 MiB
constexpr int64_t kSide = 2048;

using Lanes __attribute__((vector_size(32), aligned(4))) = float;
constexpr int64_t kLanes = 8;

/// The sum of `count` floats that lie as `streams` runs of equal length, read side by side.
template <int64_t streams>
float sum(const float* data, int64_t count) {
  const int64_t run = count / streams;
  Lanes sums[8] = {};
  if constexpr (streams == 1) {  // eight sums in flight
    for (int64_t i = 0; i < run; i += 8 * kLanes) {
      for (int64_t s = 0; s < 8; ++s) sums[s] += *reinterpret_cast<const Lanes*>(data + i + s * kLanes);
    }
  } else {
    for (int64_t i = 0; i < run; i += kLanes) {
      for (int64_t s = 0; s < streams; ++s) sums[s] += *reinterpret_cast<const Lanes*>(data + s * run + i);
    }
  }
  Lanes total{};
  for (const Lanes& part : sums) total += part;
  float all = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) all += total[lane];
  return all;
}

}  // namespace

ReadLimit::ReadLimit() : buffer_(kFloats, 1e-9f) {}

double ReadLimit::measure() {
  many_streams_ = !many_streams_;
  const int64_t threads = at::get_num_threads(), part = kFloats / threads / 512 * 512;
  std::vector<float> sums(threads);
  const auto begin = std::chrono::steady_clock::now();
  at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      sums[i] = many_streams_ ? sum<8>(buffer_.data() + i * part, part) : sum<1>(buffer_.data() + i * part, part);
    }
  });
  const double seconds = seconds_since(begin);
  buffer_[0] += sums[0] * 1e-30f;  // somebody looks at the result
  return static_cast<double>(part * threads * static_cast<int64_t>(sizeof(float))) / seconds;
}

ProductLimit::ProductLimit() : a_(at::randn({kSide, kSide})), b_(at::randn({kSide, kSide})), c_(at::empty({kSide, kSide})) {}

double ProductLimit::measure() {
  const at::NoGradGuard no_grad;
  const auto begin = std::chrono::steady_clock::now();
  at::mm_out(c_, a_, b_);
  return 2.0 * kSide * kSide * kSide / seconds_since(begin);
}

std::optional<int64_t> extra_memory(const std::function<void()>& call) {
  malloc_trim(0);  // pages that are free but kept would hide what the call takes
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;  // the peak is now what stands
  if (!reset) return std::nullopt;
  const int64_t before = peak_memory();
  call();
  return peak_memory() - before;
}

}  // namespace mnemo::cli
