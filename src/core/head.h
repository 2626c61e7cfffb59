#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace mnemo::core {

class DecodeHead;
struct DecodeBuild;

/// Turns a model's hidden rows into predictions and losses.
class Head {
 public:
  virtual ~Head() = default;
  /// hidden [..,D] -> logits [..,V].
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  /// -log p(target), natural logarithm: hidden [..,D], targets [..] int64 -> [..]; 0 where the target is
  /// base::kIgnoreTarget.
  virtual at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const = 0;
  /// Its form for decoding (core/decode.h); null: it has none.
  virtual std::unique_ptr<DecodeHead> decoder(const DecodeBuild& build) const;
};

}  // namespace mnemo::core
