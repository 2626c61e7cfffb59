#include "ops/linear/packed_linear.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <ATen/Parallel.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "base/error.h"
#include "ops/decode/decode_rows.h"
#include "ops/linear/packed_panels.h"

namespace mnemo::ops {
namespace {

constexpr std::array<std::pair<Precision, std::string_view>, 6> kNames = {{{Precision::float32, "float32"},
                                                                           {Precision::bf16, "bf16"},
                                                                           {Precision::int8, "int8"},
                                                                           {Precision::w8a8, "w8a8"},
                                                                           {Precision::int4, "int4"},
                                                                           {Precision::int4_offset, "int4_offset"}}};

constexpr int64_t kInt8Steps = 127;
/// Multiplications that justify a second thread.
constexpr int64_t kMultiplicationsWorthAThread = 1 << 17;
/// Values of x at a time: they are read again for every few panels, so they should stay in a cache.
constexpr int64_t kNumbersOfRows = 1 << 20;

/// Inputs whose weights are adjacent.
int64_t inputs_together(Precision precision) {
  return precision == Precision::float32 ? 1 : precision == Precision::w8a8 ? 4 : 2;
}

bool has_four_bits(Precision precision) { return precision == Precision::int4 || precision == Precision::int4_offset; }

void require_finite(const float* weights, int64_t count, Precision precision, int64_t row, at::IntArrayRef shape) {
  const float* spoilt = std::find_if(weights, weights + count, [](float weight) { return !std::isfinite(weight); });
  base::require(spoilt == weights + count, "{}: expected finite weights, found {} in row {} of a matrix [{},{}]",
                name_of(precision), spoilt == weights + count ? 0 : *spoilt, row, shape[0], shape[1]);
}

/// Numbers of a group of weights, each start + scale * steps[i] with steps of 0 to 15.
struct FourBitGroup {
  Bf16Bits scale, start;
  std::array<uint8_t, 32> steps{};
};

constexpr int64_t kFourBitGroup = 32;

/// The value after rounding, and its bits.
float bf16_of(float value, Bf16Bits& bits) {
  copy_row(&value, 1, &bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// The group of least squared error among a few scales: the largest weight alone should not decide.
FourBitGroup four_bit_group(const float* weights, int64_t count, bool offset) {
  if (count == 0) return {};
  const auto [low, high] = std::minmax_element(weights, weights + count);
  const float least = *low, most = *high, extreme = -least > most ? least : most;
  FourBitGroup best;
  double best_error = std::numeric_limits<double>::infinity();
  for (const float share : {1.0f, 0.95f, 0.9f, 0.85f}) {
    FourBitGroup group;
    const float scale = bf16_of(offset ? (most - least) * share / 15 : extreme * share / -8, group.scale);
    float start = -8 * scale;
    if (offset) start = bf16_of((least + most) / 2 - (most - least) * share / 2, group.start);
    const float factor = scale != 0.0f ? 1 / scale : 0.0f;
    double error = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float step = std::clamp(std::nearbyint((weights[i] - start) * factor), 0.0f, 15.0f);
      const double miss = static_cast<double>(start) + static_cast<double>(step) * scale - weights[i];
      error += miss * miss;
      group.steps[static_cast<size_t>(i)] = static_cast<uint8_t>(step);
    }
    if (error < best_error) {
      best_error = error;
      best = group;
    }
  }
  return best;
}

/// Weights [out,in] in the panels of int4: see packed_panels.h.
AlignedBytes four_bit_panels(const float* from, int64_t out, int64_t in, Precision precision) {
  const bool offset = precision == Precision::int4_offset;
  const int64_t panels = (out + kPanel - 1) / kPanel, steps = (in + 63) / 64, step_bytes = kPanel * (offset ? 40 : 36);
  AlignedBytes packed(panels * steps * step_bytes);
  std::memset(packed.memory.get(), 0, static_cast<size_t>(packed.size));
  at::parallel_for(0, panels, 1, [&](int64_t first, int64_t last) {
    for (int64_t o = first * kPanel; o < std::min(out, last * kPanel); ++o) {
      require_finite(from + o * in, in, precision, o, {out, in});
      for (int64_t step = 0; step < steps; ++step) {
        auto* to = packed.as<uint8_t>() + (o / kPanel * steps + step) * step_bytes;
        for (int64_t g = 0; g < 2; ++g) {
          const int64_t begin = step * 64 + g * kFourBitGroup;
          const FourBitGroup group = four_bit_group(from + o * in + begin,
                                                    std::clamp<int64_t>(in - begin, 0, kFourBitGroup), offset);
          for (int64_t i = 0; i < 16; ++i) {
            to[((g * 4 + i / 4) * kPanel + o % kPanel) * 4 + i % 4] = static_cast<uint8_t>(
                group.steps[static_cast<size_t>(i)] | group.steps[static_cast<size_t>(i + 16)] << 4);
          }
          auto* numbers = reinterpret_cast<Bf16Bits*>(to + 512) + g * kPanel + o % kPanel;
          numbers[0] = group.scale;
          if (offset) numbers[2 * kPanel] = group.start;
        }
      }
    }
  });
  return packed;
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
  base::input_error("{}: expected one of {}, found '{}'", where, fmt::join(precision_names(), ", "), name);
}

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const auto& [precision, name] : kNames) names.emplace_back(name);
  return names;
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
  if (has_four_bits(precision)) {
    weights_ = four_bit_panels(from, out_, in_, precision);
    return;
  }
  weights_ = AlignedBytes(count);
  auto* to = weights_.as<int8_t>();
  std::fill_n(to, count, int8_t{0});
  scales_.assign(static_cast<size_t>(panels * kPanel), 0.0f);
  for (int64_t o = 0; o < out_; ++o) {
    require_finite(from + o * in_, in_, precision, o, {out_, in_});
    float largest = 0.0f;
    for (int64_t i = 0; i < in_; ++i) largest = std::max(largest, std::abs(from[o * in_ + i]));
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
  constexpr int64_t kStepInts = sizeof(FourBitInputs) / sizeof(int32_t);
  const bool four_bits = has_four_bits(precision_);
  const int64_t together = inputs_together(precision_),
                width = four_bits ? (in_ + 63) / 64 * kStepInts : (in_ + together - 1) / together;
  const Panels panels{weights_.as<void>(),
                      scales_.empty() ? nullptr : scales_.data(),
                      bias == nullptr ? bias_.data() : bias,
                      in_,
                      out_,
                      precision_ == Precision::int4_offset};
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
  } else if (four_bits) {
    int32_t* to = kept(groups, rows * width);
    for (int64_t row = 0; row < rows; ++row)
      quantise_groups(x + row * x_stride, in_, reinterpret_cast<FourBitInputs*>(to + row * width));
    inputs.groups = to;
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
                   : four_bits                      ? run_panels_int4
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
