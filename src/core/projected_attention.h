#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/options.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/grouped_queries.h"
#include "core/rotary.h"
#include "layers/parts.h"

namespace mnemo::core {

/// Options of the projections of an attention, as files list them.
struct ProjectionOptions {
  bool bias = true;
  std::optional<bool> qkv_bias;
  template <class V>
  void visit(V&& v) {
    v("bias", bias, "use a bias in the q, k, v and o projections");
    v("qkv_bias", qkv_bias,
      "use a bias in the q, k and v projections; `bias` then only applies to o; unset: same as `bias`");
  }
};

/// Those of an attention whose queries may share heads of keys, and whose rows may be turned.
struct GroupedProjectionOptions : ProjectionOptions {
  std::optional<int64_t> num_kv_heads;
  std::optional<RotaryOptions> rotary;
  template <class V>
  void visit(V&& v) {
    ProjectionOptions::visit(v);
    v("num_kv_heads", num_kv_heads,
      "heads of keys and values, a divisor of num_heads: each is read by several query heads (grouped queries); unset: "
      "num_heads",
      base::range(1, 1 << 10));
    v("rotary", rotary, "rotary positions of queries and keys; unset: none");
  }
  /// Of rotary positions in heads of that width; empty: none.
  std::vector<double> frequencies(int64_t head_dim) const {
    return rotary ? rotary->frequencies(head_dim) : std::vector<double>();
  }
};

/// An attention with the projections q, k, v and o.
class ProjectedAttention : public CoreAttention {
 public:
  at::Tensor project(const at::Tensor& heads) const override { return maps_.o(heads); }

 protected:
  ProjectedAttention(const AttentionBuild& build, bool qkv_bias, bool o_bias, int64_t num_kv_heads = 0)
      : maps_(build.attn, build.dim, build.num_heads, build.head_dim, qkv_bias, o_bias, build.init_std, num_kv_heads) {}
  ProjectedAttention(const AttentionBuild& build, const ProjectionOptions& options)
      : ProjectedAttention(build, options.qkv_bias.value_or(options.bias), options.bias) {}
  /// Throws InputError for numbers of heads that do not divide.
  ProjectedAttention(const AttentionBuild& build, const GroupedProjectionOptions& options)
      : ProjectedAttention(build, options.qkv_bias.value_or(options.bias), options.bias,
                           kv_heads(options.num_kv_heads, build.num_heads)) {}

  layers::AttentionProjections maps_;
};

}  // namespace mnemo::core
