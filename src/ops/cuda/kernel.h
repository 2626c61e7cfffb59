#pragma once

#include <c10/util/BFloat16.h>

#include <cmath>
#include <cstdint>

#include "ops/row_kernels.h"

/// Building blocks for the bodies of the CUDA kernels.
///
/// A body is a struct of plain numbers and pointers with blocks(), shared_bytes() and operator()(Block&), which does
/// the work of one block of kThreads threads. The work is in calls block.each(f): f(thread) for every thread, then a
/// barrier. Code between two such calls must do the same in every thread of the block, so it may read the struct and
/// tensors that the kernel does not write, but never shared memory. On a device, each() is f(threadIdx.x) and
/// __syncthreads(); the tests run the same bodies on a CPU (tests/support/block_emulator.h).
#ifdef __CUDACC__
#define MNEMO_BODY __host__ __device__ __forceinline__
#define MNEMO_UNROLL _Pragma("unroll")
#else
#define MNEMO_BODY inline
#define MNEMO_UNROLL
#endif

namespace mnemo::ops::cuda {

inline constexpr int kThreads = 256, kLanes = 32, kGroups = kThreads / kLanes;
/// The largest head width that the kernels support.
inline constexpr int kMaxWidth = 128, kColumnsPerLane = kMaxWidth / kLanes;

/// The type of sums.
template <class S>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
template <class S>
using Wide = typename WideOf<S>::type;

/// The rows of a tensor [B,H,T,d] of any order, d contiguous; null if there is none.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  MNEMO_BODY T* row(int64_t b, int64_t h, int64_t t) const {
    return data + b * batch_stride + h * head_stride + t * row_stride;
  }
};

/// The stride of rows in shared memory is odd, so that a column does not fall into a single bank.
MNEMO_BODY int odd(int width) { return width | 1; }

/// Divides shared memory into areas. With a null pointer, only computes the size.
template <class A>
struct Carver {
  A* base;
  int64_t used = 0;
  MNEMO_BODY A* take(int64_t size) {
    used += size;
    return base == nullptr ? nullptr : base + (used - size);
  }
};

MNEMO_BODY int least(int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); }

/// Calls to(r, c, sum over i < depth of a(r, i) b(r, i, c)) for r < rows and c < columns: this thread's share, R rows
/// at a time.
template <class A, int R, class Left, class Right, class To>
MNEMO_BODY void products(int thread, int rows, int columns, int depth, Left a, Right b, To to) {
  for (int r0 = thread / kLanes * R; r0 < rows; r0 += kGroups * R) {
    for (int c = thread % kLanes; c < columns; c += kLanes) {
      A sum[R] = {};
      for (int i = 0; i < depth; ++i) {
        MNEMO_UNROLL for (int n = 0; n < R; ++n) {
          const int r = r0 + n < rows ? r0 + n : rows - 1;
          sum[n] += a(r, i) * b(r, i, c);
        }
      }
      MNEMO_UNROLL for (int n = 0; n < R; ++n) {
        if (r0 + n < rows) to(r0 + n, c, sum[n]);
      }
    }
  }
}

/// A thread's share of a matrix [kGroups R, up to kMaxWidth] that is accumulated over many steps: R rows, some columns.
template <int R>
struct Share {
  static constexpr int kSize = R * kColumnsPerLane;

  /// f(row, column, element) for this thread's elements.
  template <class A, class F>
  static MNEMO_BODY void each(int thread, int columns, A* elements, F f) {
    MNEMO_UNROLL for (int m = 0; m < kColumnsPerLane; ++m) {
      const int c = thread % kLanes + m * kLanes;
      if (c >= columns) continue;
      MNEMO_UNROLL for (int n = 0; n < R; ++n) f(thread / kLanes * R + n, c, elements[n * kColumnsPerLane + m]);
    }
  }
  /// elements += sum over i < depth of a(r, i) b(r, i, c)
  template <class A, class Left, class Right>
  static MNEMO_BODY void add(int thread, int columns, int depth, A* elements, Left a, Right b) {
    MNEMO_UNROLL for (int m = 0; m < kColumnsPerLane; ++m) {
      const int c = thread % kLanes + m * kLanes;
      if (c >= columns) continue;
      for (int i = 0; i < depth; ++i) {
        MNEMO_UNROLL for (int n = 0; n < R; ++n) {
          const int r = thread / kLanes * R + n;
          elements[n * kColumnsPerLane + m] += a(r, i) * b(r, i, c);
        }
      }
    }
  }
};

/// All threads copy rows into shared memory; rows(i) is the row's first element, or null for zeros.
template <class A, class RowOf>
MNEMO_BODY void load_rows(int thread, A* to, int count, int width, RowOf rows) {
  for (int r = thread / kLanes; r < count; r += kGroups) {
    const auto* from = rows(r);
    for (int c = thread % kLanes; c < width; c += kLanes)
      to[r * odd(width) + c] = from == nullptr ? A(0) : static_cast<A>(from[c]);
  }
}

}  // namespace mnemo::ops::cuda
