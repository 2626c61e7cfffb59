#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/attention.h"
#include "core/inspection.h"
#include "core/mode.h"
#include "core/real_cells.h"

namespace mnemo::core {

struct DecodeStack;

/// The input of a decoder's cross-attention: an encoder's output [B,S,D], and which rows are real, [B,S] bool;
/// undefined: all.
struct EncoderOutput {
  at::Tensor rows, valid;
};

/// The input of a backbone: one segment, or a part of one; or images.
struct BackboneInput {
  at::Tensor rows;         ///< [B,Q,D]
  at::Tensor pixels = {};  ///< [B,C,H,W], normalised: used instead of rows by backbones that embed images
  /// Over [contexts; rows]: one per layer, or one for all. Image backbones make their own.
  std::vector<const AttendTable*> tables;
  /// Rows to the left of layer l's rows, [B,M,D] or undefined; entering [B,Q,D] are the rows that enter the layer,
  /// before any norm. Called once per layer, at the start of the segment.
  std::function<at::Tensor(int64_t layer, const at::Tensor& entering)> context;
  at::Tensor first_row;         ///< [B] int64: position of rows[0] within its segment; undefined = 0
  at::Tensor valid = {};        ///< [B,Q] bool: false for padding among the rows; undefined = none
  at::Tensor token_types = {};  ///< [B,Q] int64; undefined = all 0
  EncoderOutput encoder = {};   ///< for layers with cross-attention
  Mode mode = Mode::evaluate;
  bool ends = true;
  bool recompute_layers = false;  ///< as in core::Segment; layers that are observed are not run again
  bool levels = false;            ///< image backbones: also return the rows after each stage
  /// Image backbones: height and width in pixels of each image of a padded batch. No attention and no memory reads the
  /// padding then, and convolutions read zeros there. Empty: whatever is there is part of the image.
  std::vector<Grid> image_sizes = {};
  AttentionObserver observe = {};
  HiddenObserver hidden = {};

  const AttendTable& table(int64_t layer) const { return *tables[tables.size() == 1 ? 0 : static_cast<size_t>(layer)]; }
};

/// The rows of images after a stage of the backbone, as dense prediction reads them.
struct ImageLevel {
  at::Tensor rows;      ///< [B,N,D], row by row; without class tokens
  Grid grid = {};       ///< N = height * width
  RealCells real = {};  ///< without padding all of them
};

struct BackboneResult {
  at::Tensor hidden;                      ///< [B,Q,D]; for images: class tokens, then the grid row by row
  State state;                            ///< that of initial_state(), one child per layer, named like its parameters
  std::vector<at::Tensor> entering = {};  ///< per layer [B,Q,D]: its input, before any norm; empty for images
  Grid grid = {};                         ///< for images: the grid of the last rows
  std::vector<ImageLevel> levels = {};    ///< of each stage, the finest first, if the input asks for them
};

/// The layers of a model, applied to a segment's rows or to images.
class Backbone {
 public:
  virtual ~Backbone() = default;
  virtual BackboneResult forward(const BackboneInput& input, const State& state) const = 0;
  /// The initial states of its attentions, and whatever else it keeps for the model.
  virtual State initial_state(int64_t batch) const;
  virtual int64_t num_layers() const = 0;
  /// Width of the hidden states it returns.
  virtual int64_t dim() const = 0;
  virtual const Attention& attention(int64_t layer) const = 0;
  /// The layer's cross-attention; null if it has none.
  virtual const Attention* cross_attention(int64_t /*layer*/) const { return nullptr; }
  /// The name of a layer's attention in the state: the prefix of its parameters.
  virtual const std::string& layer_name(int64_t layer) const = 0;
  /// Rows [..,D] as the attention of layer `layer` receives them, normalised in a pre-norm model; parameters are
  /// treated as constants. Used by layer contexts, so only backbones of tokens have it.
  virtual at::Tensor attention_rows(int64_t layer, const at::Tensor& rows) const;
  /// Its parts for decoding (core/decode.h); null if decoding is not supported.
  virtual std::unique_ptr<DecodeStack> decode_stack() const;
};

/// The layers of a model of images, in one stage or more.
class ImageBackbone : public Backbone {
 public:
  /// Class tokens before the grid, in the rows it returns.
  virtual int64_t num_class_tokens() const = 0;
};

}  // namespace mnemo::core
