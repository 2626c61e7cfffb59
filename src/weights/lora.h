#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "weights/safetensors.h"

namespace mnemo::weights {

/// What a training with LoRA (Hu et al. 2022) leaves, lora.safetensors: the factors of each weight NAME as NAME.lora_a
/// [r,m] and NAME.lora_b [n,r], alpha / r in the metadata under `lora_scale`, and every other parameter that was
/// trained under its own name.
inline constexpr const char* kLoraFile = "lora.safetensors";
inline constexpr std::string_view kLoraA = ".lora_a", kLoraB = ".lora_b";
inline constexpr const char* kLoraScale = "lora_scale";

/// W = W0 + scale B A:   start [n,m], a [r,m], b [n,r] -> [n,m].
at::Tensor lora_weight(const at::Tensor& start, const at::Tensor& a, const at::Tensor& b, double scale);

/// Moves the tensors of a model to where the file's training left them. Throws InputError naming file and tensor for a
/// parameter that the model lacks, another shape, or a factor without the other.
void apply_lora(const TensorFile& file, const NamedTensors& model, const std::string& path);

}  // namespace mnemo::weights
