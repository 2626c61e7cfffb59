#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "attention/decode_features.h"
#include "attention/linear.h"
#include "core/decode.h"
#include "core/decode_cross.h"
#include "core/grouped_queries.h"
#include "ops/decode/decode_rows.h"
#include "ops/row_kernels.h"

namespace mnemo::attention {
namespace {

/// The sums over a source: s [H,f,width], the head's width padded with zeros, z [H,f].
struct SourceSums final : core::EncodedSource {
  std::vector<float> s, z;
  int64_t num_bytes() const override { return static_cast<int64_t>((s.size() + z.size()) * sizeof(float)); }
};

/// encoder_output [B,S,D], valid [B,S] bool or undefined -> the sums s [B,H,f,d], z [B,H,f].
using SumSource = std::function<LinearState(const at::Tensor& encoder_output, const at::Tensor& valid)>;

class LinearCrossDecoder final : public core::DecodeCross {
 public:
  LinearCrossDecoder(const core::DecodeBuild& build, const layers::AttentionProjections& maps, int64_t features,
                     DecodeFeatures feature_map, const ops::LinearNormaliser& normaliser, SumSource sums)
      : maps_(maps),
        heads_(maps.num_heads),
        head_dim_(maps.head_dim),
        width_((maps.head_dim + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep),
        features_(features),
        feature_map_(std::move(feature_map)),
        normaliser_(normaliser),
        sums_(std::move(sums)),
        query_(build.pack(maps.q.weight, maps.q.bias)),
        output_(build.pack(maps.o.weight, maps.o.bias)) {}

  std::vector<std::shared_ptr<const core::EncodedSource>> encode(const at::Tensor& encoder_output,
                                                                 const at::Tensor& valid) const override {
    const LinearState sums = sums_(encoder_output, valid);
    const at::Tensor s = at::constant_pad_nd(sums.s, {0, width_ - head_dim_});
    std::vector<std::shared_ptr<const core::EncodedSource>> all;
    for (int64_t b = 0; b < s.size(0); ++b) {
      auto source = std::make_shared<SourceSums>();
      source->s = core::plain_numbers(s[b]);
      source->z = core::plain_numbers(sums.z[b]);
      all.push_back(std::move(source));
    }
    return all;
  }

  void heads(std::span<const core::EncodedSource* const> sources, const float* x, float* heads) const override {
    thread_local std::vector<float> maps_memory;
    const auto rows = static_cast<int64_t>(sources.size());
    const int64_t all = heads_ * head_dim_, f = features_;
    float* q = core::at_least(maps_memory, rows * all);
    query_(x, rows, query_.in(), q, all);
    at::parallel_for(0, rows * heads_, core::thread_grain(2 * f * width_), [&](int64_t begin, int64_t end) {
      thread_local std::vector<float> memory;
      float *reading = core::at_least(memory, f + width_), *o = reading + f;
      for (int64_t item = begin; item < end; ++item) {
        const int64_t head = item % heads_;
        const auto& source = static_cast<const SourceSums&>(*sources[static_cast<size_t>(item / heads_)]);
        feature_map_(q + item * head_dim_, head, head_dim_, f, {}, reading);
        const float sum = ops::inner_product(reading, source.z.data() + head * f, f),
                    divisor = divisor_of(normaliser_, sum, false);
        ops::weigh_values<float>(reading, source.s.data() + head * f * width_, f, width_, o);
        for (int64_t c = 0; c < head_dim_; ++c) heads[item * head_dim_ + c] = o[c] / divisor;
      }
    });
  }

  const ops::PackedLinear& output() const override { return output_; }
  std::vector<at::Tensor> source_weights() const override { return {maps_.k.weight, maps_.v.weight}; }

 private:
  const layers::AttentionProjections& maps_;
  int64_t heads_, head_dim_, width_, features_;
  DecodeFeatures feature_map_;
  ops::LinearNormaliser normaliser_;
  SumSource sums_;
  ops::PackedLinear query_, output_;
};

}  // namespace

std::unique_ptr<core::DecodeCross> Linear::cross_decoder(const core::DecodeBuild& build) const {
  return std::make_unique<LinearCrossDecoder>(
      build, maps_, num_features_, decode_features(), normaliser_,
      [this](const at::Tensor& encoder_output, const at::Tensor& valid) {
        const at::Tensor k = core::for_queries(maps_.split(maps_.k(encoder_output)), maps_.num_heads),
                         v = core::for_queries(maps_.split(maps_.v(encoder_output)), maps_.num_heads);
        at::Tensor written = features(k, projection({}));  // [B,H,S,f]
        if (valid.defined()) written = written.masked_fill(valid.logical_not().unsqueeze(1).unsqueeze(-1), 0.0);
        return LinearState{at::matmul(written.transpose(2, 3), v), written.sum(2)};
      });
}

}  // namespace mnemo::attention
