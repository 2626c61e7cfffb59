#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/linear/packed_linear.h"

namespace mnemo::core {

/// The keys and values of one source for a layer's cross-attention, in the form of the decoder that computed them. They
/// never change, so all hypotheses of a sentence share them.
class EncodedSource {
 public:
  virtual ~EncodedSource() = default;
  /// Bytes in use.
  virtual int64_t num_bytes() const = 0;
};

/// Decoder of a cross-attention: what its queries read is computed once per source (core/decode.h).
class DecodeCross {
 public:
  virtual ~DecodeCross() = default;
  /// For each sequence of a batch: encoder_output [B,S,D], valid [B,S] bool or undefined.
  virtual std::vector<std::shared_ptr<const EncodedSource>> encode(const at::Tensor& encoder_output,
                                                                   const at::Tensor& valid) const = 0;
  /// x [rows,D] as the attention receives them -> heads [rows,output().in()], before the output projection; row i
  /// reads sources[i].
  virtual void heads(std::span<const EncodedSource* const> sources, const float* x, float* heads) const = 0;
  virtual const ops::PackedLinear& output() const = 0;
  /// Weights that encode() multiplies the encoder's output with, for engines that have packed them.
  virtual std::vector<at::Tensor> source_weights() const = 0;
};

}  // namespace mnemo::core
