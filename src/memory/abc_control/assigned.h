#pragma once

#include "memory/abc_control/sums.h"

namespace mnemo::memory {

// Controls that assign each token to one slot, phi = e_slot. The caller may provide the assignment (slot_index).

struct AbcRandomOptions {
  int64_t seed = 0;
  AbcSumControl::Redraw redraw = AbcSumControl::Redraw::never;
  template <class V>
  void visit(V&& v) {
    v("seed", seed, "seed of the random slots", base::at_least(0));
    v("redraw", redraw,
      "when slots are redrawn in training: never (evaluation's slots), for every sequence, or for every segment",
      base::one_of("never", "sequence", "segment"));
  }
};

/// ABC_RD: the slot is uniform in 0 .. n-1 and depends only on the seed, the layer and the token's position (section
/// A.2; ops/abc/abc_slots.h). redraw: in training also on a number that is drawn for each sequence or segment, as the
/// paper draws; evaluation always has the same slots. With N tokens, (1 - 1/n)^N of the slots stay empty on average.
class AbcRandomControl final : public AbcSumControl {
 public:
  using Options = AbcRandomOptions;
  AbcRandomControl(const Options& options, const AbcControlBuild& build)
      : AbcSumControl("random", Keeps::positions, build),
        seed_(options.seed),
        layer_(build.attention.layer_number),
        redraw_(options.redraw) {}
  bool takes_slot_index() const override { return true; }
  Redraw redraw() const override { return redraw_; }

 private:
  Writes writes(const AbcCall& call, const AbcSlots& past, const at::Tensor& numbers) const override;
  void write(int64_t number, int64_t draw, float* phi, float* tokens) const override;
  int64_t seed_, layer_;
  Redraw redraw_;
};

/// Slots are means of their tokens (section 3.2, eq. 6). The paper does not specify how to find clusters; here we use
/// online k-means over keys, with all heads of a token together (ops/abc/abc_slots.h). In causal models a slot is the
/// mean of its members so far.
class AbcClusteringControl final : public AbcSumControl {
 public:
  using Options = AbcNoOptions;
  AbcClusteringControl(const Options&, const AbcControlBuild& build)
      : AbcSumControl("clustering", Keeps::means, build) {}
  bool takes_slot_index() const override { return true; }

 private:
  Writes writes(const AbcCall& call, const AbcSlots& past, const at::Tensor& numbers) const override;
};

}  // namespace mnemo::memory
