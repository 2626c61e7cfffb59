#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>

#include "core/mode.h"
#include "core/spans.h"
#include "core/state.h"
#include "layers/parts.h"

namespace mnemo::core {

/// The rows of an image: the last height * width rows of a segment, row by row; class tokens stand in front of them.
struct Grid {
  int64_t height = 0, width = 0;  ///< 0: no image
  int64_t size() const { return height * width; }
};

struct WindowCut;

/// How rows are those of an image.
struct ImageRows {
  Grid grid;                           ///< of the image, or of one window of it
  const WindowCut* windows = nullptr;  ///< how the image was cut into these windows; null: it was not
  /// [W,Q,K] added to the scores of sample b at b mod W: the regions of shifted windows; undefined = nothing.
  at::Tensor window_bias = {};
};

class DecodeAttention;
struct DecodeBuild;

/// What one attention module gets for one segment, or a part of one.
///   x [B,Q,D]        query rows, and keys and values after the contexts
///   context [B,M,D]  rows on the left of x that are keys and values only (a segment cache's), or, in a cross table,
///   all
///                    keys; undefined = none. In a segment that was left open the module has them in its state already.
///   table            who attends to whom: num_rows() = Q, num_context() = M plus the rows of the open segment
struct AttentionInput {
  at::Tensor x;
  at::Tensor context;
  const AttendTable& table;
  Mode mode = Mode::evaluate;
  bool ends = true;  ///< false: the segment goes on in the next call, so keys and values must stay in the state
  at::Tensor from_below = {};        ///< what the attention of the layer below handed on; undefined = nothing
  const ImageRows* image = nullptr;  ///< where the rows are those of an image; null: they are not

  /// The image's grid, or one window's; empty where the rows are no image's.
  Grid grid() const { return image == nullptr ? Grid{} : image->grid; }
};

/// y [B,Q,D]: after the output projection, before any residual.
struct AttentionResult {
  at::Tensor y;
  State state;
  at::Tensor to_above = {};  ///< what the attention hands to that of the layer above; undefined = nothing
};

/// What an attention can honour, checked when a model is put together, and how it carries a past.
struct AttentionSupport {
  bool tables = true;        ///< rules other than causal (in a model that is not causal: than open)
  bool contexts = true;      ///< rows of a layer context
  bool keeps_state = false;  ///< it carries something from segment to segment
  /// What it carries changes where a segment ends: the same text in other segments gives other outputs.
  bool moves_at_ends = false;
};

/// The attention seam: wraps or replaces one attention module. (queries, keys and values, table, state) -> (y, state').
/// Nothing is remembered outside the state.
class Attention {
 public:
  virtual ~Attention() = default;
  virtual AttentionResult forward(const AttentionInput& input, const State& state) const = 0;
  /// The state before a sequence's first segment (per-sequence fields for `batch` sequences).
  virtual State initial_state(int64_t batch) const = 0;
  virtual AttentionSupport support() const { return {}; }
  /// How many segments back a gradient may go through the field of its state with that name; -1 = no limit.
  virtual int64_t bptt_depth(std::string_view /*field*/) const { return 0; }
  /// The maps q, k, v of an attention that weighs single rows by content; null where rows are not read so. With them a
  /// memory tells how its rows would be read.
  virtual const layers::AttentionProjections* projections() const { return nullptr; }
  /// Its form for decoding token by token (core/decode.h); null: it has none. Throws InputError naming the option that
  /// it has none for.
  virtual std::unique_ptr<DecodeAttention> decoder(const DecodeBuild& build) const;
};

/// An attention that ends in an output projection of joined heads, so that another mechanism (GRC) may step in between.
class CoreAttention : public Attention {
 public:
  struct Heads {
    at::Tensor heads;  ///< [B,Q,H*d], heads joined, before the output projection
    State state;
    at::Tensor to_above = {};  ///< as AttentionResult's
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
