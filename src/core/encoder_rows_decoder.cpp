#include "core/encoder_rows_decoder.h"

#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "ops/decode/decode_rows.h"
#include "ops/row_kernels.h"

namespace mnemo::core {
namespace {

/// [H,count,width], the head's width padded with zeros.
struct StoredRows final : EncodedSource {
  int64_t count = 0;
  ops::AlignedBytes k, v;
  int64_t num_bytes() const override { return k.size + v.size; }
};

class EncoderRowsDecoder final : public DecodeCross {
 public:
  EncoderRowsDecoder(const DecodeBuild& build, const layers::AttentionProjections& maps, double scale,
                     ComputeEncoderRows rows)
      : maps_(maps),
        rows_(std::move(rows)),
        heads_(maps.num_heads),
        head_dim_(maps.head_dim),
        width_((maps.head_dim + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep),
        wide_(build.wide_keys()),
        scale_(static_cast<float>(scale)),
        query_(build.pack(maps.q.weight, maps.q.bias)),
        output_(build.pack(maps.o.weight, maps.o.bias)) {}

  std::vector<std::shared_ptr<const EncodedSource>> encode(const at::Tensor& encoder_output,
                                                           const at::Tensor& valid) const override {
    const EncoderRows rows = rows_(encoder_output, valid);
    std::vector<std::shared_ptr<const EncodedSource>> all;
    for (int64_t b = 0; b < rows.k.size(0); ++b) {
      auto stored = std::make_shared<StoredRows>();
      at::Tensor k = rows.k[b], v = rows.v[b];  // [H,M,d]
      if (rows.valid.defined()) {
        const at::Tensor real = rows.valid[b].nonzero().squeeze(1);
        k = k.index_select(1, real);
        v = v.index_select(1, real);
      }
      stored->count = k.size(1);
      stored->k = store(k);
      stored->v = store(v);
      all.push_back(std::move(stored));
    }
    return all;
  }

  void heads(std::span<const EncodedSource* const> sources, const float* x, float* heads) const override {
    thread_local std::vector<float> maps_memory, q_memory;
    const auto count = static_cast<int64_t>(sources.size());
    const int64_t all = heads_ * head_dim_;
    float *maps = at_least(maps_memory, count * all), *q = at_least(q_memory, count * heads_ * width_);
    query_(x, count, query_.in(), maps, all);
    for (int64_t row = 0; row < count * heads_; ++row) {
      for (int64_t c = 0; c < head_dim_; ++c) q[row * width_ + c] = maps[row * head_dim_ + c] * scale_;
      std::fill(q + row * width_ + head_dim_, q + (row + 1) * width_, 0.0f);
    }
    if (wide_) {
      attend<float>(sources, q, heads);
    } else {
      attend<ops::Bf16Bits>(sources, q, heads);
    }
  }

  const ops::PackedLinear& output() const override { return output_; }
  std::vector<at::Tensor> source_weights() const override { return {maps_.k.weight, maps_.v.weight}; }

 private:
  ops::AlignedBytes store(const at::Tensor& rows) const {
    const at::Tensor padded = at::constant_pad_nd(rows.to(at::kFloat), {0, width_ - head_dim_}).contiguous();
    ops::AlignedBytes to(padded.numel() * (wide_ ? 4 : 2));
    if (wide_) {
      ops::copy_row(padded.const_data_ptr<float>(), padded.numel(), to.as<float>());
    } else {
      ops::copy_row(padded.const_data_ptr<float>(), padded.numel(), to.as<ops::Bf16Bits>());
    }
    return to;
  }

  template <class T>
  void attend(std::span<const EncodedSource* const> sources, const float* q, float* heads) const {
    int64_t most = 1;
    for (const EncodedSource* source : sources) most = std::max(most, static_cast<const StoredRows*>(source)->count);
    const auto rows = static_cast<int64_t>(sources.size());
    at::parallel_for(0, rows * heads_, thread_grain(2 * most * width_), [&](int64_t begin, int64_t end) {
      thread_local std::vector<float> memory;
      float *scores = at_least(memory, most + width_), *o = scores + most;
      for (int64_t item = begin; item < end; ++item) {
        const int64_t head = item % heads_;
        const auto& keys = static_cast<const StoredRows&>(*sources[static_cast<size_t>(item / heads_)]);
        float* to = heads + item * head_dim_;
        if (keys.count == 0) {
          std::fill_n(to, head_dim_, 0.0f);
          continue;
        }
        const T *k = keys.k.as<T>() + head * keys.count * width_, *v = keys.v.as<T>() + head * keys.count * width_;
        ops::key_scores<T>(q + item * width_, nullptr, k, nullptr, keys.count, width_, scores);
        const float sum = ops::exp_then_sum<float>(scores, keys.count,
                                                   ops::add_then_max<float>(scores, nullptr, keys.count));
        ops::weigh_values<T>(scores, v, keys.count, width_, o);
        for (int64_t c = 0; c < head_dim_; ++c) to[c] = o[c] / sum;
      }
    });
  }

  const layers::AttentionProjections& maps_;
  ComputeEncoderRows rows_;
  int64_t heads_, head_dim_, width_;
  bool wide_;  // float32, else bf16
  float scale_;
  ops::PackedLinear query_, output_;
};

}  // namespace

std::unique_ptr<DecodeCross> make_encoder_rows_decoder(const DecodeBuild& build,
                                                       const layers::AttentionProjections& maps, double scale,
                                                       ComputeEncoderRows rows) {
  const at::Tensor one = at::zeros({1, 1, maps.k.weight.size(1)}, maps.k.weight.options().requires_grad(false));
  if (!rows(one, {}).k.defined()) return nullptr;
  return std::make_unique<EncoderRowsDecoder>(build, maps, scale, std::move(rows));
}

}  // namespace mnemo::core
