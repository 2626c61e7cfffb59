#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/grc/grc.h"
#include "ops/grc/grc_gates.h"
#include "ops/label_smoothing.h"
#include "ops/linear/linear.h"

/// Operations by definition, one formula after the other: what the fast forms are compared with, and what runs where
/// there is no fast form. Arguments and results are those of the fast form.
namespace mnemo::ops {

/// rms_norm().
at::Tensor rms_norm_naive(const at::Tensor& x, const at::Tensor& weight, double eps);

/// label_smoothing(), word by word.
SmoothedLoss label_smoothing_naive(const at::Tensor& logits, const at::Tensor& targets, double epsilon, int64_t ignore);

/// feed_forward() as two linear maps.
at::Tensor feed_forward_naive(const at::Tensor& x, const LinearMap& in, const LinearMap& out);

/// grc_step() with the projections of [X, C] whole.
at::Tensor grc_step_naive(const at::Tensor& cache, const at::Tensor& input, const GrcGates& gates, bool authors);

/// gate_keep(), gate_blend() and mix_heads().
at::Tensor gate_keep_naive(const GateTerms& gate, const at::Tensor& old);
at::Tensor gate_blend_naive(const GateTerms& gate, const at::Tensor& old, const at::Tensor& fresh,
                            const at::Tensor& more);
at::Tensor mix_heads_naive(const at::Tensor& m, const at::Tensor& o, const at::Tensor& share);

}  // namespace mnemo::ops
