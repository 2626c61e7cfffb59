#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/state.h"
#include "layers/parts.h"
#include "ops/linear/packed_linear.h"

/// Decoding token by token as a capability of a mechanism: an attention, a layer context, a sequence memory or a head
/// makes an object that computes what its forward() computes in evaluation, a few rows at a time, from packed weights.
/// The objects work on float32 in plain memory; once their memory has grown they allocate nothing and call no LibTorch
/// operation, but where a segment ends.
namespace mnemo::core {

class Attention;

/// What a decoder is made with.
struct DecodeBuild {
  ops::Precision precision = ops::Precision::float32;
  /// False: nobody is going to run it; the caller asks only whether it can be made. Weights are not packed then.
  bool runs = true;
  /// Rows that see keys on their right: 0, or the length of the block of memory rows that do.
  int64_t looks_right = 0;

  ops::PackedLinear pack(const at::Tensor& weight, const at::Tensor& bias) const;
  /// Several maps of the same input, one below another; missing biases are zero where another map has one.
  ops::PackedLinear pack(const std::vector<layers::Linear>& maps) const;
  /// Keys and values of the past: float32 beside float32 weights, else bf16.
  bool wide_keys() const { return precision == ops::Precision::float32; }
};

/// What a decoder keeps of one sequence; each decoder has a struct of its own.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
  virtual std::unique_ptr<DecodeState> clone() const = 0;
  /// Bytes that are in use.
  virtual int64_t num_bytes() const = 0;
};

/// DecodeState of a struct that can be copied.
template <class S>
class CopiedState : public DecodeState {
 public:
  std::unique_ptr<DecodeState> clone() const final { return std::make_unique<S>(static_cast<const S&>(*this)); }
};

/// Consecutive rows of one sequence in a pass, [read; tokens; write]: memory rows that are read, tokens, memory rows
/// that are written. The first piece of a segment has its read rows, the last its write rows.
struct DecodePiece {
  int64_t first_row = 0;  ///< within the pass
  int64_t read = 0, tokens = 0, write = 0;
  bool starts = true, ends = false;
  int64_t rows() const { return read + tokens + write; }
};

/// A row of a pass. Keys are numbered within [context; rows of the open segment] of its sequence.
struct DecodeRow {
  int64_t piece;   ///< its sequence
  int64_t key;     ///< its own key
  int64_t lo, hi;  ///< it sees the keys lo .. hi-1
};

/// What one layer is given: up to 64 rows of several sequences.
struct DecodePass {
  std::span<const DecodePiece> pieces;
  std::span<const DecodeRow> rows;
  std::span<DecodeState* const> states;  ///< the layer's, one for each piece
  /// [rows,3*H*d], where not null: an attention with projections() also puts q, k and v of each row here, for who wraps
  /// it.
  float* qkv = nullptr;
};

/// A run of the keys that a layer goes on with when a segment has ended: `count` of [context; segment] from number
/// `from` on, or, where `rows` is not null, keys that are still to be made of these rows [count,D].
struct KeptKeys {
  int64_t from = 0, count = 0;
  const float* rows = nullptr;
};

/// How many keys a sequence has when it is imported: `context` rows of a layer context that the open segment sees, and
/// `segment` rows of that segment, padding left out. Both are 0 between segments.
struct OpenKeys {
  int64_t context = 0, segment = 0;
  bool open = false;
};

/// An attention, decoding: rows of several sequences in, heads out.
class DecodeAttention {
 public:
  virtual ~DecodeAttention() = default;
  /// State of one sequence from the attention's State and back.
  virtual std::unique_ptr<DecodeState> import(const State& state, const OpenKeys& keys) const = 0;
  virtual State export_state(const DecodeState& state, bool open) const = 0;
  /// Runs the rows of a pass: x [rows,D] as the attention gets them -> heads [rows,output().in()], before the output
  /// projection. Rows of one piece run in order; what a row gives does not depend on other sequences' rows.
  virtual void heads(const DecodePass& pass, const float* x, float* heads) const = 0;
  virtual const ops::PackedLinear& output() const = 0;
  /// Throws InputError, before anything has run, where a sequence has no places for `rows` more rows.
  virtual void require_places(const DecodeState& /*state*/, int64_t /*rows*/) const {}
  /// The segment has ended, and the layer goes on with these keys, ascending, rows as heads() gets them. False: it does
  /// not hold all of them; then it is called again with all rows of the context, to be made anew.
  virtual bool end_segment(DecodeState& state, std::span<const KeptKeys> kept) const = 0;
  /// Bytes of weights and of state that a token reads behind `keys` keys.
  virtual int64_t bytes_per_token(int64_t keys) const = 0;
};

/// A layer context, decoding: it keeps rows that entered the layers and says which of them the next segment sees.
class DecodeContext {
 public:
  virtual ~DecodeContext() = default;
  virtual std::unique_ptr<DecodeState> import(const State& state) const = 0;
  virtual State export_state(const DecodeState& state, bool open) const = 0;
  /// Keys that a token's row sees at most, its own included; 0: all.
  virtual int64_t band() const { return 0; }
  /// Makes room for the rows of a piece.
  virtual void reserve(DecodeState& state, const DecodePiece& piece) const = 0;
  /// Takes the rows of a piece [rows,D] that enter layer `layer`, before any norm.
  virtual void enter(DecodeState& state, int64_t layer, const DecodePiece& piece, const float* rows) const = 0;
  /// All layers have run.
  virtual void leave(DecodeState& state, const DecodePiece& piece) const = 0;
  /// The segment has ended. Appends, for layer `layer`, the keys that the next one sees; rows in `kept` are good until
  /// the next call that changes the state. `read` and `write`: memory rows of the segment.
  struct Segment {
    OpenKeys keys;
    int64_t read = 0, write = 0;
  };
  virtual void end_segment(DecodeState& state, const Segment& segment) const = 0;
  virtual void kept(const DecodeState& state, int64_t layer, const Segment& segment,
                    std::vector<KeptKeys>& kept) const = 0;
  /// Between segments: the rows that layer `layer` sees on the left of the next segment, [count(),D].
  virtual const float* rows(const DecodeState& state, int64_t layer) const = 0;
  virtual int64_t count(const DecodeState& state) const = 0;
};

/// A sequence memory, decoding: memory rows around a segment.
class DecodeSequence {
 public:
  /// Memory rows in front of a segment and behind it, and whom they see.
  struct Rows {
    int64_t read = 0, write = 0;
    bool causal = false;        ///< a memory row sees those of its block on its left alone
    bool sees_context = false;  ///< and the rows of a layer context
  };
  virtual ~DecodeSequence() = default;
  virtual Rows rows() const = 0;
  virtual std::unique_ptr<DecodeState> import(const State& state) const = 0;
  virtual State export_state(const DecodeState& state) const = 0;
  /// The memory rows that enter, [max(read, write),D].
  virtual const float* entering(const DecodeState& state) const = 0;
  /// hidden [rows,D]: the piece's rows as they left the backbone.
  virtual void leave(DecodeState& state, const DecodePiece& piece, const float* hidden) const = 0;
};

/// A head, decoding.
class DecodeHead {
 public:
  virtual ~DecodeHead() = default;
  /// hidden [rows,D], one behind another -> logits [rows,V].
  virtual void logits(const float* hidden, int64_t rows, float* logits) const = 0;
  virtual int64_t num_bytes() const = 0;
};

/// The parts of a backbone of equal layers that an engine runs itself; handles of the model's parameters.
///   post: h <- LN1(h + attn(h)); h <- LN2(h + ffn(h))
///   pre:  h <- h + attn(LN1(h)); h <- h + ffn(LN2(h))
struct DecodeStack {
  struct Layer {
    std::string name;  ///< of its attention's state among the backbone's
    const Attention* attention = nullptr;
    layers::LayerNorm norm1, norm2;
    layers::FeedForward ffn;
  };
  std::vector<Layer> layers;
  bool pre_norm = false;
  layers::LayerNorm final_norm;  ///< weight undefined: none
  at::Tensor positions;          ///< [P,D], learned; undefined: none
  bool sinusoidal = false;
};

// For those who write decoders.

/// How many rows of a state's dimension M are not real: they stand on the left. valid [1,M] bool. Throws InputError
/// where others are not real either.
int64_t left_padding(const at::Tensor& valid);
/// The numbers of a tensor, as float32.
std::vector<float> plain_numbers(const at::Tensor& tensor);
/// A tensor of a copy of these numbers.
at::Tensor tensor_of(const float* numbers, at::IntArrayRef sizes);
/// Memory of at least `size` numbers; what was in it may be lost.
inline float* at_least(std::vector<float>& memory, int64_t size) {
  if (static_cast<int64_t>(memory.size()) < size) memory.resize(static_cast<size_t>(size + size / 2));
  return memory.data();
}
/// Products that are worth a second thread.
inline constexpr int64_t kProductsOfAThread = 1 << 16;
inline int64_t thread_grain(int64_t products) { return std::max<int64_t>(1, kProductsOfAThread / products); }

}  // namespace mnemo::core
