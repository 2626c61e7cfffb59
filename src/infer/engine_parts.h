#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infer/engine.h"
#include "ops/linear/packed_maps.h"

namespace mnemo::infer {

/// The parts of a model: the decoders of its mechanisms and the packed weights of every layer.
struct Engine::Parts {
  /// Throws InputError naming whatever cannot be decoded.
  Parts(const models::Model& model, const core::DecodeBuild& build);

  struct Norm {
    std::vector<float> weight, bias;
    float eps = 0.0f;
    layers::NormType type = layers::NormType::layer;
    void operator()(const float* x, int64_t dim, float* y) const {
      if (type == layers::NormType::rms) return ops::rms_normalise_row(x, weight.data(), eps, dim, y);
      ops::normalise_row(x, weight.data(), bias.data(), eps, dim, y);
    }
  };
  struct Layer {
    std::string name;
    std::unique_ptr<core::DecodeAttention> attention;
    bool only_keys = false;                    ///< it remembers nothing between segments but keys of its context's rows
    int context = -1;                          ///< index into `contexts`; -1: none
    std::unique_ptr<core::DecodeCross> cross;  ///< null: none
    Norm norm1, cross_norm, norm2;
    ops::PackedLinear in, out;  ///< with a gate: `in` is [gate; in]
    bool gated = false;
    ops::Activation activation{};
  };
  struct Context {
    std::string name;
    std::unique_ptr<core::DecodeContext> decoder;
  };
  struct Memory {
    std::string name;
    std::unique_ptr<core::DecodeSequence> decoder;
  };

  static constexpr int64_t kEndless = int64_t{1} << 40;  ///< a target has no segments
  int64_t dim = 0, vocab = 0, segment = 0;
  bool pre_norm = false, parallel_residual = false;
  EmbeddingRows embedding;
  at::Tensor positions;             ///< [P,D]; undefined: no learned positions
  std::vector<double> frequencies;  ///< of sinusoidal positions; empty: none
  int64_t first_position = 0;
  std::vector<Layer> layers;
  std::vector<Context> contexts;
  std::vector<int> views;            ///< the distinct values of Layer::context, in the order of the layers
  std::vector<Memory> memories;      ///< on the sequence seam
  core::DecodeSequence::Rows block;  ///< the memory rows; at most one memory has any
  const core::DecodeSequence* block_of = nullptr;
  size_t block_number = 0;  ///< index into `memories`
  Norm final_norm;          ///< empty weight: none
  std::unique_ptr<core::DecodeHead> head;
  ops::PackedMaps source_maps;  ///< what reads a source, if quantized products are faster than those of the model

  Norm norm_of(const layers::Norm& norm) const;
};

}  // namespace mnemo::infer
