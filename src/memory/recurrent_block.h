#pragma once

#include "memory/recurrent_tokens.h"

namespace mnemo::memory {

/// Recurrent Memory Transformer around an encoder (Bulatov et al. 2022, section 4, and the authors' code for BERT):
/// layout encoder.
///   rows = [CLS] mem_1 ... mem_m [SEP] x_1 ... x_n [SEP] pad ... pad       all see each other except padding
///   mem' = the last layer's rows 1 ... m (memory_position same), or 0 ... m-1 (authors: includes [CLS] and loses the
///   last memory row)
///   with memory_position front: rows = mem_1 ... mem_m x_1 ... x_n eos pad ... pad, eos only if there is an eos_token;
///   mem' = rows 0 ... m-1
/// n is the number of real tokens of the sequence in this segment. A sequence without any keeps its memory: all of its
/// rows are padding.
class RecurrentBlock final : public core::SequenceMemory {
 public:
  /// Throws InputError in a layer_stack, which has no special tokens.
  RecurrentBlock(const RecurrentTokensOptions& options, const core::MemoryBuild& build);
  core::State initial_state(int64_t batch) const override;
  void enter(core::SegmentRows& rows, const core::State& state, core::Part part) const override;
  core::State leave(const at::Tensor& hidden, const core::AttendTable& table, const core::State& state,
                    core::Part part) const override;
  bool shows_rows() const override { return is_front(); }
  int64_t bptt_depth(std::string_view) const override {
    return options_.bptt_depth.full ? -1 : options_.bptt_depth.value;
  }

 private:
  bool is_front() const { return options_.memory_position == RecurrentTokensOptions::MemoryPosition::front; }

  RecurrentTokensOptions options_;
  LearnedTokens tokens_;
  std::function<at::Tensor(const at::Tensor&)> embed_;
};

}  // namespace mnemo::memory
