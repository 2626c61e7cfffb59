#pragma once

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include <cstdint>
#include <type_traits>

// LibTorch contains a BLAS, MKL, and exports it under the usual names.
extern "C" {
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const float* alpha,
            const float* a, const int* lda, const float* b, const int* ldb, const float* beta, float* c,
            const int* ldc);
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c,
            const int* ldc);
void gemm_bf16bf16f32_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const float* alpha, const c10::BFloat16* a, const int* lda, const c10::BFloat16* b,
                       const int* ldb, const float* beta, float* c, const int* ldc);
/// MKL function: sets the number of threads of products called by this thread and returns the old value, 0 = not set.
/// Weak, because a LibTorch with another BLAS does not have it.
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);
}

namespace mnemo::ops {

/// During its lifetime, products that this thread calls inside a parallel region run only on this thread. Otherwise
/// each asks MKL for the number of threads in memory that all threads write, which makes small products (32 x 32)
/// slower on two threads than on one.
class OwnProducts {
 public:
  OwnProducts()
      : tells_(at::in_parallel_region() && MKL_Set_Num_Threads_Local != nullptr),
        before_(tells_ ? MKL_Set_Num_Threads_Local(1) : 0) {}
  ~OwnProducts() {
    if (tells_) MKL_Set_Num_Threads_Local(before_);
  }
  OwnProducts(const OwnProducts&) = delete;
  OwnProducts& operator=(const OwnProducts&) = delete;

 private:
  bool tells_;
  int before_;
};

/// at::parallel_for over loops that call gemm().
template <class F>
void parallel_products(int64_t begin, int64_t end, int64_t grain, F&& f) {
  at::parallel_for(begin, end, grain, [&](int64_t first, int64_t last) {
    const OwnProducts here;
    f(first, last);
  });
}

/// A matrix in row-major order, or its transpose: element (i,j) lies at data[i * stride + j], or at data[j * stride +
/// i].
template <class T>
struct Matrix {
  const T* data;
  int64_t stride;
  bool transposed = false;
};

template <class T>
Matrix<T> transpose(const T* data, int64_t stride) {
  return {data, stride, true};
}

/// The accumulation type for products of T: float for float and bfloat16, double for double.
template <class T>
using SumOf = at::opmath_type<T>;

/// c = alpha a b + beta c, for blocks inside larger tensors.
///   a [m,k]  b [k,n]  float, double or bfloat16    c [m,n], rows c_stride apart
/// With beta = 0, c is not read. m, n and k must fit in an int. For bfloat16 the BLAS uses the processor's instructions
/// (AVX-512, AMX) if available, and multiplies in float32 otherwise.
template <class T>
void gemm(int64_t m, int64_t n, int64_t k, SumOf<T> alpha, const Matrix<T>& a, const Matrix<T>& b, SumOf<T> beta,
          SumOf<T>* c, int64_t c_stride) {
  // The BLAS is column-major, so it computes c^T = b^T a^T.
  const char trans_a = a.transposed ? 't' : 'n', trans_b = b.transposed ? 't' : 'n';
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  const int lda = static_cast<int>(a.stride), ldb = static_cast<int>(b.stride), ldc = static_cast<int>(c_stride);
  if constexpr (std::is_same_v<T, c10::BFloat16>) {
    gemm_bf16bf16f32_(&trans_b, &trans_a, &columns, &rows, &inner, &alpha, b.data, &ldb, a.data, &lda, &beta, c, &ldc);
  } else if constexpr (std::is_same_v<T, float>) {
    sgemm_(&trans_b, &trans_a, &columns, &rows, &inner, &alpha, b.data, &ldb, a.data, &lda, &beta, c, &ldc);
  } else {
    dgemm_(&trans_b, &trans_a, &columns, &rows, &inner, &alpha, b.data, &ldb, a.data, &lda, &beta, c, &ldc);
  }
}

}  // namespace mnemo::ops
