#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "core/model.h"

namespace mnemo::search {

/// Runs the decoder of a translation model for many hypotheses side by side.
class StepDecoder {
 public:
  virtual ~StepDecoder() = default;
  virtual int64_t vocabulary() const = 0;
  /// The most tokens of a hypothesis that the model has places for, end included; unset: any number.
  virtual std::optional<int64_t> max_tokens() const { return std::nullopt; }
  /// Begins a hypothesis for each source. source [B,S] int64, valid [B,S] bool or undefined.
  virtual void start(const at::Tensor& source, const at::Tensor& valid) = 0;
  /// Starts with sources that models::Model::read_source() has read.
  virtual void start(const core::State& read) = 0;
  /// log p of each next token, [rows,V] float32 or float64 on the CPU, after the last token of each hypothesis. The
  /// caller may change the result.
  virtual at::Tensor log_probabilities(std::span<const int64_t> last) = 0;
  /// From now on hypothesis i continues the previous hypothesis parents[i].
  virtual void select(std::span<const int64_t> parents) = 0;
};

/// The decoder as the model's own forward pass: the reference for faster ones.
std::unique_ptr<StepDecoder> make_model_decoder(const core::Model& model);

}  // namespace mnemo::search
