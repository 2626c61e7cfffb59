#pragma once

#include <cstdint>
#include <string>

namespace mnemo::models {
class Model;
}
namespace mnemo::weights {
struct ForeignFormat;
}

/// Adapters of PEFT, Hugging Face's library for LoRA: a folder with adapter_config.json and adapter_model.safetensors,
/// whose tensors have the names of the published model:
///   base_model.model.MODULE.lora_A.weight [r,in], base_model.model.MODULE.lora_B.weight [out,r]
///   W = W0 + lora_alpha / r B A, transposed where the published model stores W [in,out] (GPT-2); divided by sqrt(r)
///   with use_rslora
/// and of modules_to_save whole tensors.
namespace mnemo::bundle {

/// Whether a path is the folder of an adapter.
bool is_peft(const std::string& path);

/// Adds an adapter to the weights of a model that came from a folder of that format. Throws InputError that names the
/// file and key of a setting that is not supported, and a tensor that the model lacks or that has another shape.
void apply_peft(const std::string& folder, const weights::ForeignFormat& format, models::Model& model);

/// Writes a lora.safetensors (weights/lora.h) as an adapter of the published model. Throws InputError naming trained
/// tensors for which the format has no name, such as a memory.
///   base   name of the published model, for the adapter's config
void write_peft(const std::string& lora, const weights::ForeignFormat& format, const models::Model& model,
                const std::string& base, const std::string& out);

}  // namespace mnemo::bundle
