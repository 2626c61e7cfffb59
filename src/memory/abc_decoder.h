#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/decode.h"
#include "layers/parts.h"

namespace mnemo::memory {

/// ABC, decoding: the maps and the split into heads; what slots are and how they are read is the control's.
/// H heads, d their width, `width` padded with zeros to whole vectors.
class AbcDecoder : public core::DecodeAttention {
 public:
  void heads(const core::DecodePass& pass, const float* x, float* heads) const final;
  const ops::PackedLinear& output() const final { return output_; }
  /// The slots are carried on as they are.
  bool end_segment(core::DecodeState&, std::span<const core::KeptKeys>) const final { return true; }
  int64_t bytes_per_token(int64_t keys) const final;

 protected:
  /// scale: of q.K. control [.,D]: one more map of the rows, undefined where the control has none.
  AbcDecoder(const core::DecodeBuild& build, const layers::AttentionProjections& maps, int64_t slots, double scale,
             const at::Tensor& control = {});

  /// Rows of one piece, split: q scaled, k, v [rows,H,width]; control [rows, control_stride].
  struct Rows {
    const float *q, *k, *v, *control;
    int64_t count, control_stride;
  };
  /// For all heads of a piece, in order: what does not go by head.
  virtual void prepare(core::DecodeState& state, const Rows& rows) const = 0;
  /// One head's rows, in order: writes them and reads o [count,d], o_stride apart.
  virtual void run(core::DecodeState& state, int64_t head, const Rows& rows, float* o, int64_t o_stride) const = 0;
  /// Bytes of a sequence's slots.
  virtual int64_t slot_bytes() const = 0;

  int64_t heads_, head_dim_, width_, slots_;

 private:
  int64_t dim_;
  float scale_;
  ops::PackedLinear maps_, output_;
};

}  // namespace mnemo::memory
