#include "memory/abc_decoder.h"

#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/error.h"
#include "core/grouped_queries.h"
#include "memory/abc.h"
#include "ops/attention/rotary.h"
#include "ops/decode/decode_rows.h"

namespace mnemo::memory {

std::unique_ptr<core::DecodeAttention> Abc::decoder(const core::DecodeBuild& build) const {
  return control_->decoder(build, {maps_, frequencies_});
}

std::unique_ptr<core::DecodeCross> Abc::cross_decoder(const core::DecodeBuild& build) const {
  return core::make_encoder_rows_decoder(
      build, maps_, scale_, [this](const at::Tensor& encoder_output, const at::Tensor& valid) {
        // The content of the slots does not depend on the query.
        const auto [q, k, v] = maps_.heads(encoder_output.narrow(1, 0, 1), encoder_output);
        const at::Tensor keys = core::for_queries(k, maps_.num_heads), values = core::for_queries(v, maps_.num_heads);
        return control_->attend({q, keys, values, encoder_output, valid, {}, {}}, {}).slots_read;
      });
}

AbcDecoder::AbcDecoder(const core::DecodeBuild& build, const AbcMaps& maps, int64_t slots, double scale,
                       const at::Tensor& control)
    : heads_(maps.projections.num_heads),
      head_dim_(maps.projections.head_dim),
      width_((head_dim_ + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep),
      slots_(slots),
      groups_(maps.projections.num_kv_heads),
      dim_(maps.projections.q.weight.size(1)),
      scale_(static_cast<float>(scale)),
      frequencies_(maps.frequencies),
      output_(build.pack(maps.projections.o.weight, maps.projections.o.bias)) {
  std::vector<layers::Linear> all = {maps.projections.q, maps.projections.k, maps.projections.v};
  if (control.defined()) {
    all.emplace_back();
    all.back().weight = control;
  }
  maps_ = build.pack(all);
}

core::State AbcDecoder::export_state(const core::DecodeState& state, bool) const {
  if (static_cast<const AbcDecodeSlots&>(state).rows == 0) return exported(state);
  const std::unique_ptr<core::DecodeState> copy = state.clone();
  turn_back(static_cast<AbcDecodeSlots&>(*copy));
  return exported(*copy);
}

void AbcDecoder::turn_back(AbcDecodeSlots& slots) const {
  if (slots.rows == 0) return;
  const auto half = static_cast<int64_t>(frequencies_.size());
  std::vector<float> angles(static_cast<size_t>(2 * half));
  ops::rotary_angles(-slots.rows, frequencies_, angles.data(), angles.data() + half);
  for (size_t at = 0; at < slots.k.size(); at += static_cast<size_t>(width_))
    ops::rotate_row(slots.k.data() + at, angles.data(), angles.data() + half, half);
  slots.rows = 0;
}

void AbcDecoder::turn(const core::DecodePass& pass, float* maps) const {
  thread_local std::vector<float> angle_memory;
  const auto half = static_cast<int64_t>(frequencies_.size());
  float* angles = core::at_least(angle_memory, 2 * half);
  for (const core::DecodeRow& row : pass.rows) {
    ops::rotary_angles(static_cast<AbcDecodeSlots&>(*pass.states[static_cast<size_t>(row.piece)]).rows++, frequencies_,
                       angles, angles + half);
    // Queries and, right after them, keys.
    for (int64_t head = 0; head < heads_ + groups_; ++head)
      ops::rotate_row(maps + head * head_dim_, angles, angles + half, half);
    maps += maps_.out();
  }
}

void AbcDecoder::heads(const core::DecodePass& pass, const float* x, float* heads) const {
  thread_local std::vector<float> maps_memory, q_memory, k_memory, v_memory;
  const auto count = static_cast<int64_t>(pass.rows.size()), pieces = static_cast<int64_t>(pass.pieces.size());
  const int64_t all = heads_ * head_dim_, stride = maps_.out(), split = heads_ * width_, share = heads_ / groups_,
                places[] = {0, all, all + groups_ * head_dim_}, control = all + 2 * groups_ * head_dim_;
  float* maps = core::at_least(maps_memory, count * stride);
  float* const parts[] = {core::at_least(q_memory, count * split), core::at_least(k_memory, count * split),
                          core::at_least(v_memory, count * split)};
  maps_(x, count, dim_, maps, stride);
  if (!frequencies_.empty()) turn(pass, maps);
  for (int64_t i = 0; i < count; ++i) {
    for (int part = 0; part < 3; ++part) {
      for (int64_t head = 0; head < heads_; ++head) {
        const float* from = maps + i * stride + places[part] + (part == 0 ? head : head / share) * head_dim_;
        float* to = parts[part] + i * split + head * width_;
        for (int64_t c = 0; c < head_dim_; ++c) to[c] = part == 0 ? from[c] * scale_ : from[c];
        std::fill(to + head_dim_, to + width_, 0.0f);
      }
    }
  }
  const auto rows_of = [&](const core::DecodePiece& piece) {
    const int64_t at = piece.first_row * split;
    return Rows{parts[0] + at, parts[1] + at, parts[2] + at, maps + piece.first_row * stride + control,
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
