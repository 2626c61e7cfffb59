#include "ops/linear/packed_linear.h"

#include <torch/types.h>

#include <ATen/Parallel.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>

#include "base/error.h"
#include "ops/decode/decode_rows.h"
#include "ops/linear/packed_panels.h"

namespace mnemo::ops {
namespace {

constexpr std::array<std::pair<Precision, std::string_view>, 4> kNames = {
    {{Precision::float32, "float32"}, {Precision::bf16, "bf16"}, {Precision::int8, "int8"}, {Precision::w8a8, "w8a8"}}};

constexpr int64_t kInt8Steps = 127;
/// Multiplications that justify a second thread.
constexpr int64_t kMultiplicationsWorthAThread = 1 << 17;
/// Values of x at a time: they are read again for every few panels, so they should stay in a cache.
constexpr int64_t kNumbersOfRows = 1 << 20;

/// Inputs whose weights are adjacent.
int64_t inputs_together(Precision precision) {
  return precision == Precision::float32 ? 1 : precision == Precision::w8a8 ? 4 : 2;
}

template <class T>
T* kept(std::vector<T>& memory, int64_t size) {
  if (static_cast<int64_t>(memory.size()) < size) memory.resize(static_cast<size_t>(size));
  return memory.data();
}

}  // namespace

Precision precision_of(std::string_view name, std::string_view where) {
  for (const auto& [precision, known] : kNames) {
    if (name == known) return precision;
  }
  base::input_error("{}: expected float32, bf16, int8 or w8a8, found '{}'", where, name);
}

std::string_view name_of(Precision precision) { return kNames[static_cast<size_t>(precision)].second; }

AlignedBytes::AlignedBytes(int64_t bytes) : size(bytes) {
  constexpr size_t kLine = 64, kHuge = size_t{1} << 21;
  if (bytes == 0) return;
  const size_t alignment = static_cast<size_t>(bytes) >= kHuge ? kHuge : kLine;
  const size_t whole = (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment;
  memory = {static_cast<std::byte*>(::operator new(whole, std::align_val_t(alignment))), FreeAligned{alignment}};
  if (alignment == kHuge) ::madvise(memory.get(), whole, MADV_HUGEPAGE);  // only a hint
}

AlignedBytes::AlignedBytes(const AlignedBytes& other) : AlignedBytes(other.size) {
  if (size > 0) std::memcpy(memory.get(), other.memory.get(), static_cast<size_t>(size));
}

AlignedBytes& AlignedBytes::operator=(AlignedBytes other) noexcept {
  memory = std::move(other.memory);
  size = other.size;
  return *this;
}

void FreeAligned::operator()(void* block) const { ::operator delete(block, std::align_val_t(alignment)); }

PackedLinear::PackedLinear(const at::Tensor& weight, const at::Tensor& bias, Precision precision)
    : precision_(precision), in_(weight.size(1)), out_(weight.size(0)) {
  const at::Tensor plain = weight.detach().to(at::kCPU, at::kFloat).contiguous();
  const float* from = plain.const_data_ptr<float>();
  const int64_t panels = (out_ + kPanel - 1) / kPanel, together = inputs_together(precision),
                groups = (in_ + together - 1) / together;
  bias_.assign(static_cast<size_t>(panels * kPanel), 0.0f);
  if (bias.defined()) {
    const at::Tensor start = bias.detach().to(at::kCPU, at::kFloat).contiguous();
    std::copy_n(start.const_data_ptr<float>(), out_, bias_.data());
  }
  if (precision == Precision::float32) {
    weights_ = AlignedBytes(panels * in_ * kPanel * 4);
    auto* to = weights_.as<float>();
    std::fill_n(to, panels * in_ * kPanel, 0.0f);
    for (int64_t o = 0; o < out_; ++o) {
      float* panel = to + o / kPanel * in_ * kPanel + o % kPanel;
      for (int64_t i = 0; i < in_; ++i) panel[i * kPanel] = from[o * in_ + i];
    }
    return;
  }
  const auto place = [&](int64_t o, int64_t i) {
    return ((o / kPanel * groups + i / together) * kPanel + o % kPanel) * together + i % together;
  };
  const int64_t count = panels * groups * kPanel * together;
  if (precision == Precision::bf16) {
    weights_ = AlignedBytes(count * 2);
    auto* to = weights_.as<Bf16Bits>();
    std::fill_n(to, count, Bf16Bits{0});
    std::vector<Bf16Bits> rounded(static_cast<size_t>(in_));
    for (int64_t o = 0; o < out_; ++o) {
      copy_row(from + o * in_, in_, rounded.data());
      for (int64_t i = 0; i < in_; ++i) to[place(o, i)] = rounded[static_cast<size_t>(i)];
    }
    return;
  }
  weights_ = AlignedBytes(count);
  auto* to = weights_.as<int8_t>();
  std::fill_n(to, count, int8_t{0});
  scales_.assign(static_cast<size_t>(panels * kPanel), 0.0f);
  for (int64_t o = 0; o < out_; ++o) {
    float largest = 0.0f;
    for (int64_t i = 0; i < in_; ++i) {
      const float weight = from[o * in_ + i];
      base::require(std::isfinite(weight), "{}: expected finite weights, found {} in row {} of a matrix [{},{}]",
                    name_of(precision), weight, o, out_, in_);
      largest = std::max(largest, std::abs(weight));
    }
    scales_[static_cast<size_t>(o)] = largest / kInt8Steps;
    const float factor = largest > 0.0f ? kInt8Steps / largest : 0.0f;
    for (int64_t i = 0; i < in_; ++i) to[place(o, i)] = static_cast<int8_t>(std::nearbyint(from[o * in_ + i] * factor));
  }
}

void PackedLinear::operator()(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
                              const float* bias) const {
  if (rows == 0) return;
  thread_local std::vector<float> scales, padded;
  thread_local std::vector<int32_t> groups;
  const int64_t together = inputs_together(precision_), width = (in_ + together - 1) / together;
  const Panels panels{weights_.as<void>(), scales_.empty() ? nullptr : scales_.data(),
                      bias == nullptr ? bias_.data() : bias, in_, out_};
  PanelInputs inputs{x, x_stride, nullptr, nullptr, rows};
  if (precision_ == Precision::int8 || precision_ == Precision::w8a8) {
    int32_t* to = kept(groups, rows * width);
    float* scale = kept(scales, rows);
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = x + row * x_stride;
      scale[row] = precision_ == Precision::int8 ? quantise_row(from, in_, reinterpret_cast<int16_t*>(to + row * width))
                                                 : quantise_row(from, in_, reinterpret_cast<int8_t*>(to + row * width));
    }
    inputs.groups = to;
    inputs.scales = scale;
  } else if (precision_ == Precision::bf16 && in_ % 2 != 0) {
    // The kernel reads pairs.
    float* to = kept(padded, rows * (in_ + 1));
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(x + row * x_stride, in_, to + row * (in_ + 1));
      to[row * (in_ + 1) + in_] = 0.0f;
    }
    inputs.x = to;
    inputs.stride = in_ + 1;
  }
  const auto run = precision_ == Precision::float32 ? run_panels_float32
                   : precision_ == Precision::bf16  ? run_panels_bf16
                   : precision_ == Precision::int8  ? run_panels_int8
                                                    : run_panels_w8a8;
  const int64_t count = (out_ + kPanel - 1) / kPanel, block = std::max<int64_t>(kNumbersOfRows / in_, 1);
  at::parallel_for(0, count, std::max<int64_t>(4, kMultiplicationsWorthAThread / (in_ * kPanel * rows)),
                   [&](int64_t first, int64_t last) {
                     for (int64_t row = 0; row < rows; row += block) {
                       const PanelInputs some = inputs.from(row, std::min(block, rows - row), width);
                       run(panels, some, y + row * y_stride, y_stride, first, last);
                     }
                   });
}

}  // namespace mnemo::ops
