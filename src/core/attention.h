#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>

#include "core/mode.h"
#include "core/spans.h"
#include "core/state.h"
#include "layers/parts.h"

namespace mnemo::core {

/// The grid of an image: the last height * width rows of a segment, row by row, after the class tokens.
struct Grid {
  int64_t height = 0, width = 0;  ///< 0: no image
  int64_t size() const { return height * width; }
};

struct WindowCut;

/// Describes rows that come from an image.
struct ImageRows {
  Grid grid;                           ///< of the image, or of one window
  const WindowCut* windows = nullptr;  ///< how the image was cut into these windows; null: it was not cut
  /// [W,Q,K] added to the scores of sample b at b mod W: the regions of shifted windows; undefined = none.
  at::Tensor window_bias = {};
};

class DecodeAttention;
class DecodeCross;
struct DecodeBuild;

/// The input of an attention module for one segment, or a part of one.
///   x [B,Q,D]        query rows; also keys and values, after the contexts
///   context [B,M,D]  rows to the left of x that are only keys and values (a segment cache's), or, in a cross table,
///                    all keys; undefined = none. While a segment is open, the module already has them in its state.
///   table            who attends to whom: num_rows() = Q, num_context() = M plus the rows of the open segment
struct AttentionInput {
  at::Tensor x;
  at::Tensor context;
  const AttendTable& table;
  Mode mode = Mode::evaluate;
  bool ends = true;  ///< false: the segment continues in the next call, so keys and values must stay in the state
  at::Tensor from_below = {};        ///< passed up by the attention of the layer below; undefined = nothing
  const ImageRows* image = nullptr;  ///< for rows that come from an image; null otherwise

  /// The grid of the image or of one window; empty if the rows do not come from an image.
  Grid grid() const { return image == nullptr ? Grid{} : image->grid; }
};

/// y [B,Q,D]: after the output projection, before any residual.
struct AttentionResult {
  at::Tensor y;
  State state;
  at::Tensor to_above = {};  ///< passed to the attention of the layer above; undefined = nothing
};

/// Capabilities of an attention, checked when a model is built, and how it carries the past.
struct AttentionSupport {
  bool tables = true;        ///< rules other than causal (in a bidirectional model: other than open)
  bool contexts = true;      ///< rows of a layer context
  bool keeps_state = false;  ///< carries state from segment to segment
  bool cross = false;        ///< keys of other rows: an encoder's output
  /// The carried state changes where a segment ends: a text gives other outputs in other segments.
  bool moves_at_ends = false;
  /// In a causal model: its queries see later tokens of their segment, which is for analysis. It reads whole segments
  /// only, writes no text, and its perplexity is not that of a language model.
  bool sees_ahead = false;
};

/// The attention seam: wraps or replaces one attention module. (queries, keys and values, table, state) -> (y, state').
/// All memory is in the state.
class Attention {
 public:
  virtual ~Attention() = default;
  virtual AttentionResult forward(const AttentionInput& input, const State& state) const = 0;
  /// The state before a sequence's first segment (per-sequence fields for `batch` sequences).
  virtual State initial_state(int64_t batch) const = 0;
  virtual AttentionSupport support() const { return {}; }
  /// How many segments back gradients may flow through the state field with that name; -1 = no limit.
  virtual int64_t bptt_depth(std::string_view /*field*/) const { return 0; }
  /// The projections q, k, v of an attention that weighs individual rows by content; null for other attentions.
  /// Memories use them to compute how much attention their rows would receive.
  virtual const layers::AttentionProjections* projections() const { return nullptr; }
  /// Its decoder, for decoding token by token (core/decode.h); null if it has none. Throws InputError naming an option
  /// that the decoder does not support.
  virtual std::unique_ptr<DecodeAttention> decoder(const DecodeBuild& build) const;
  /// Its decoder for cross-attention, whose keys are an encoder's output (core/decode_cross.h).
  virtual std::unique_ptr<DecodeCross> cross_decoder(const DecodeBuild& build) const;
};

/// An attention that ends in an output projection of concatenated heads, so that another mechanism (GRC) can be
/// inserted before the projection.
class CoreAttention : public Attention {
 public:
  struct Heads {
    at::Tensor heads;  ///< [B,Q,H*d], heads concatenated, before the output projection
    State state;
    at::Tensor to_above = {};  ///< as in AttentionResult
    /// q, k, v of the call's own rows as projections() maps them, for a wrapping mechanism; undefined: not available.
    layers::AttentionProjections::Heads rows = {};
  };
  virtual Heads heads(const AttentionInput& input, const State& state) const = 0;
  /// The output projection: [B,Q,H*d] -> [B,Q,D].
  virtual at::Tensor project(const at::Tensor& heads) const = 0;

  AttentionResult forward(const AttentionInput& input, const State& state) const override {
    Heads inner = heads(input, state);
    return {project(inner.heads), std::move(inner.state), std::move(inner.to_above)};
  }
};

}  // namespace mnemo::core
