#include <torch/types.h>

#include <cstddef>
#include <cstdint>

#include "mutated.h"
#include "options_check.h"
#include "weights/lora.h"

/// A file of LoRA with changes: applied to a model, whose tensors keep their shapes, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  static const std::string saved = weights::encode_safetensors(
      {{"w.lora_a", at::ones({2, 3})}, {"w.lora_b", at::ones({4, 2})}, {"bias", at::ones({4})}},
      {{weights::kLoraScale, "0.5"}});
  fuzz::only_input_errors([&] {
    const at::Tensor weight = at::zeros({4, 3}), bias = at::zeros({4});
    weights::apply_lora(weights::read_safetensors(fuzz::mutated(saved, data, size), "input"),
                        {{"w", weight}, {"bias", bias}}, "input");
    fuzz::demand(weight.size(0) == 4 && weight.size(1) == 3 && bias.size(0) == 4, "shapes");
  });
  return 0;
}
