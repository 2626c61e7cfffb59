#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infer/engine.h"

namespace mnemo::infer {

/// A model taken apart: the decoders of its mechanisms and, packed, what every layer has.
struct Engine::Parts {
  /// Throws InputError naming what has no form for decoding.
  Parts(const models::Model& model, const core::DecodeBuild& build);

  struct Norm {
    std::vector<float> weight, bias;
    float eps = 0.0f;
    void operator()(const float* x, int64_t dim, float* y) const {
      ops::normalise_row(x, weight.data(), bias.data(), eps, dim, y);
    }
  };
  struct Layer {
    std::string name;
    std::unique_ptr<core::DecodeAttention> attention;
    int context = -1;  ///< which of `contexts` it sees; -1: none
    Norm norm1, norm2;
    ops::PackedLinear in, out;
    ops::Activation activation = ops::Activation::relu;
  };
  struct Context {
    std::string name;
    std::unique_ptr<core::DecodeContext> decoder;
  };
  struct Memory {
    std::string name;
    std::unique_ptr<core::DecodeSequence> decoder;
  };

  int64_t dim = 0, vocab = 0, segment = 0;
  bool pre_norm = false;
  EmbeddingRows embedding;
  at::Tensor positions;             ///< [P,D]; undefined: none are learned
  std::vector<double> frequencies;  ///< of sinusoidal positions; empty: none
  std::vector<Layer> layers;
  std::vector<Context> contexts;
  std::vector<int> views;            ///< the different values of Layer::context, in the order of the layers
  std::vector<Memory> memories;      ///< on the sequence seam
  core::DecodeSequence::Rows block;  ///< their rows: of one of them at most
  const core::DecodeSequence* block_of = nullptr;
  size_t block_number = 0;  ///< among `memories`
  Norm final_norm;          ///< without numbers: none
  std::unique_ptr<core::DecodeHead> head;

  Norm norm_of(const layers::LayerNorm& norm) const;
};

}  // namespace mnemo::infer
