#include "bench/limits.h"

#include <ATen/Parallel.h>
#include <malloc.h>
#include <sys/mman.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
#include "bench/rounds.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kFloats = int64_t{1} << 26;  // 256 MiB
constexpr size_t kHugePage = size_t{1} << 21;
constexpr int64_t kPart = 8 * 2048;
constexpr int64_t kSide = 2048;

#if defined(__x86_64__) && defined(__GNUC__)
#define MNEMO_WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define MNEMO_WITH_AVX2
#endif

using Lanes __attribute__((vector_size(32), aligned(4))) = float;
constexpr int64_t kLanes = 8, kLine = 2 * kLanes;

/// Adds `streams` runs of `run` floats each, stored one after another, to `total`, alternating between them line by
/// line.
template <int64_t streams>
inline __attribute__((always_inline)) void add_runs(const float* data, int64_t run, Lanes& total) {
  Lanes sums[streams] = {};
  for (int64_t i = 0; i < run; i += kLine) {
    for (int64_t s = 0; s < streams; ++s) {
      const auto* line = reinterpret_cast<const Lanes*>(data + s * run + i);
      sums[s] += line[0] + line[1];
    }
  }
  for (const Lanes& part : sums) total += part;
}

/// Four streams that are far apart.
MNEMO_WITH_AVX2 float sum_far(const float* data, int64_t count) {
  Lanes total = {};
  add_runs<4>(data, count / 4, total);
  return total[0] + total[kLanes - 1];
}

/// Eight adjacent runs of 8 KiB at a time, one block of them after another.
MNEMO_WITH_AVX2 float sum_near(const float* data, int64_t count) {
  constexpr int64_t kRun = 2048;
  Lanes total = {};
  for (int64_t begin = 0; begin + 8 * kRun <= count; begin += 8 * kRun) add_runs<8>(data + begin, kRun, total);
  return total[0] + total[kLanes - 1];
}

}  // namespace

ReadLimit::ReadLimit() : buffer_(static_cast<float*>(std::aligned_alloc(kHugePage, kFloats * sizeof(float)))) {
  base::ensure(buffer_ != nullptr, "no memory for the read loop");
  ::madvise(buffer_.get(), kFloats * sizeof(float), MADV_HUGEPAGE);
  std::fill_n(buffer_.get(), kFloats, 1e-9f);
}

double ReadLimit::measure() const {
  const int64_t threads = at::get_num_threads(), part = kFloats / threads / kPart * kPart;
  std::vector<float> sums(threads);
  double best = 0;
  for (int64_t pass = 0; pass < 6; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const float* data = buffer_.get() + i * part;
        sums[i] = pass % 2 == 0 ? sum_far(data, part) : sum_near(data, part);
      }
    });
    best = std::max(best,
                    static_cast<double>(part * threads * static_cast<int64_t>(sizeof(float))) / seconds_since(begin));
    buffer_.get()[0] += sums[0] * 1e-30f;  // keeps the compiler from removing the loops
  }
  return best;
}

ProductLimit::ProductLimit()
    : a_(at::randn({kSide, kSide})), b_(at::randn({kSide, kSide})), c_(at::empty({kSide, kSide})) {}

double ProductLimit::measure() {
  const at::NoGradGuard no_grad;
  const auto begin = std::chrono::steady_clock::now();
  at::mm_out(c_, a_, b_);
  return 2.0 * kSide * kSide * kSide / seconds_since(begin);
}

std::optional<int64_t> extra_memory(const std::function<void()>& call) {
  malloc_trim(0);  // cached free pages would hide part of what the call takes
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;  // resets the peak to the current size
  if (!reset) return std::nullopt;
  const int64_t before = base::peak_memory();
  call();
  return base::peak_memory() - before;
}

}  // namespace mnemo::bench
