#include "core/decode.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/attention.h"
#include "core/backbone.h"
#include "core/decode_cross.h"
#include "core/head.h"
#include "core/inspection.h"
#include "core/mapped_tensor.h"
#include "core/memory.h"

namespace mnemo::core {

namespace {

/// One after the other: a view where they lie so in memory, as parts of a file's tensor do.
at::Tensor stacked(const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  int64_t rows = 0;
  for (const at::Tensor& part : parts) {
    if (!part.is_alias_of(first) || part.strides() != first.strides() ||
        part.storage_offset() != first.storage_offset() + rows * first.stride(0))
      return at::cat(parts);
    rows += part.size(0);
  }
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[0] = rows;
  return first.as_strided(sizes, first.strides());
}

}  // namespace

ops::PackedLinear DecodeBuild::pack(const at::Tensor& weight, const at::Tensor& bias) const {
  if (!runs) return {};
  ops::PackedLinear packed(weight.detach(), bias.defined() ? bias.detach() : bias, precision);
  forget_pages(weight);
  return packed;
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
  return pack(stacked(weights), biased ? stacked(biases) : at::Tensor());
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
