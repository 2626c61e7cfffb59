#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/state.h"
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "layers/parts.h"
#include "ops/linear/packed_linear.h"

/// Decoding token by token is a capability of a mechanism: an attention, layer context, sequence memory or head creates
/// a decoder object that computes the same as its forward() in evaluation, a few rows at a time, from packed weights.
/// Decoders work on float32 in plain memory; once their buffers have grown, they allocate nothing and call no LibTorch
/// operation, except at the end of a segment.
namespace mnemo::core {

class Attention;

/// How to build a decoder.
struct DecodeBuild {
  ops::Precision precision = ops::Precision::float32;
  /// False: the caller only wants to know whether a decoder can be built; weights are not packed.
  bool runs = true;
  /// Rows that see keys to their right: 0, or the length of the block of memory rows that do.
  int64_t looks_right = 0;
  /// Keys and values of the past are to be stored as int8. DecodeAttention::int8_keys() says whether a decoder does.
  bool int8_keys = false;

  ops::PackedLinear pack(const at::Tensor& weight, const at::Tensor& bias) const;
  /// Several maps of the same input, stacked; a missing bias is zero if another map has one.
  ops::PackedLinear pack(const std::vector<layers::Linear>& maps) const;
  /// Whether keys and values of the past are stored as float32 (with float32 weights) rather than bf16.
  bool wide_keys() const { return precision == ops::Precision::float32; }
};

/// A decoder's state for one sequence; each decoder has its own struct.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
  virtual std::unique_ptr<DecodeState> clone() const = 0;
  /// Bytes in use.
  virtual int64_t num_bytes() const = 0;
};

/// DecodeState for a struct that can be copied.
template <class S, class Base = DecodeState>
class CopiedState : public Base {
 public:
  std::unique_ptr<DecodeState> clone() const final { return std::make_unique<S>(static_cast<const S&>(*this)); }
};

/// Consecutive rows of one sequence in a pass, [read; tokens; write]: memory rows to read, tokens, memory rows to
/// write. The first piece of a segment includes its read rows, the last its write rows.
struct DecodePiece {
  int64_t first_row = 0;  ///< within the pass
  int64_t read = 0, tokens = 0, write = 0;
  bool starts = true, ends = false;
  int64_t rows() const { return read + tokens + write; }
};

/// A row of a pass. Keys are numbered within [context; rows of the open segment] of its sequence.
struct DecodeRow {
  int64_t piece;   ///< index of its sequence's piece
  int64_t key;     ///< its own key
  int64_t lo, hi;  ///< it sees the keys lo .. hi-1
};

/// The input of one layer: up to 64 rows of several sequences.
struct DecodePass {
  std::span<const DecodePiece> pieces;
  std::span<const DecodeRow> rows;
  std::span<DecodeState* const> states;  ///< of this layer, one per piece
  /// [rows,3*H*d] or null (with k and v of G heads: (H+2G)*d). If given, an attention with projections() also stores q,
  /// k and v of each row here, for the mechanism that wraps it.
  float* qkv = nullptr;
};

/// A range of keys that a layer keeps after a segment has ended: `count` of [context; segment], starting at `from`, or,
/// if `rows` is not null, keys still to be computed from these rows [count,D].
struct KeptKeys {
  int64_t from = 0, count = 0;
  const float* rows = nullptr;
};

/// How many keys an imported sequence has: `context` rows of a layer context that the open segment sees, and `segment`
/// rows of that segment, without padding. Both are 0 between segments.
struct OpenKeys {
  int64_t context = 0, segment = 0;
  bool open = false;
};

/// Decoder of an attention: rows of several sequences in, heads out.
class DecodeAttention {
 public:
  virtual ~DecodeAttention() = default;
  /// Converts the attention's State to the state of one sequence and back.
  virtual std::unique_ptr<DecodeState> import(const State& state, const OpenKeys& keys) const = 0;
  virtual State export_state(const DecodeState& state, bool open) const = 0;
  /// Runs the rows of a pass: x [rows,D] as the attention receives them -> heads [rows,output().in()], before the
  /// output projection. Rows of one piece run in order; the result for a row does not depend on the rows of other
  /// sequences.
  virtual void heads(const DecodePass& pass, const float* x, float* heads) const = 0;
  virtual const ops::PackedLinear& output() const = 0;
  /// Whether all keys and values that it keeps are int8.
  virtual bool int8_keys() const { return false; }
  /// Throws InputError, before anything has run, if a sequence has no positions left for `rows` more rows.
  virtual void require_places(const DecodeState& /*state*/, int64_t /*rows*/) const {}
  /// Called when the segment has ended. The layer keeps these keys, in ascending order; their rows are as passed to
  /// heads(). Returns false if it does not hold all of them; it is then called again with all rows of the context, to
  /// recompute them.
  virtual bool end_segment(DecodeState& state, std::span<const KeptKeys> kept) const = 0;
  /// Bytes of weights and state that are read to decode a token after `keys` keys.
  virtual int64_t bytes_per_token(int64_t keys) const = 0;
};

/// Decoder of a layer context: stores rows that entered the layers and decides which of them the next segment sees.
class DecodeContext {
 public:
  /// A segment; `read` and `write`: its memory rows.
  struct Segment {
    OpenKeys keys;
    int64_t read = 0, write = 0;
  };
  virtual ~DecodeContext() = default;
  /// Throws InputError if the state does not hold as many rows as the open segment leaves.
  virtual std::unique_ptr<DecodeState> import(const State& state, const Segment& segment) const = 0;
  virtual State export_state(const DecodeState& state, bool open) const = 0;
  /// The maximum number of keys that a token's row sees, including its own; 0: all.
  virtual int64_t band() const { return 0; }
  /// Makes room for the rows of a piece.
  virtual void reserve(DecodeState& state, const DecodePiece& piece) const = 0;
  /// Receives the rows of a piece [rows,D] that enter layer `layer`, before any norm.
  virtual void enter(DecodeState& state, int64_t layer, const DecodePiece& piece, const float* rows) const = 0;
  /// Called when all layers have run.
  virtual void leave(DecodeState& state, const DecodePiece& piece) const = 0;
  /// Called when the segment has ended. kept() appends, for layer `layer`, the keys that the next segment sees; the
  /// pointers in `kept` stay valid until the next call that changes the state.
  virtual void end_segment(DecodeState& state, const Segment& segment) const = 0;
  virtual void kept(const DecodeState& state, int64_t layer, const Segment& segment,
                    std::vector<KeptKeys>& kept) const = 0;
  /// Between segments: the rows that layer `layer` sees to the left of the next segment, [count(),D].
  virtual const float* rows(const DecodeState& state, int64_t layer) const = 0;
  virtual int64_t count(const DecodeState& state) const = 0;
};

/// Decoder of a sequence memory: memory rows before and after a segment.
class DecodeSequence {
 public:
  /// Memory rows before and after a segment, and what they see.
  struct Rows {
    int64_t read = 0, write = 0;
    bool causal = false;        ///< a memory row sees only those to its left within its block
    bool sees_context = false;  ///< memory rows also see the rows of a layer context
  };
  virtual ~DecodeSequence() = default;
  virtual Rows rows() const = 0;
  virtual std::unique_ptr<DecodeState> import(const State& state) const = 0;
  virtual State export_state(const DecodeState& state) const = 0;
  /// The memory rows that enter the backbone, [max(read, write),D].
  virtual const float* entering(const DecodeState& state) const = 0;
  /// hidden [rows,D]: the piece's rows after the backbone.
  virtual void leave(DecodeState& state, const DecodePiece& piece, const float* hidden) const = 0;
};

/// Decoder of a head.
class DecodeHead {
 public:
  virtual ~DecodeHead() = default;
  /// hidden [rows,D], contiguous -> logits [rows,V].
  virtual void logits(const float* hidden, int64_t rows, float* logits) const = 0;
  virtual int64_t num_bytes() const = 0;
};

/// The parts of a backbone of identical layers that an engine runs itself; handles to the model's parameters.
///   post: h <- LN1(h + attn(h)); h <- LN2(h + ffn(h))
///   pre:  h <- h + attn(LN1(h)); h <- h + ffn(LN2(h)); parallel: h <- h + attn(LN1(h)) + ffn(LN2(h))
/// with a branch for the cross-attention between the two, if there is one.
struct DecodeStack {
  struct Layer {
    std::string name;  ///< name of its attention's state within the backbone's state
    const Attention* attention = nullptr;
    layers::Norm norm1, norm2;
    layers::FeedForward ffn;
    const Attention* cross = nullptr;  ///< attention to an encoder's output; null: none
    layers::Norm cross_norm = {};
  };
  std::vector<Layer> layers;
  bool pre_norm = false;
  bool parallel_residual = false;
  layers::Norm final_norm;  ///< without weight: none
  at::Tensor positions;     ///< [P,D], learned; undefined: none
  /// Frequencies of sinusoidal positions; empty: none. Position p adds [sin .., cos ..] of
  /// (p + first_position) * frequencies.
  std::vector<double> frequencies;
  int64_t first_position = 0;
};

// Helpers for writing decoders.

/// How many rows of a state's dimension M are left padding. valid [1,M] bool. Throws InputError if there is padding
/// anywhere else.
int64_t left_padding(const at::Tensor& valid);
/// The values of a tensor, as float32.
std::vector<float> plain_numbers(const at::Tensor& tensor);
/// A tensor with a copy of these values.
at::Tensor tensor_of(const float* numbers, at::IntArrayRef sizes);
/// Grows the buffer to at least `size` values; its contents may be lost.
inline float* at_least(std::vector<float>& memory, int64_t size) {
  if (static_cast<int64_t>(memory.size()) < size) memory.resize(static_cast<size_t>(size + size / 2));
  return memory.data();
}
/// Number of products that justifies a second thread.
inline constexpr int64_t kProductsOfAThread = 1 << 16;
inline int64_t thread_grain(int64_t products) { return std::max<int64_t>(1, kProductsOfAThread / products); }

}  // namespace mnemo::core
