#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/options.h"
#include "ops/attention/rotary.h"

namespace mnemo::attention {

struct RotaryScalingOptions {
  using Type = ops::RotaryScaling::Type;
  Type type = Type::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_len = 8192;
  template <class V>
  void visit(V&& v) {
    v("type", type,
      "none; interpolation: all frequencies divided by factor (called linear in Hugging Face's files); llama3: low "
      "ones alone",
      base::one_of("none", "interpolation", "llama3"));
    v("factor", factor, "how much longer texts are than those of the first training", base::positive());
    v("low_freq_factor", low_freq_factor, "llama3: fewer turns than this in original_max_len tokens: divided",
      base::positive());
    v("high_freq_factor", high_freq_factor, "llama3: more turns than this: kept", base::positive());
    v("original_max_len", original_max_len, "llama3: tokens of a text in the first training", base::range(1, 1 << 24));
  }
  void validate(const base::Where& where) const {
    where.require(type != Type::llama3 || high_freq_factor > low_freq_factor, "high_freq_factor",
                  "expected more than low_freq_factor = {}, found {}", low_freq_factor, high_freq_factor);
  }
};

/// Rotary positions of queries and keys.
struct RotaryOptions {
  std::optional<int64_t> dims = {};
  double base = 10000.0;
  RotaryScalingOptions scaling = {};
  template <class V>
  void visit(V&& v) {
    v("dims", dims, "channels of a head that are turned, an even number; unset: all", base::range(2, 1 << 16));
    v("base", base, "channel pair k of r turns by base^(-2k/r) per row", base::positive());
    v("scaling", scaling, "change of the frequencies for longer texts");
  }
  void validate(const base::Where& where) const {
    where.require(dims.value_or(0) % 2 == 0, "dims", "expected an even number, found {}", dims.value_or(0));
  }
  /// Throws InputError for heads that are too narrow or of an odd width.
  std::vector<double> frequencies(int64_t head_dim) const {
    const int64_t turned = dims.value_or(head_dim);
    base::require(turned <= head_dim && turned % 2 == 0,
                  "rotary.dims: expected an even number of at most the head's width {}, found {}", head_dim, turned);
    return ops::rotary_frequencies(
        turned, base,
        {scaling.type, scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_len});
  }
};

}  // namespace mnemo::attention
