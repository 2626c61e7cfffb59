#pragma once

#include <ATen/core/Tensor.h>

#include "core/mode.h"

namespace mnemo::core {

/// Which part of a segment a call contains: a whole segment starts and ends in it.
struct Part {
  bool starts = true;
  bool ends = true;
};

/// The input of one call: a whole segment, or a part of one (see part.starts and part.ends). Exactly one of tokens,
/// rows and pixels is defined. For a translation model, tokens are the decoder's: the target without its last token,
/// after a start token.
struct Segment {
  at::Tensor tokens;      ///< [B,T] int64
  at::Tensor rows;        ///< [B,T,D]: hidden states for a layer_stack
  at::Tensor valid = {};  ///< [B,T] bool, true = a real token; padding on either side; undefined = no padding
  Part part = {};
  Mode mode = Mode::evaluate;
  at::Tensor pixels = {};       ///< [B,C,H,W], normalised images; valid is [B,H,W] then, padding right and below
  at::Tensor token_types = {};  ///< [B,T] int64, for encoders with a table of token types; undefined = all 0
  /// Translation models: the source [B,S] int64, and which of it is real, [B,S] bool, padding on either side; undefined
  /// = no padding. Without a source the one in the state goes on.
  at::Tensor source = {}, source_valid = {};
  /// In training: keep what enters each layer, and run the layer again in the backward pass (layers/recompute.h). Not
  /// for images.
  bool recompute_layers = false;

  /// Calls f(name, tensor) for each tensor; its first dimension is B.
  template <class F>
  void visit(F&& f) {
    f("tokens", tokens);
    f("rows", rows);
    f("valid", valid);
    f("pixels", pixels);
    f("token_types", token_types);
    f("source", source);
    f("source_valid", source_valid);
  }
};

/// The same segment, to train on.
inline Segment in_training(Segment segment) {
  segment.mode = Mode::train;
  return segment;
}

}  // namespace mnemo::core
