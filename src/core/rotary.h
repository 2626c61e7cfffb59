#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "ops/attention/rotary.h"

namespace mnemo::core {

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
      "none; interpolation: all frequencies divided by factor (called linear in Hugging Face's files); llama3: only "
      "low ones",
      base::one_of("none", "interpolation", "llama3"));
    v("factor", factor, "interpolation, llama3: how many times longer texts are than in the original training",
      base::positive());
    v("low_freq_factor", low_freq_factor, "llama3: fewer turns than this in original_max_len tokens: divided",
      base::positive());
    v("high_freq_factor", high_freq_factor, "llama3: more turns than this: kept", base::positive());
    v("original_max_len", original_max_len, "llama3: tokens of a text in the original training",
      base::range(1, 1 << 24));
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
    v("dims", dims, "channels of a head that are rotated, an even number; unset: all", base::range(2, 1 << 16));
    v("base", base, "channel pair k of r turns by base^(-2k/r) per row", base::positive());
    v("scaling", scaling, "change of the frequencies for longer texts");
  }
  void validate(const base::Where& where) const {
    where.require(dims.value_or(0) % 2 == 0, "dims", "expected an even number, found {}", dims.value_or(0));
  }
  /// Frequencies for rows of that width, which messages call `what`. Throws InputError for rows that are too narrow or
  /// of odd width.
  std::vector<double> frequencies(int64_t width, std::string_view what = "the head's width") const {
    const int64_t turned = dims.value_or(width);
    base::require(turned <= width && turned % 2 == 0, "rotary.dims: expected an even number of at most {} {}, found {}",
                  what, width, turned);
    return ops::rotary_frequencies(
        turned, base,
        {scaling.type, scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_len});
  }
};

/// Rotary positions where the past is kept as sums of rows and not as rows. The turn is linear, so sums can be turned,
/// too: a state counts rows from its end, where the row to come is row 0. Numbers stay bounded, and a text divided in
/// any way gives the same sums. Padding is not counted. Without frequencies nothing is turned.
class RowTurns {
 public:
  /// Turns of a call with `rows` rows. valid [B,T] bool, false = padding; undefined = no padding.
  RowTurns(const std::vector<double>& frequencies, int64_t rows, at::Tensor valid)
      : frequencies_(frequencies), rows_(rows), valid_(std::move(valid)) {}
  /// x [B,H,T,r], each row turned by its number in the call.
  at::Tensor rows(const at::Tensor& x) const;
  /// Sums of turned rows [B,..,n,r] as the next call takes them: turned back by the rows of this one.
  at::Tensor past(const at::Tensor& sums) const;

 private:
  const std::vector<double>& frequencies_;
  int64_t rows_;
  at::Tensor valid_;
};

}  // namespace mnemo::core
