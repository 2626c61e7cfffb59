#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>

#include "weights/safetensors.h"

namespace mnemo::weights {

/// Result of a training with LoRA (Hu et al. 2022). It holds the factors of each weight NAME as NAME.lora_a [r,m] and
/// NAME.lora_b [n,r], and every other trained parameter under its own name. The metadata have alpha / r as `lora_scale`
/// and the digest of the initial weights as `lora_start`.
inline constexpr const char* kLoraFile = "lora.safetensors";
inline constexpr std::string_view kLoraA = ".lora_a", kLoraB = ".lora_b";
inline constexpr const char* kLoraScale = "lora_scale";
inline constexpr const char* kLoraStart = "lora_start";

/// W = W0 + scale B A:   start [n,m], a [r,m], b [n,r] -> [n,m].
at::Tensor lora_weight(const at::Tensor& start, const at::Tensor& a, const at::Tensor& b, double scale);

/// SHA-256 of the bytes of weights, one after another in the order of their names.
std::string digest_of(const std::map<std::string, at::Tensor>& weights);

/// SHA-256 of the parameters of a model that a file of LoRA leaves alone, in the order of their names.
std::string digest_of_rest(const TensorFile& file, const NamedTensors& model);

/// digest_of_rest of the model that was trained.
inline constexpr const char* kLoraRest = "lora_rest";
/// The model that was trained, as JSON of its [model] table: its memory and segment with the rest.
inline constexpr const char* kLoraModel = "lora_model";
/// The folder that the training started from.
inline constexpr const char* kLoraBase = "lora_base";

/// alpha / r of such a file. Throws InputError if it is no file of LoRA.
double lora_scale(const TensorFile& file, const std::string& path);

/// Throws InputError as apply_lora.
void require_lora(const TensorFile& file, const NamedTensors& model, const std::string& path);

/// Moves the tensors of a model to where the file's training left them. Throws InputError naming file and tensor for a
/// parameter that the model lacks, another shape, or a factor without the other. If the file has `lora_start`, also
/// throws for a model that the training did not start from, or that the file was merged into before; if it has
/// `lora_rest`, for one whose other weights differ.
void apply_lora(const TensorFile& file, const NamedTensors& model, const std::string& path);

}  // namespace mnemo::weights
