#pragma once

#include <cstdint>
#include <string>

#include "models/model.h"
#include "ops/abc/abc.h"
#include "ops/decode/decode_rows.h"

namespace mnemo::infer {

/// What the decoding engine knows of a model: sizes and rules, read from its options once.
struct EnginePlan {
  /// Reads the plan of a model. Throws InputError naming what has no form here.
  explicit EnginePlan(const models::Model& model);

  int64_t layers = 0, dim = 0, heads = 0, head_dim = 0, ffn = 0, vocab = 0, segment = 0;
  int64_t width = 0;  ///< of a head in memory: head_dim, padded
  bool pre_norm = false;
  ops::RowActivation activation = ops::RowActivation::relu;
  float norm_eps = 0.0f, scale = 0.0f, embedding_factor = 1.0f;
  enum class Position { none, learned, sinusoidal } position = Position::none;
  int64_t position_rows = 0;  ///< learned: of the table

  bool relative = false;
  int64_t clamp = 0;  ///< distances; 0 = none

  bool abc = false, abc_shared_control = false, abc_tied_control = false;
  int64_t slots = 0;
  ops::AbcActivation abc_activation = ops::AbcActivation::exp;
  float abc_eps = 0.0f;

  bool cache = false;  ///< a segment cache
  int64_t mem_len = 0;
  int64_t band = 0;  ///< keys a query sees, itself included; 0 = all
  bool keeps_memory_rows = true;

  bool grc = false;        ///< a gated recurrent cache around the attention
  bool grc_moves = false;  ///< one cache for each sequence
  int64_t grc_len = 0, grc_channels = 0;

  enum class Sequence { none, memory_tokens, carried_tokens, recurrent } sequence = Sequence::none;
  int64_t memory_rows = 0;     ///< read in front of a segment; 0 just where sequence is none
  bool hands_rows_on = false;  ///< the state has memory rows
  bool memory_causal = false;  ///< rows of a memory block see those on their left alone
  bool memory_sees_cache = false;

  /// The parameter that is a layer's control of ABC.
  std::string control_weight(int64_t layer) const {
    return abc_tied_control ? "backbone.attn_control.weight"
                            : "backbone.layers." + std::to_string(layer) + ".attn.control.weight";
  }
  /// Whether the rows of memories enter the segment cache.
  bool caches_all_rows() const { return keeps_memory_rows || sequence == Sequence::none; }
};

/// The maps q, k, v of a layer, and the control of ABC, one below another: weight [out,D], bias [out], undefined where
/// none has one.
struct JoinedMaps {
  at::Tensor weight, bias;
};
JoinedMaps joined_maps(const EnginePlan& plan, const layers::ParameterSet& parameters, int64_t layer);

/// Why the decoding engine cannot run a model; empty if it can.
std::string unsupported_reason(const core::Model& model);

}  // namespace mnemo::infer
