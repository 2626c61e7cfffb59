#pragma once

#include "memory/abc_control/sums.h"

namespace mnemo::memory {

// Controls that depend only on a token's position p in its sequence.

/// phi = e_p: each token has its own slot p. Equals softmax attention in bidirectional models, and in causal models
/// with mask_empty_slots.
class AbcIdentityControl final : public AbcSumControl {
 public:
  using Options = AbcNoOptions;
  static AbcPlaces row_limit(const Options&, int64_t num_slots) { return {num_slots, "num_slots"}; }
  AbcIdentityControl(const Options&, const AbcControlBuild& build)
      : AbcSumControl("identity", Keeps::positions, build) {}

 private:
  Writes writes(const AbcCall& call, const AbcSlots& past, const at::Tensor& numbers) const override;
  void write(int64_t number, int64_t draw, float* phi, float* tokens) const override;
  Places places() const override { return {slots_, "num_slots"}; }
};

struct AbcLinformerOptions {
  int64_t max_len = 512;
  template <class V>
  void visit(V&& v) {
    v("max_len", max_len, "maximum sequence length: columns of the table", base::range(1, 1 << 24));
  }
};

/// phi = column p of a learned table W [n,max_len], of any sign and not normalised (section 3.1).
class AbcLinformerControl final : public AbcSumControl {
 public:
  using Options = AbcLinformerOptions;
  static AbcPlaces row_limit(const Options& options, int64_t) { return {options.max_len, "control.max_len"}; }
  AbcLinformerControl(const Options& options, const AbcControlBuild& build);

 private:
  Writes writes(const AbcCall& call, const AbcSlots& past, const at::Tensor& numbers) const override;
  void write(int64_t number, int64_t draw, float* phi, float* tokens) const override;
  Places places() const override { return {max_len_, "control.max_len"}; }
  int64_t max_len_;
  at::Tensor weight_;  // [n,max_len]
};

struct AbcLocalToGlobalOptions {
  std::vector<int64_t> global_positions;
  template <class V>
  void visit(V&& v) {
    v("global_positions", global_positions, "positions of the tokens to keep, counted from 0: one per slot",
      base::range(0, 1 << 30));
  }
};

/// phi = e_j for the j-th global token, 0 for all others (section A.1).
class AbcLocalToGlobalControl final : public AbcSumControl {
 public:
  using Options = AbcLocalToGlobalOptions;
  AbcLocalToGlobalControl(const Options& options, const AbcControlBuild& build);

 private:
  Writes writes(const AbcCall& call, const AbcSlots& past, const at::Tensor& numbers) const override;
  void write(int64_t number, int64_t draw, float* phi, float* tokens) const override;
  std::vector<int64_t> positions_;
};

struct AbcCompressiveOptions {
  int64_t compression = 4;
  template <class V>
  void visit(V&& v) {
    v("compression", compression, "number of tokens per slot, c", base::range(1, 1 << 20));
  }
};

/// phi = e_{floor(p/c)} / c: every slot is the mean of c tokens, updated as they arrive (section A.3, eq. 8).
class AbcCompressiveControl final : public AbcSumControl {
 public:
  using Options = AbcCompressiveOptions;
  static AbcPlaces row_limit(const Options& options, int64_t num_slots) {
    return {num_slots * options.compression, "num_slots"};
  }
  AbcCompressiveControl(const Options& options, const AbcControlBuild& build)
      : AbcSumControl("compressive", Keeps::positions, build), compression_(options.compression) {}

 private:
  Writes writes(const AbcCall& call, const AbcSlots& past, const at::Tensor& numbers) const override;
  void write(int64_t number, int64_t draw, float* phi, float* tokens) const override;
  Places places() const override { return {slots_ * compression_, "num_slots * control.compression"}; }
  int64_t compression_;
};

}  // namespace mnemo::memory
