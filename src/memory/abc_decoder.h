#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/decode.h"
#include "layers/parts.h"

namespace mnemo::memory {

/// Decoder of ABC: projections and the split into heads; the control defines the slots and how they are read. H heads,
/// d their width, `width` is d padded with zeros to whole vectors.
class AbcDecoder : public core::DecodeAttention {
 public:
  void heads(const core::DecodePass& pass, const float* x, float* heads) const final;
  const ops::PackedLinear& output() const final { return output_; }
  /// The slots carry over unchanged.
  bool end_segment(core::DecodeState&, std::span<const core::KeptKeys>) const override { return true; }
  int64_t bytes_per_token(int64_t keys) const final;

 protected:
  /// scale: factor of q.K. control [.,D]: an additional projection of the rows, undefined if the control has none.
  AbcDecoder(const core::DecodeBuild& build, const layers::AttentionProjections& maps, int64_t slots, double scale,
             const at::Tensor& control = {});

  /// The rows of one piece, projected and split: q scaled, k, v [rows,H,width]; control [rows, control_stride].
  struct Rows {
    const float *q, *k, *v, *control;
    int64_t count, control_stride;
  };
  /// Called in order, once for all heads of a piece: does what is independent of the head.
  virtual void prepare(core::DecodeState& state, const Rows& rows) const = 0;
  /// Processes one head's rows in order: writes them to the slots and reads o [count,d], o_stride apart.
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
