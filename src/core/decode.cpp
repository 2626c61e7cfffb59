#include "core/decode.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/attention.h"
#include "core/backbone.h"
#include "core/decode_cross.h"
#include "core/head.h"
#include "core/inspection.h"
#include "core/memory.h"

namespace mnemo::core {

ops::PackedLinear DecodeBuild::pack(const at::Tensor& weight, const at::Tensor& bias) const {
  return runs ? ops::PackedLinear(weight.detach(), bias.defined() ? bias.detach() : bias, precision)
              : ops::PackedLinear();
}

ops::PackedLinear DecodeBuild::pack(const std::vector<layers::Linear>& maps) const {
  if (!runs) return {};
  std::vector<at::Tensor> weights, biases;
  bool biased = false;
  for (const layers::Linear& map : maps) {
    weights.push_back(map.weight.detach());
    biased = biased || map.bias.defined();
    biases.push_back(map.bias.defined() ? map.bias.detach()
                                        : at::zeros({map.weight.size(0)}, weights.back().options()));
  }
  return pack(at::cat(weights), biased ? at::cat(biases) : at::Tensor());
}

int64_t left_padding(const at::Tensor& valid) {
  const int64_t real = valid.sum().item<int64_t>(), first = valid.size(1) - real;
  base::require(valid.narrow(1, first, real).all().item<bool>(),
                "engine: expected padding only on the left of the state's rows");
  return first;
}

std::vector<float> plain_numbers(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor plain = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  return {plain.const_data_ptr<float>(), plain.const_data_ptr<float>() + plain.numel()};
}

at::Tensor tensor_of(const float* numbers, at::IntArrayRef sizes) {
  if (c10::multiply_integers(sizes) == 0) return at::empty(sizes, at::kFloat);
  return at::from_blob(const_cast<float*>(numbers), sizes, at::kFloat).clone();
}

// By default an attention shows nothing.
AttentionView Attention::inspect(const AttentionInput&, const State&, const State&) const { return {}; }
std::vector<BranchRows> Attention::branches(const AttentionInput&, const State&) const { return {}; }
std::vector<Scalar> Attention::scalars() const { return {}; }

// Null: no decoder.
std::unique_ptr<DecodeAttention> Attention::decoder(const DecodeBuild&) const { return nullptr; }
std::unique_ptr<DecodeCross> Attention::cross_decoder(const DecodeBuild&) const { return nullptr; }
std::unique_ptr<DecodeContext> LayerContext::decoder(const DecodeBuild&) const { return nullptr; }
std::unique_ptr<DecodeSequence> SequenceMemory::decoder() const { return nullptr; }
std::unique_ptr<DecodeHead> Head::decoder(const DecodeBuild&) const { return nullptr; }
std::unique_ptr<DecodeStack> Backbone::decode_stack() const { return nullptr; }

}  // namespace mnemo::core
