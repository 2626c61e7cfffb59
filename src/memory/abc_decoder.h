#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/decode.h"
#include "memory/abc_control/control.h"

namespace mnemo::memory {

/// The slots of one sequence as plain memory: k, v [H,..,n,width], and a control's additions.
struct AbcDecodeSlots : core::DecodeState {
  std::vector<float> k, v;
  int64_t rows = 0;  ///< with rotary positions: the number of the next row, in the numbering of k
  int64_t used_bytes = 0;
  int64_t num_bytes() const final { return used_bytes; }
};

/// Decoder of ABC: projections, rotary positions and the split into heads; the control defines the slots and how they
/// are read. H heads, d their width, `width` is d padded with zeros to whole vectors.
class AbcDecoder : public core::DecodeAttention {
 public:
  void heads(const core::DecodePass& pass, const float* x, float* heads) const final;
  const ops::PackedLinear& output() const final { return output_; }
  core::State export_state(const core::DecodeState& state, bool open) const final;
  /// The slots carry over, turned back by the rows of the segment.
  bool end_segment(core::DecodeState& state, std::span<const core::KeptKeys>) const override {
    turn_back(static_cast<AbcDecodeSlots&>(state));
    return true;
  }
  int64_t bytes_per_token(int64_t keys) const final;

 protected:
  /// scale: factor of q.K. control [.,D]: an additional projection of the rows, undefined if the control has none.
  AbcDecoder(const core::DecodeBuild& build, const AbcMaps& maps, int64_t slots, double scale,
             const at::Tensor& control = {});
  /// The attention's State from slots whose next row has number 0.
  virtual core::State exported(const core::DecodeState& state) const = 0;

  /// The rows of one piece, projected and split: q scaled, k, v [rows,H,width]; control [rows, control_stride].
  struct Rows {
    const float *q, *k, *v, *control;
    int64_t count, control_stride;
  };
  /// Called in order, once for all heads of a piece: does the work that all heads share.
  virtual void prepare(core::DecodeState& state, const Rows& rows) const = 0;
  /// Processes one head's rows in order: writes them to the slots and reads o [count,d], o_stride apart.
  virtual void run(core::DecodeState& state, int64_t head, const Rows& rows, float* o, int64_t o_stride) const = 0;
  /// Bytes of a sequence's slots.
  virtual int64_t slot_bytes() const = 0;

  int64_t heads_, head_dim_, width_, slots_;

 private:
  /// Rotary positions of the queries and keys in maps [rows,maps_.out()], counting the rows of each sequence.
  void turn(const core::DecodePass& pass, float* maps) const;
  void turn_back(AbcDecodeSlots& slots) const;

  int64_t groups_, dim_;  // heads of keys and values, and the model's width
  float scale_;
  std::vector<double> frequencies_;
  ops::PackedLinear maps_, output_;
};

}  // namespace mnemo::memory
