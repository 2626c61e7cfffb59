#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::ops {

/// The storage format of weights for inference.
///   float32  unchanged
///   bf16     rounded to bfloat16, inputs too; products and sums in float32
///   int8     rounded to +-127 steps for each output, inputs to +-16,383 for each row; sums of products are exact
///   w8a8     like int8, with inputs rounded to +-127 as well: with VNNI, twice as many products in an instruction
///   int4     16 steps in each group of 32 weights of an output, zero among them; inputs rounded to +-127 steps in
///            each such group
///   int4_offset  likewise, from the least weight of the group to the largest
enum class Precision { float32, bf16, int8, w8a8, int4, int4_offset };

/// The names of all of them.
std::vector<std::string> precision_names();
/// Throws InputError that names `where` for other names.
Precision precision_of(std::string_view name, std::string_view where);
std::string_view name_of(Precision precision);

struct FreeAligned {
  size_t alignment = 1;
  std::shared_ptr<std::byte> chunk = {};  ///< that the block is a part of, and that lives as long as its blocks
  void operator()(void* block) const;
};

/// Memory aligned to cache lines, with huge pages for large blocks if available.
struct AlignedBytes {
  AlignedBytes() = default;
  explicit AlignedBytes(int64_t size);
  /// For what stays as long as a model: blocks of medium size share chunks of huge pages.
  static AlignedBytes in_chunk(int64_t size);
  AlignedBytes(const AlignedBytes& other);
  AlignedBytes(AlignedBytes&&) noexcept = default;
  AlignedBytes& operator=(AlignedBytes other) noexcept;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(memory.get());
  }

  std::unique_ptr<std::byte, FreeAligned> memory;
  int64_t size = 0;
};

/// y = x W^T + b for few rows, with weights packed once into panels of 16 outputs, so that values used together are
/// adjacent.
///
/// The result for a row does not depend on other rows of the call or on the number of threads, bit for bit.
class PackedLinear {
 public:
  PackedLinear() = default;
  /// weight [out,in], bias [out] or undefined; any floating type.
  PackedLinear(const at::Tensor& weight, const at::Tensor& bias, Precision precision);

  /// x: `rows` rows of in() numbers, x_stride apart; y: as many rows of out() numbers, y_stride apart. bias: out()
  /// numbers, replacing the packed ones. Allocates nothing after the first calls of a thread.
  void operator()(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
                  const float* bias = nullptr) const;

  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  /// Bytes of weights read by one call.
  int64_t num_bytes() const { return weights_.size + static_cast<int64_t>(4 * (scales_.size() + bias_.size())); }

 private:
  Precision precision_ = Precision::float32;
  int64_t in_ = 0, out_ = 0;
  AlignedBytes weights_;
  std::vector<float> scales_;  // int8, w8a8: of each output, panels complete
  std::vector<float> bias_;    // panels complete
};

}  // namespace mnemo::ops
