#include "attention/linformer.h"

#include <torch/types.h>

#include <cmath>

#include "attention/key_rows.h"
#include "core/encoder_rows_decoder.h"
#include "ops/attention/linformer.h"

namespace mnemo::attention {

Linformer::Linformer(const Options& options, const core::AttentionBuild& build) : LinearInValues(build, options) {
  base::require(!build.causal,
                "linformer: a projected key mixes all rows, so it is not causal; use abc with control.type = "
                "\"linformer\" in a causal model");
  // Keeps inner products along the sequence on average (Wang et al. 2020, theorem 2): E k is sqrt(S/n) times k.
  const auto start = layers::normal(1.0 / std::sqrt(static_cast<double>(options.num_slots)));
  const layers::Scope scope = build.attn / "linformer";
  e_ = (scope / "k").add("weight", {options.num_slots, options.max_len}, start, layers::ParameterKind::memory);
  f_ = (scope / "v").add("weight", {options.num_slots, options.max_len}, start, layers::ParameterKind::memory);
}

void Linformer::require_readable(int64_t, int64_t keys) const {
  base::require(keys <= e_.size(1), "linformer: {} rows exceed max_len = {}", keys, e_.size(1));
}

at::Tensor Linformer::mix(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& valid) const {
  const int64_t keys = k.size(2);
  require_readable(k.size(3), keys);
  return ops::linformer(q, k, v, e_.narrow(1, 0, keys), f_.narrow(1, 0, keys), valid,
                        1.0 / std::sqrt(static_cast<double>(q.size(3))));
}

at::Tensor Linformer::read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
  return mix(q, k, v, {});
}

std::unique_ptr<core::DecodeCross> Linformer::cross_decoder(const core::DecodeBuild& build) const {
  return core::make_encoder_rows_decoder(
      build, maps_, 1.0 / std::sqrt(static_cast<double>(maps_.head_dim)),
      [this](const at::Tensor& encoder_output, const at::Tensor& valid) {
        const int64_t keys = encoder_output.size(1);
        require_readable(maps_.head_dim, keys);
        const auto project = [&](const layers::Linear& map, const at::Tensor& table) {
          at::Tensor heads = maps_.split(map(encoder_output));  // [B,H,S,d]
          if (valid.defined()) heads = heads.masked_fill(valid.logical_not().unsqueeze(1).unsqueeze(-1), 0.0);
          return at::matmul(table.narrow(1, 0, keys), heads);
        };
        return core::EncoderRows{project(maps_.k, e_), project(maps_.v, f_)};
      });
}

core::CoreAttention::Heads Linformer::run(const core::AttentionInput& input, const core::State& state,
                                          const ops::ReplaceValues& replace) const {
  const bool cross = input.table.is_cross();
  base::require(input.ends && (cross || input.table.num_context() == 0),
                "linformer: expected a whole segment and no other rows");
  const at::Tensor& valid = plain_validity(input.table, false, "linformer");
  const auto [q, k, v] = maps_.heads(input.x, cross ? input.context : input.x);
  return {maps_.join(mix(q, k, ops::replaced(replace, v), valid)), state};
}

}  // namespace mnemo::attention
