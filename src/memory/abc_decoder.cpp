#include "memory/abc_decoder.h"

#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/error.h"
#include "memory/abc.h"
#include "ops/decode/decode_rows.h"

namespace mnemo::memory {

std::unique_ptr<core::DecodeAttention> Abc::decoder(const core::DecodeBuild& build) const {
  return control_->decoder(build, maps_);
}

AbcDecoder::AbcDecoder(const core::DecodeBuild& build, const layers::AttentionProjections& maps, int64_t slots,
                       double scale, const at::Tensor& control)
    : heads_(maps.num_heads),
      head_dim_(maps.head_dim),
      width_((maps.head_dim + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep),
      slots_(slots),
      dim_(maps.q.weight.size(1)),
      scale_(static_cast<float>(scale)),
      output_(build.pack(maps.o.weight, maps.o.bias)) {
  std::vector<layers::Linear> all = {maps.q, maps.k, maps.v};
  if (control.defined()) {
    all.emplace_back();
    all.back().weight = control;
  }
  maps_ = build.pack(all);
}

void AbcDecoder::heads(const core::DecodePass& pass, const float* x, float* heads) const {
  thread_local std::vector<float> maps_memory, q_memory, k_memory, v_memory;
  const auto count = static_cast<int64_t>(pass.rows.size()), pieces = static_cast<int64_t>(pass.pieces.size());
  const int64_t all = heads_ * head_dim_, stride = maps_.out(), split = heads_ * width_;
  float* maps = core::at_least(maps_memory, count * stride);
  float* const parts[] = {core::at_least(q_memory, count * split), core::at_least(k_memory, count * split),
                          core::at_least(v_memory, count * split)};
  maps_(x, count, dim_, maps, stride);
  for (int64_t i = 0; i < count; ++i) {
    for (int part = 0; part < 3; ++part) {
      for (int64_t head = 0; head < heads_; ++head) {
        const float* from = maps + i * stride + part * all + head * head_dim_;
        float* to = parts[part] + i * split + head * width_;
        for (int64_t c = 0; c < head_dim_; ++c) to[c] = part == 0 ? from[c] * scale_ : from[c];
        std::fill(to + head_dim_, to + width_, 0.0f);
      }
    }
  }
  const auto rows_of = [&](const core::DecodePiece& piece) {
    const int64_t at = piece.first_row * split;
    return Rows{parts[0] + at, parts[1] + at, parts[2] + at, maps + piece.first_row * stride + 3 * all,
                piece.rows(),  stride};
  };
  for (int64_t i = 0; i < pieces; ++i)
    prepare(*pass.states[static_cast<size_t>(i)], rows_of(pass.pieces[static_cast<size_t>(i)]));
  at::parallel_for(0, pieces * heads_, core::thread_grain(4 * slots_ * width_), [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const auto number = static_cast<size_t>(item / heads_);
      const core::DecodePiece& piece = pass.pieces[number];
      const int64_t head = item % heads_;
      run(*pass.states[number], head, rows_of(piece), heads + piece.first_row * all + head * head_dim_, all);
    }
  });
}

int64_t AbcDecoder::bytes_per_token(int64_t) const { return maps_.num_bytes() + output_.num_bytes() + slot_bytes(); }

}  // namespace mnemo::memory
