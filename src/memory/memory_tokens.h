#pragma once

#include <string>

#include "base/options.h"
#include "core/memory.h"
#include "core/memory_build.h"
#include "core/model_outline.h"
#include "memory/learned_tokens.h"

namespace mnemo::memory {

struct MemoryTokensOptions {
  enum class Variant { paper, authors };
  int64_t num_mem_tokens = 8;
  Variant variant = Variant::paper;
  bool read_mem_from_cache = false;
  base::Depth bptt_depth = base::Depth::all();
  TokenInit init = TokenInit::independent;
  double init_std = 1.0;
  template <class V>
  void visit(V&& v) {
    v("num_mem_tokens", num_mem_tokens, "number of learned rows in front of each segment", base::range(0, 1 << 16));
    v("variant", variant,
      "paper: put the learned tokens in front of each segment; authors: carry the last layer's rows to the next "
      "segment",
      base::one_of("paper", "authors"));
    v("read_mem_from_cache", read_mem_from_cache,
      "memory rows may attend to the segment cache; in an encoder they always do");
    v("bptt_depth", bptt_depth,
      "authors: number of segments that gradients flow back through the carried rows, or \"full\"");
    v("init", init,
      "initialize the learned tokens as independent random rows, or as one repeated row (as in the authors' code)",
      base::one_of("independent", "repeated"));
    v("init_std", init_std, "standard deviation of the initial learned tokens", base::at_least(0));
  }
  /// Throws InputError if it does not fit the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
  /// Rows added to a segment's tokens.
  int64_t rows_beside() const { return num_mem_tokens; }
};

/// tokens [B,m,D]: the rows before the next segment; absent in the paper's variant, which carries nothing.
struct MemoryTokensState {
  at::Tensor tokens;
  template <class F>
  void visit(F&& f) {
    f("tokens", tokens, "B m D");
  }
};

/// Memory Transformer (Burtsev et al. 2020), segment by segment: rows [mem; x]; memory rows see only memory (and the
/// segment cache with read_mem_from_cache), token rows see memory, cache and earlier tokens. In an encoder, where the
/// paper has them (section 3), every row sees every row, and a decoder reads the memory rows too. A sequence without a
/// token keeps what it carries.
class MemoryTokens final : public core::SequenceMemory {
 public:
  using Options = MemoryTokensOptions;
  MemoryTokens(const Options& options, const core::MemoryBuild& build);
  core::State initial_state(int64_t batch) const override;
  void enter(core::SegmentRows& rows, const core::State& state, core::Part part) const override;
  core::State leave(const at::Tensor& hidden, const core::AttendTable& table, const core::State& state,
                    core::Part part) const override;
  bool shows_rows() const override { return true; }
  std::unique_ptr<core::DecodeSequence> decoder() const override;
  int64_t bptt_depth(std::string_view) const override {
    return options_.bptt_depth.full ? -1 : options_.bptt_depth.value;
  }

 private:
  Options options_;
  LearnedTokens tokens_;
};

}  // namespace mnemo::memory
