#include "ops/linear/packed_linear.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <ATen/Parallel.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "base/error.h"
#include "ops/decode/decode_rows.h"
#include "ops/linear/four_bits.h"
#include "ops/linear/packed_panels.h"
#include "ops/linear/quantise_panel.h"
#include "ops/linear/tile_products.h"

namespace mnemo::ops {
namespace {

constexpr std::array<std::pair<Precision, std::string_view>, 6> kNames = {{{Precision::float32, "float32"},
                                                                           {Precision::bf16, "bf16"},
                                                                           {Precision::int8, "int8"},
                                                                           {Precision::w8a8, "w8a8"},
                                                                           {Precision::int4, "int4"},
                                                                           {Precision::int4_offset, "int4_offset"}}};

constexpr size_t kLine = 64, kHuge = size_t{1} << 21;  ///< bytes of a cache line and of a huge page

/// Multiplications that justify a second thread.
constexpr int64_t kMultiplicationsWorthAThread = 1 << 17;
/// Values of x at a time: they are read again for every few panels, so they should stay in a cache.
constexpr int64_t kNumbersOfRows = 1 << 20;

/// Inputs whose weights are adjacent.
int64_t inputs_together(Precision precision) {
  return precision == Precision::float32 ? 1 : precision == Precision::bf16 ? 2 : 4;
}

bool has_four_bits(Precision precision) { return precision == Precision::int4 || precision == Precision::int4_offset; }

template <class T>
T* kept(std::vector<T>& memory, int64_t size) {
  if (static_cast<int64_t>(memory.size()) < size) memory.resize(static_cast<size_t>(size));
  return memory.data();
}

/// Panels of [in][16] floats from a weight [out,in] of any strides, and their rounding.
class Packer {
 public:
  explicit Packer(const at::Tensor& weight)
      : plain_(weight.detach().to(at::kCPU, at::kFloat)),
        from_(plain_.const_data_ptr<float>()),
        out_(plain_.size(0)),
        in_(plain_.size(1)),
        out_stride_(plain_.stride(0)),
        in_stride_(plain_.stride(1)) {}

  /// Panels first .. last-1 as they are; the last one is filled up with zeros.
  void copy(int64_t first, int64_t last, float* to) const {
    if (last * kPanel > out_) std::fill_n(to + (last - 1 - first) * in_ * kPanel, in_ * kPanel, 0.0f);
    if (out_stride_ != 1) {
      for (int64_t panel = first; panel < last; ++panel) transpose(panel, to + (panel - first) * in_ * kPanel);
      return;
    }
    // Neighbouring panels read the same cache lines.
    for (int64_t i = 0; i < in_; ++i) {
      const float* inputs = from_ + i * in_stride_;
      for (int64_t panel = first; panel < last; ++panel) {
        float* at = to + ((panel - first) * in_ + i) * kPanel;
        if ((panel + 1) * kPanel <= out_) {
          std::memcpy(at, inputs + panel * kPanel, kPanel * sizeof(float));
        } else {
          std::copy_n(inputs + panel * kPanel, out_ - panel * kPanel, at);
        }
      }
    }
  }

  void round(const float* panel, std::vector<Bf16Bits>& memory, Bf16Bits* to) const {
    const int64_t groups = (in_ + 1) / 2;
    Bf16Bits* rounded = kept(memory, 2 * groups * kPanel);
    copy_row(panel, in_ * kPanel, rounded);
    if (in_ % 2 != 0) std::fill_n(rounded + in_ * kPanel, kPanel, Bf16Bits{0});
    for (int64_t group = 0; group < groups; ++group, to += 2 * kPanel) {
      const Bf16Bits *even = rounded + 2 * group * kPanel, *odd = even + kPanel;
      for (int64_t lane = 0; lane < kPanel; ++lane) {
        to[2 * lane] = even[lane];
        to[2 * lane + 1] = odd[lane];
      }
    }
  }

  [[noreturn]] void refuse(int64_t panel, Precision precision) const {
    for (int64_t o = panel * kPanel; o < out_; ++o) {
      for (int64_t i = 0; i < in_; ++i) {
        const float weight = from_[o * out_stride_ + i * in_stride_];
        base::require(std::isfinite(weight), "{}: expected finite weights, found {} in row {} of a matrix [{},{}]",
                      name_of(precision), weight, o, out_, in_);
      }
    }
    base::ensure(false, "a panel of finite weights was refused");
    std::abort();
  }

 private:
  /// Few rows at a time: a cache keeps few lines whose addresses are a power of two apart.
  void transpose(int64_t panel, float* to) const {
    constexpr int64_t kRows = 8;
    const int64_t first = panel * kPanel, outputs = std::min(kPanel, out_ - first);
    for (int64_t lane = 0; lane < outputs; lane += kRows) {
      const float* rows = from_ + (first + lane) * out_stride_;
      if (lane + kRows <= outputs) {
        for (int64_t i = 0; i < in_; ++i) {
          for (int64_t row = 0; row < kRows; ++row)
            to[i * kPanel + lane + row] = rows[row * out_stride_ + i * in_stride_];
        }
      } else {
        for (int64_t i = 0; i < in_; ++i) {
          for (int64_t row = 0; row < outputs - lane; ++row)
            to[i * kPanel + lane + row] = rows[row * out_stride_ + i * in_stride_];
        }
      }
    }
  }

  at::Tensor plain_;
  const float* from_;
  int64_t out_, in_, out_stride_, in_stride_;
};

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
  if (bytes == 0) return;
  const size_t alignment = static_cast<size_t>(bytes) >= kHuge ? kHuge : kLine;
  const size_t whole = (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment;
  memory = {static_cast<std::byte*>(::operator new(whole, std::align_val_t(alignment))), FreeAligned{alignment}};
  if (alignment == kHuge) ::madvise(memory.get(), whole, MADV_HUGEPAGE);  // only a hint
}

// With pages of 4 KiB, a token of GPT-2 small in 8 bits takes 5 % longer (Zen 4).
AlignedBytes AlignedBytes::in_chunk(int64_t bytes) {
  constexpr int64_t kChunk = int64_t{64} << 20, kMost = kChunk / 4, kLeast = kChunk / 256;
  if (bytes < kLeast || bytes > kMost) return AlignedBytes(bytes);
  static std::mutex mutex;
  static std::weak_ptr<std::byte> open;
  static int64_t used = 0;
  const std::lock_guard lock(mutex);
  std::shared_ptr<std::byte> chunk = open.lock();
  if (chunk == nullptr || used + bytes > kChunk) {
    chunk = AlignedBytes(kChunk).memory;  // what is not written takes no memory
    open = chunk;
    used = 0;
  }
  AlignedBytes block;
  block.size = bytes;
  block.memory = {chunk.get() + used, FreeAligned{.chunk = chunk}};
  used += (bytes + static_cast<int64_t>(kLine) - 1) / static_cast<int64_t>(kLine) * static_cast<int64_t>(kLine);
  return block;
}

AlignedBytes::AlignedBytes(const AlignedBytes& other) : AlignedBytes(other.size) {
  if (size > 0) std::memcpy(memory.get(), other.memory.get(), static_cast<size_t>(size));
}

AlignedBytes& AlignedBytes::operator=(AlignedBytes other) noexcept {
  memory = std::move(other.memory);
  size = other.size;
  return *this;
}

void FreeAligned::operator()(void* block) const {
  if (chunk == nullptr) ::operator delete(block, std::align_val_t(alignment));
}

PackedLinear::PackedLinear(const at::Tensor& weight, const at::Tensor& bias, Precision precision)
    : precision_(precision), in_(weight.size(1)), out_(weight.size(0)) {
  constexpr int64_t kTogether = 4, kWorthAThread = 1 << 16;  // panels that are read together; weights
  const Packer packer(weight);
  const int64_t panels = (out_ + kPanel - 1) / kPanel, together = inputs_together(precision),
                groups = (in_ + together - 1) / together, size = groups * together * kPanel;  // of a panel
  const bool is_float = precision == Precision::float32, is_bf16 = precision == Precision::bf16,
             four_bits = has_four_bits(precision), offset = precision == Precision::int4_offset;
  const int64_t bytes = four_bits ? four_bit_bytes(in_, offset) : size * (is_float ? 4 : is_bf16 ? 2 : 1);
  bias_.assign(static_cast<size_t>(panels * kPanel), 0.0f);
  if (bias.defined()) {
    const at::Tensor start = bias.detach().to(at::kCPU, at::kFloat).contiguous();
    std::copy_n(start.const_data_ptr<float>(), out_, bias_.data());
  }
  weights_ = AlignedBytes::in_chunk(panels * bytes);
  if (!is_float && !is_bf16 && !four_bits) scales_.assign(static_cast<size_t>(panels * kPanel), 0.0f);
  const int64_t blocks = (panels + kTogether - 1) / kTogether;
  at::parallel_for(
      0, blocks, std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(1, kTogether * size)),
      [&](int64_t first, int64_t last) {
        std::vector<float> memory;
        std::vector<Bf16Bits> rounded;
        for (int64_t block = first; block < last; ++block) {
          const int64_t begin = block * kTogether, end = std::min(panels, begin + kTogether);
          if (is_float) {
            packer.copy(begin, end, weights_.as<float>() + begin * size);
            continue;
          }
          const float* copied = kept(memory, kTogether * in_ * kPanel);
          packer.copy(begin, end, memory.data());
          for (int64_t panel = begin; panel < end; ++panel, copied += in_ * kPanel) {
            if (is_bf16) {
              packer.round(copied, rounded, weights_.as<Bf16Bits>() + panel * size);
              continue;
            }
            const bool finite = four_bits ? pack_four_bits(copied, in_, offset, weights_.as<uint8_t>() + panel * bytes)
                                          : quantise_panel(copied, in_, weights_.as<int8_t>() + panel * size,
                                                           scales_.data() + panel * kPanel);
            if (!finite) packer.refuse(panel, precision);
          }
        }
      });
}

void PackedLinear::operator()(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
                              const float* bias) const {
  if (rows == 0) return;
  thread_local std::vector<float> scales;
  thread_local std::vector<int32_t> groups;
  constexpr int64_t kStepInts = sizeof(FourBitInputs) / sizeof(int32_t);
  const bool four_bits = has_four_bits(precision_),
             eight_bits = precision_ == Precision::int8 || precision_ == Precision::w8a8;
  const int64_t together = inputs_together(precision_),
                of_group = precision_ == Precision::int8 ? 2 : 1,  // numbers of 32 bits
      width = four_bits ? (in_ + 63) / 64 * kStepInts : (in_ + together - 1) / together * of_group;
  const Panels panels{weights_.as<void>(),
                      scales_.empty() ? nullptr : scales_.data(),
                      bias == nullptr ? bias_.data() : bias,
                      in_,
                      out_,
                      precision_ == Precision::int4_offset};
  PanelInputs inputs{x, x_stride, nullptr, nullptr, rows};
  if (eight_bits) {
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
  } else if (precision_ == Precision::bf16) {
    int32_t* to = kept(groups, rows * width);
    for (int64_t row = 0; row < rows; ++row) {
      auto* numbers = reinterpret_cast<Bf16Bits*>(to + row * width);
      copy_row(x + row * x_stride, in_, numbers);
      if (in_ % 2 != 0) numbers[in_] = 0;
    }
    inputs.groups = to;
  }
  const bool by_tiles = eight_bits && rows >= kRowsWorthTiles && has_tiles();
  const auto run = precision_ == Precision::float32 ? run_panels_float32
                   : precision_ == Precision::bf16  ? run_panels_bf16
                   : precision_ == Precision::int8  ? (by_tiles ? run_tiles_int8 : run_panels_int8)
                   : four_bits                      ? run_panels_int4
                   : by_tiles                       ? run_tiles_w8a8
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
