#pragma once

#include <optional>
#include <string>

#include "base/options.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "layers/parts.h"
#include "ops/attention/lsh.h"
#include "ops/weights_from_outputs.h"

namespace mnemo::attention {

struct LshOptions {
  enum class Variant { paper, lra };
  Variant variant = Variant::paper;
  std::optional<int64_t> num_buckets;
  std::optional<int64_t> num_hashes;
  std::optional<int64_t> chunk_len;
  bool attend_across_buckets = false;
  int64_t seed = 0;
  bool bias = true;
  std::optional<bool> qkv_bias;
  template <class V>
  void visit(V&& v) {
    v("variant", variant, "paper: as in Reformer; lra: as in the Long Range Arena code (differences: docs/lsh.md)",
      base::one_of("paper", "lra"));
    v("num_buckets", num_buckets, "buckets per round, an even number; unset: 16, with lra 10", base::range(2, 1 << 16));
    v("num_hashes", num_hashes, "hashing rounds; unset: 2, with lra 1", base::range(1, 1 << 10));
    v("chunk_len", chunk_len, "rows per chunk; lra: the length is padded to a multiple of this; unset: 32, with lra 10",
      base::range(1, 1 << 20));
    v("attend_across_buckets", attend_across_buckets, "also attend to rows of other buckets in the same chunks");
    v("seed", seed, "seed of the rotations, combined with the layer number (lra: used alone)",
      base::range(0, int64_t{1} << 53));
    v("bias", bias, "use a bias in the qk, v and o projections");
    v("qkv_bias", qkv_bias,
      "use a bias in the qk and v projections; `bias` then only applies to o; unset: same as `bias`");
  }
  void validate(const base::Where& where) const;
  bool arena() const { return variant == Variant::lra; }
};

/// LSH attention (Kitaev et al. 2020, section 2): queries are used as keys, and attend to keys in their bucket's chunks
/// (ops/attention/lsh.h). Rotations are fixed numbers (ops/counter_rng.h), not parameters. No query attends to later
/// rows, but causality does not hold bit for bit: chunk boundaries depend on how many rows, including later ones, fall
/// into each bucket. While a segment is open, each call hashes and chunks all of its rows so far, and returns the
/// outputs of the new ones. State: kv_cache, only while a segment is open; k holds the shared queries and keys.
class Lsh final : public core::CoreAttention {
 public:
  using Options = LshOptions;
  /// Throws InputError for variant "lra" in a causal model.
  Lsh(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override {
    return run(input, state, {});
  }
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;
  at::Tensor project(const at::Tensor& heads) const override;
  core::State initial_state(int64_t batch) const override;
  core::AttentionSupport support() const override { return {false, false, false}; }
  const at::Tensor& rotations() const { return rotations_; }
  /// Replaces the rotations, [rounds,H,d,num_buckets/2]. Throws InputError for another shape.
  void set_draw(const at::Tensor& rotations);

 private:
  Heads run(const core::AttentionInput& input, const core::State& state, const ops::ReplaceValues& replace) const;
  ops::LshOptions options_;
  bool arena_;
  int64_t num_heads_;
  layers::Linear qk_, v_, o_;  // o_ without variant lra
  at::Tensor rotations_;       // float64
};

}  // namespace mnemo::attention
