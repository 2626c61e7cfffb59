#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace mnemo::core {

class DecodeHead;
struct DecodeBuild;

/// What a model's hidden rows are for.
class Head {
 public:
  virtual ~Head() = default;
  /// hidden [..,D] -> logits [..,V].
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  /// -log p(target), natural logarithm: hidden [..,D], targets [..] int64 -> [..]; 0 where the target is -100.
  virtual at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const = 0;
  /// Its form for decoding (core/decode.h); null: it has none.
  virtual std::unique_ptr<DecodeHead> decoder(const DecodeBuild& build) const;
};

/// Targets of this value are left out of every loss and count.
inline constexpr int64_t kIgnoreTarget = -100;

}  // namespace mnemo::core
