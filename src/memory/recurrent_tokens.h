#pragma once

#include <optional>
#include <string>

#include "base/options.h"
#include "core/memory.h"
#include "core/memory_build.h"
#include "core/model_outline.h"
#include "memory/learned_tokens.h"

namespace mnemo::memory {

/// Auxiliary loss on the write rows (Bulatov et al. 2022, appendix): a special token predicted from each of them.
struct AuxLossOptions {
  double weight = 0.01;
  int64_t token = 0;
  template <class V>
  void visit(V&& v) {
    v("weight", weight, "weight of the auxiliary loss", base::at_least(0));
    v("token", token, "token to predict from each write row", base::at_least(0));
  }
};

struct RecurrentTokensOptions {
  enum class Layout { read_write, encoder };
  enum class BlockMask { open, causal };
  enum class MemoryPosition { same, authors, front };
  int64_t num_mem_tokens = 4;
  Layout layout = Layout::read_write;
  BlockMask block_mask = BlockMask::open;
  bool read_mem_from_cache = false;
  base::Depth bptt_depth = base::Depth::all();
  TokenInit init = TokenInit::independent;
  double init_std = 1.0;
  std::optional<AuxLossOptions> aux_loss;
  MemoryPosition memory_position = MemoryPosition::same;
  std::optional<int64_t> cls_token, sep_token, pad_token, eos_token;
  template <class V>
  void visit(V&& v) {
    v("num_mem_tokens", num_mem_tokens, "number of memory vectors, read before a segment and written after it",
      base::range(0, 1 << 16));
    v("layout", layout,
      "read_write: rows [read; tokens; write] of a decoder; encoder: one block [CLS] mem [SEP] tokens [SEP], or with "
      "memory_position = \"front\" mem tokens, and eos if there is an eos_token",
      base::one_of("read_write", "encoder"));
    v("block_mask", block_mask, "open: bidirectional inside the read and the write block; causal: causal over all rows",
      base::one_of("open", "causal"));
    v("read_mem_from_cache", read_mem_from_cache,
      "memory rows may attend to the segment cache; in an encoder they always do");
    v("bptt_depth", bptt_depth, "number of segment boundaries that gradients cross: 0, 1, ... or \"full\"");
    v("init", init,
      "initialize the memory as independent random rows, or as one repeated row (as in the authors' code)",
      base::one_of("independent", "repeated"));
    v("init_std", init_std, "standard deviation of the initial memory", base::at_least(0));
    v("aux_loss", aux_loss, "auxiliary loss: predict a special token from each write row; unset: none");
    v("memory_position", memory_position,
      "encoder: take the next memory from the same rows; from one row earlier (authors: their early code); or front: "
      "the block begins with the memory and has no [CLS] and [SEP], and a decoder sees the memory rows too (T5)",
      base::one_of("same", "authors", "front"));
    v("cls_token", cls_token, "encoder: id of the [CLS] token", base::at_least(0));
    v("sep_token", sep_token, "encoder: id of the [SEP] token", base::at_least(0));
    v("pad_token", pad_token, "encoder: id of the padding token", base::at_least(0));
    v("eos_token", eos_token, "front: id of a token that the block appends to the tokens (T5); unset: none",
      base::at_least(0));
  }
  void validate(const base::Where& where) const;
  /// Throws InputError if it does not fit the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
  /// Rows added to a segment's tokens: memory, and with layout encoder the special tokens.
  int64_t rows_beside() const {
    if (layout == Layout::read_write) return 2 * num_mem_tokens;
    return num_mem_tokens + (memory_position == MemoryPosition::front ? (eos_token ? 1 : 0) : 3);
  }
};

/// tokens [B,m,D]: the memory passed to the next segment.
struct RecurrentTokensState {
  at::Tensor tokens;
  template <class F>
  void visit(F&& f) {
    f("tokens", tokens, "B m D");
  }
};

/// Recurrent Memory Transformer (Bulatov et al. 2022, section 3), layout read_write: rows [mem; x; mem], with the
/// same vectors at both ends; the last m output rows are the next segment's memory.
class RecurrentTokens final : public core::SequenceMemory {
 public:
  using Options = RecurrentTokensOptions;
  RecurrentTokens(const Options& options, const core::MemoryBuild& build);
  core::State initial_state(int64_t batch) const override;
  void enter(core::SegmentRows& rows, const core::State& state, core::Part part) const override;
  bool needs_tables() const override { return options_.block_mask != RecurrentTokensOptions::BlockMask::causal; }
  std::vector<core::AuxiliaryLoss> losses(const at::Tensor& hidden, const core::LossOfRows& nll) const override;
  core::State leave(const at::Tensor& hidden, const core::AttendTable& table, const core::State& state,
                    core::Part part) const override;
  std::unique_ptr<core::DecodeSequence> decoder() const override;
  int64_t bptt_depth(std::string_view) const override {
    return options_.bptt_depth.full ? -1 : options_.bptt_depth.value;
  }
  const Options& options() const { return options_; }

 private:
  Options options_;
  LearnedTokens tokens_;
};

}  // namespace mnemo::memory
