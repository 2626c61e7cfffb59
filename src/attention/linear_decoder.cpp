#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "attention/decode_features.h"
#include "attention/linear.h"
#include "core/decode.h"
#include "core/draws.h"
#include "core/require_state.h"
#include "ops/attention/rotary.h"
#include "ops/decode/decode_rows.h"
#include "ops/row_kernels.h"

namespace mnemo::attention {
namespace {

/// Running sums of one sequence: s [H,f,width], z [H,f].
struct LinearSumsState final : core::CopiedState<LinearSumsState> {
  std::vector<float> s, z;
  int64_t draw = core::kFixedDraw;
  int64_t rows = 0;               ///< with rotary positions: the number of the next row, in the numbering of s
  std::vector<float> projection;  ///< of a draw other than evaluation's: [H,m,d] in place of DecodeFeatures::weight
  int64_t used_bytes = 0;
  int64_t num_bytes() const override { return used_bytes; }
};

class LinearDecoder final : public core::DecodeAttention {
 public:
  LinearDecoder(const core::DecodeBuild& build, const layers::AttentionProjections& maps, const layers::Linear& gate,
                int64_t features, DecodeFeatures feature_map, const ops::LinearNormaliser& normaliser,
                const std::vector<double>& frequencies, std::function<std::vector<float>(int64_t draw)> projection)
      : heads_(maps.num_heads),
        groups_(maps.num_kv_heads),
        head_dim_(maps.head_dim),
        width_((maps.head_dim + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep),
        features_(features),
        dim_(maps.q.weight.size(1)),
        gated_(gate.weight.defined()),
        feature_map_(std::move(feature_map)),
        normaliser_(normaliser),
        frequencies_(frequencies),
        projection_(std::move(projection)),
        output_(build.pack(maps.o.weight, maps.o.bias)) {
    std::vector<layers::Linear> all = {maps.q, maps.k, maps.v};
    if (gated_) all.push_back(gate);
    maps_ = build.pack(all);
  }

  std::unique_ptr<core::DecodeState> import(const core::State& state, const core::OpenKeys&) const override {
    const auto& sums = state.as<LinearState>();
    core::require_state("linear", sums.s, {1, heads_, features_, head_dim_});
    core::require_state("linear", sums.z, {1, heads_, features_});
    auto made = std::make_unique<LinearSumsState>();
    made->s = core::plain_numbers(at::constant_pad_nd(sums.s, {0, width_ - head_dim_}));
    made->z = core::plain_numbers(sums.z);
    made->used_bytes = sum_bytes();
    core::require_draw("linear", sums.draw, projection_ != nullptr, 1);
    if (projection_ != nullptr) made->draw = sums.draw.item<int64_t>();
    if (made->draw > core::kFixedDraw) made->projection = projection_(made->draw);
    made->used_bytes += static_cast<int64_t>(made->projection.size()) * 4;
    return made;
  }
  core::State export_state(const core::DecodeState& state, bool) const override {
    LinearSumsState own = static_cast<const LinearSumsState&>(state);
    turn_back(own);
    LinearState sums{core::tensor_of(own.s.data(), {1, heads_, features_, width_}).narrow(3, 0, head_dim_).contiguous(),
                     core::tensor_of(own.z.data(), {1, heads_, features_})};
    if (projection_ != nullptr) sums.draw = at::full({1}, own.draw, at::kLong);
    return sums;
  }

  void heads(const core::DecodePass& pass, const float* x, float* heads) const override {
    for (core::DecodeState* state : pass.states) {
      auto& own = static_cast<LinearSumsState&>(*state);
      own.draw = std::max(own.draw, core::kFixedDraw);
    }
    thread_local std::vector<float> maps_memory, angle_memory;
    const auto count = static_cast<int64_t>(pass.rows.size()), pieces = static_cast<int64_t>(pass.pieces.size());
    const int64_t all = heads_ * head_dim_, own = (heads_ + 2 * groups_) * head_dim_, stride = maps_.out(),
                  half = static_cast<int64_t>(frequencies_.size());
    float* maps = core::at_least(maps_memory, count * stride);
    maps_(x, count, dim_, maps, stride);
    for (int64_t row = 0; pass.qkv != nullptr && row < count; ++row)  // without the gate's logits
      std::copy_n(maps + row * stride, own, pass.qkv + row * own);
    float* angles = core::at_least(angle_memory, count * 2 * half);
    for (int64_t row = 0; half > 0 && row < count; ++row) {
      auto& state = static_cast<LinearSumsState&>(
          *pass.states[static_cast<size_t>(pass.rows[static_cast<size_t>(row)].piece)]);
      ops::rotary_angles(state.rows++, frequencies_, angles + 2 * half * row, angles + 2 * half * row + half);
    }
    at::parallel_for(0, pieces * heads_, core::thread_grain(4 * features_ * width_), [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const auto number = static_cast<size_t>(item / heads_);
        const core::DecodePiece& piece = pass.pieces[number];
        for (int64_t row = piece.first_row; row < piece.first_row + piece.rows(); ++row)
          step(static_cast<LinearSumsState&>(*pass.states[number]), item % heads_, maps + row * stride,
               angles + 2 * half * row, heads + row * all);
      }
    });
  }
  const ops::PackedLinear& output() const override { return output_; }
  bool end_segment(core::DecodeState& state, std::span<const core::KeptKeys>) const override {
    turn_back(static_cast<LinearSumsState&>(state));
    return true;
  }
  int64_t bytes_per_token(int64_t) const override { return maps_.num_bytes() + output_.num_bytes() + sum_bytes(); }

 private:
  int64_t sum_bytes() const { return heads_ * features_ * (head_dim_ + 1) * 4; }

  /// s as the next segment takes it.
  void turn_back(LinearSumsState& state) const {
    if (state.rows == 0) return;
    const auto half = static_cast<int64_t>(frequencies_.size());
    std::vector<float> angles(static_cast<size_t>(2 * half));
    ops::rotary_angles(-state.rows, frequencies_, angles.data(), angles.data() + half);
    for (int64_t head = 0; head < heads_; ++head)
      ops::rotate_columns(state.s.data() + head * features_ * width_, angles.data(), angles.data() + half, half,
                          width_);
    state.rows = 0;
  }

  /// One head of one row: writes it, then reads it. maps: q [H*d], k, v [G*d] and the gate's logits [H]; angles:
  /// cosines and sines of the row.
  void step(LinearSumsState& state, int64_t head, const float* maps, const float* angles, float* heads) const {
    thread_local std::vector<float> memory;
    const int64_t f = features_, all = heads_ * head_dim_, of_keys = groups_ * head_dim_,
                  group = head / (heads_ / groups_), half = static_cast<int64_t>(frequencies_.size());
    const float* gates = maps + all + 2 * of_keys;
    float *reading = core::at_least(memory, 3 * f + 2 * width_), *writing = reading + f, *keep = writing + f,
          *value = keep + f, *o = value + width_;
    feature_map_(maps + head * head_dim_, head, head_dim_, f, state.projection, reading);
    feature_map_(maps + all + group * head_dim_, head, head_dim_, f, state.projection, writing);
    std::copy_n(maps + all + of_keys + group * head_dim_, head_dim_, value);
    std::fill(value + head_dim_, value + width_, 0.0f);
    const float gate = gated_ ? 1.0f / (1.0f + std::exp(-gates[head])) : 1.0f;
    const float share = gated_ ? 1.0f / (1.0f + std::exp(gates[head])) : 1.0f;
    float *s = state.s.data() + head * f * width_, *z = state.z.data() + head * f;
    for (int64_t j = 0; j < f; ++j) {
      keep[j] = gate;
      writing[j] *= share;
      z[j] = gate * z[j] + writing[j];
    }
    float divisor = ops::inner_product(reading, z, f);
    if (half > 0) {  // in the numerator alone
      ops::rotate_row(reading, angles, angles + half, half);
      ops::rotate_row(writing, angles, angles + half, half);
    }
    ops::write_rows(s, value, keep, writing, nullptr, f, width_, nullptr);
    ops::weigh_values<float>(reading, s, f, width_, o);
    divisor = divisor_of(normaliser_, divisor, true);
    for (int64_t c = 0; c < head_dim_; ++c) heads[head * head_dim_ + c] = o[c] / divisor;
  }

  int64_t heads_, groups_, head_dim_, width_, features_, dim_;
  bool gated_;
  DecodeFeatures feature_map_;
  ops::LinearNormaliser normaliser_;
  std::vector<double> frequencies_;                             // of rotary positions; empty: none
  std::function<std::vector<float>(int64_t draw)> projection_;  // [H,m,d] of a draw; null: never drawn anew
  ops::PackedLinear maps_, output_;
};

}  // namespace

DecodeFeatures Linear::decode_features() const {
  DecodeFeatures map;
  if (weight_.defined()) {
    map.kind = DecodeFeatures::Kind::t2r;
    map.weight = core::plain_numbers(weight_);
    map.bias = core::plain_numbers(feature_bias_);
  } else if (sigma_.defined()) {
    const bool authors = options_.variant == Options::Variant::authors;
    map.kind = DecodeFeatures::Kind::rfa;
    map.weight = core::plain_numbers(projection({}).detach());
    map.factor = authors ? 0.1f : static_cast<float>(1.0 / std::sqrt(static_cast<double>(random_.size(1))));
    map.eps = authors ? 1e-3f : 0.0f;
  }
  return map;
}

std::unique_ptr<core::DecodeAttention> Linear::decoder(const core::DecodeBuild& build) const {
  layers::Linear gate;
  gate.weight = gate_weight_, gate.bias = gate_bias_;
  std::function<std::vector<float>(int64_t)> projection;
  if (redraws())
    projection = [this](int64_t draw) {
      return core::plain_numbers(this->projection(at::full({1}, draw, at::kLong)).detach().squeeze(0));
    };
  return std::make_unique<LinearDecoder>(build, maps_, gate, num_features_, decode_features(), normaliser_,
                                         frequencies_, std::move(projection));
}

}  // namespace mnemo::attention
