#pragma once

#include <optional>

#include "attention/linear_in_values.h"
#include "base/options.h"
#include "core/projected_attention.h"
#include "core/reads_heads.h"
#include "core/row_limit.h"

namespace mnemo::attention {

struct LinformerOptions : core::ProjectionOptions {
  int64_t num_slots = 32;
  int64_t max_len = 512;
  template <class V>
  void visit(V&& v) {
    v("num_slots", num_slots, "number of rows that keys and values are projected to", base::range(1, 1 << 16));
    v("max_len", max_len, "maximum segment length; longer segments are an error", base::range(1, 1 << 24));
    ProjectionOptions::visit(v);
  }
};

/// Attention over keys and values that two tables project along time (Wang et al. 2020, eq. 7).
///   o = W_o concat_h( softmax(q (E k)^T / sqrt(d)) F v ),  E, F the first S columns of linformer.k.weight and
///   linformer.v.weight [n,max_len]
/// All heads share the tables; each layer has its own. Padding is excluded. Bidirectional, or cross-attention. No
/// state.
class Linformer final : public LinearInValues<core::ProjectedAttention>, public core::ReadsHeads {
 public:
  using Options = LinformerOptions;
  /// The number of columns of its tables.
  static std::optional<core::RowLimit> row_limit(const base::TypedOptions& options) {
    return core::RowLimit{options.as<Options>().max_len, options, "max_len"};
  }
  /// Throws InputError in a causal model.
  Linformer(const Options& options, const core::AttentionBuild& build);
  core::State initial_state(int64_t) const override { return {}; }
  core::AttentionSupport support() const override { return {.tables = false, .contexts = false, .cross = true}; }
  const core::ReadsHeads* reads_heads() const override { return this; }
  at::Tensor read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;
  void require_readable(int64_t head_dim, int64_t keys) const override;
  std::unique_ptr<core::DecodeCross> cross_decoder(const core::DecodeBuild& build) const override;

 private:
  Heads run(const core::AttentionInput& input, const core::State& state,
            const ops::ReplaceValues& replace) const override;
  at::Tensor mix(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid) const;

  at::Tensor e_, f_;  // [n,max_len]
};

}  // namespace mnemo::attention
