#include "infer/cross_decoder.h"

#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/decode/decode_rows.h"
#include "ops/row_kernels.h"

namespace mnemo::infer {

CrossDecoder::CrossDecoder(const core::ReadsEncoder& attention, const core::DecodeBuild& build)
    : attention_(attention), wide_(build.wide_keys()) {
  const layers::AttentionProjections& maps = attention.cross_projections();
  heads_ = maps.num_heads;
  head_dim_ = maps.head_dim;
  width_ = (head_dim_ + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep;
  query_ = build.pack(maps.q.weight, maps.q.bias);
  output_ = build.pack(maps.o.weight, maps.o.bias);
  const at::Tensor one = at::zeros({1, 1, maps.q.weight.size(1)}, maps.q.weight.options().requires_grad(false));
  scale_ = static_cast<float>(attention.encoder_rows(one, {}).scale);
}

std::vector<at::Tensor> CrossDecoder::source_weights() const {
  const layers::AttentionProjections& maps = attention_.cross_projections();
  return {maps.k.weight, maps.v.weight};
}

std::vector<std::shared_ptr<const EncodedKeys>> CrossDecoder::encode(const at::Tensor& encoder_output,
                                                                     const at::Tensor& valid) const {
  const core::EncoderRows rows = attention_.encoder_rows(encoder_output, valid);
  std::vector<std::shared_ptr<const EncodedKeys>> all;
  for (int64_t b = 0; b < rows.k.size(0); ++b) {
    auto keys = std::make_shared<EncodedKeys>();
    at::Tensor k = rows.k[b], v = rows.v[b];  // [H,M,d]
    if (rows.valid.defined()) {
      const at::Tensor real = rows.valid[b].nonzero().squeeze(1);
      k = k.index_select(1, real);
      v = v.index_select(1, real);
    }
    keys->count = k.size(1);
    const auto store = [&](const at::Tensor& from, ops::AlignedBytes& to) {
      const at::Tensor padded = at::constant_pad_nd(from.to(at::kFloat), {0, width_ - head_dim_}).contiguous();
      to = ops::AlignedBytes(padded.numel() * (wide_ ? 4 : 2));
      if (wide_) {
        ops::copy_row(padded.const_data_ptr<float>(), padded.numel(), to.as<float>());
      } else {
        ops::copy_row(padded.const_data_ptr<float>(), padded.numel(), to.as<ops::Bf16Bits>());
      }
    };
    store(k, keys->k);
    store(v, keys->v);
    all.push_back(std::move(keys));
  }
  return all;
}

void CrossDecoder::heads(std::span<const EncodedKeys* const> encoded, const float* x, float* heads) const {
  thread_local std::vector<float> maps_memory, q_memory;
  const auto count = static_cast<int64_t>(encoded.size());
  const int64_t all = heads_ * head_dim_;
  float *maps = core::at_least(maps_memory, count * all), *q = core::at_least(q_memory, count * heads_ * width_);
  query_(x, count, query_.in(), maps, all);
  for (int64_t row = 0; row < count * heads_; ++row) {
    for (int64_t c = 0; c < head_dim_; ++c) q[row * width_ + c] = maps[row * head_dim_ + c] * scale_;
    std::fill(q + row * width_ + head_dim_, q + (row + 1) * width_, 0.0f);
  }
  if (wide_) {
    attend<float>(encoded, q, heads);
  } else {
    attend<ops::Bf16Bits>(encoded, q, heads);
  }
}

template <class T>
void CrossDecoder::attend(std::span<const EncodedKeys* const> encoded, const float* q, float* heads) const {
  int64_t most = 1;
  for (const EncodedKeys* keys : encoded) most = std::max(most, keys->count);
  const auto rows = static_cast<int64_t>(encoded.size());
  at::parallel_for(0, rows * heads_, core::thread_grain(2 * most * width_), [&](int64_t begin, int64_t end) {
    thread_local std::vector<float> memory;
    float *scores = core::at_least(memory, most + width_), *o = scores + most;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / heads_, head = item % heads_;
      const EncodedKeys& keys = *encoded[static_cast<size_t>(row)];
      const T *k = keys.k.as<T>() + head * keys.count * width_, *v = keys.v.as<T>() + head * keys.count * width_;
      ops::key_scores<T>(q + item * width_, nullptr, k, nullptr, keys.count, width_, scores);
      const float sum = ops::exp_then_sum<float>(scores, keys.count,
                                                 ops::add_then_max<float>(scores, nullptr, keys.count));
      ops::weigh_values<T>(scores, v, keys.count, width_, o);
      float* to = heads + item * head_dim_;
      for (int64_t c = 0; c < head_dim_; ++c) to[c] = o[c] / sum;
    }
  });
}

std::unique_ptr<CrossDecoder> make_cross_decoder(const core::Attention& attention, const core::DecodeBuild& build) {
  const auto* reads = dynamic_cast<const core::ReadsEncoder*>(&attention);
  if (reads == nullptr) return nullptr;
  const at::Tensor& weight = reads->cross_projections().q.weight;
  const at::Tensor one = at::zeros({1, 1, weight.size(1)}, weight.options().requires_grad(false));
  if (!reads->encoder_rows(one, {}).k.defined()) return nullptr;
  return std::make_unique<CrossDecoder>(*reads, build);
}

}  // namespace mnemo::infer
