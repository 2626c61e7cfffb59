#include "ops/linear/feed_forward.h"

#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/activation.h"
#include "ops/decode/decode_rows.h"
#include "ops/linear/gemm.h"
#include "ops/linear/packed_maps.h"
#include "ops/linear/products.h"
#include "ops/naive/rows.h"
#include "ops/scratch.h"

namespace mnemo::ops {
namespace {

constexpr int64_t kTileNumbers = 1 << 16;  ///< hidden values per tile: half of a small second-level cache
constexpr int64_t kMinTile = 48;  ///< fewer rows do not justify a separate product, since it packs the weights again

/// y for `count` rows of x.
void multiply(const LinearMap& map, const PackedLinear* packed, const float* x, int64_t count, float* y) {
  const int64_t in = map.weight.size(1), out = map.weight.size(0);
  const float* bias = map.bias.const_data_ptr<float>();
  if (packed != nullptr) {
    (*packed)(x, count, in, y, out, bias);
    return;
  }
  for (int64_t row = 0; row < count; ++row) std::copy(bias, bias + out, y + row * out);
  gemm<float>(count, out, in, 1, {x, in}, transpose(map.weight.const_data_ptr<float>(), in), 1, y, out);
}

/// Applies both layers to the rows of x, tile by tile.
at::Tensor by_tiles(const at::Tensor& x, const LinearMap& in, const LinearMap& out, int64_t rows, int64_t tile) {
  const int64_t dim = in.weight.size(1), hidden = in.weight.size(0), width = out.weight.size(0);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = width;
  at::Tensor y = at::empty(shape, x.options());
  const DeclaredProducts products("mnemo::feed_forward", [&] { return rows * hidden * (dim + width); });
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  const PackedLinear *packed_in = packed_now(in.weight), *packed_out = packed_now(out.weight);
  parallel_products(0, (rows + tile - 1) / tile, 1, [&](int64_t begin, int64_t end) {
    Scratch<float> scratch(Scratch<float>::padded(tile * hidden));
    float* h = scratch.take(tile * hidden);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t * tile, count = std::min(tile, rows - first);
      multiply(in, packed_in, from + first * dim, count, h);
      activate_row(Activation::gelu, h, count * hidden);
      multiply(out, packed_out, h, count, to + first * width);
    }
  });
  return y;
}

}  // namespace

at::Tensor feed_forward(const at::Tensor& x, const LinearMap& in, const LinearMap& out) {
  const bool plain = !at::GradMode::is_enabled() && x.is_cpu() && x.scalar_type() == at::kFloat &&
                     in.weight.scalar_type() == at::kFloat && product_precision_now() == ProductPrecision::float32;
  if (!plain) return feed_forward_naive(x, in, out);
  const int64_t rows = x.numel() / std::max<int64_t>(1, x.size(-1)), hidden = in.weight.size(0);
  const int64_t tile = std::min<int64_t>(kTileNumbers / hidden / 16 * 16, 192);
  if (tile >= kMinTile && rows >= 2 * tile * at::get_num_threads())
    return by_tiles(x.contiguous(), in, out, rows, tile);
  const at::Tensor h = linear(x, in.weight, in.bias);
  constexpr int64_t kGrain = 1 << 14;
  at::parallel_for(0, h.numel(), kGrain, [data = h.mutable_data_ptr<float>()](int64_t begin, int64_t end) {
    activate_row(Activation::gelu, data + begin, end - begin);
  });
  return linear(h, out.weight, out.bias);
}

}  // namespace mnemo::ops
