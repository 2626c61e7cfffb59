#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/option_rules.h"
#include "base/options.h"
#include "layers/parameters.h"
#include "weights/safetensors.h"

namespace mnemo::train {

/// LoRA (Hu et al. 2022): `[train] lora`.
struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16.0;
  std::vector<std::string> targets = {"*.attn.q.weight", "*.attn.v.weight"};
  template <class V>
  void visit(V&& v) {
    v("rank", rank, "rank of the update of a weight", base::range(1, 1 << 16));
    v("alpha", alpha, "the update is scaled by alpha / rank", base::positive());
    v("targets", targets, "the weights that get one: patterns of their names with * and ?, or all-linear",
      base::not_empty());
  }
  void validate(const base::Where& where) const {
    where.require(!targets.empty(), "targets", "expected at least one pattern, found none");
  }
};

/// Weights that move by a product of two narrow matrices (Hu et al. 2022, section 4.1):
///   W = W0 + alpha/r B A,   W [n,m], A [r,m] ~ N(0, 1/r), B [n,r], at first 0
/// The model computes with W itself, so every layer, memory and decoder is as without LoRA; the gradients of the
/// factors are taken from that of W:
///   dL/dB = alpha/r dL/dW A^T,   dL/dA = alpha/r B^T dL/dW
/// W0 are the weights when this is made. The tensors of the model stay the same ones.
class LowRank {
 public:
  /// Throws InputError for a pattern that matches no parameter, and for one that is no matrix or has a smaller rank.
  LowRank(const std::vector<layers::Parameter>& model, const LoraOptions& options, uint64_t seed);

  /// A and B of each weight, "NAME.lora_a" and "NAME.lora_b".
  const std::vector<layers::Parameter>& factors() const { return factors_; }
  bool has(const std::string& weight) const;
  /// Metadata for a file of the factors: alpha / r and the digest of the weights W0 (weights/lora.h).
  const weights::Metadata& metadata() const { return metadata_; }
  /// Takes the gradients of the weights to the factors.
  void take_gradients() const;
  /// Sets the weights to W0 + (alpha / r) B A.
  void merge() const;
  /// Throws InputError if the weights, which were read from `where` with the factors, are not what these make of W0.
  void require_same_start(const std::string& where) const;

 private:
  struct Target {
    std::string name;
    at::Tensor weight, start, a, b;
  };
  at::Tensor merged(const Target& target) const;

  double scale_;
  std::vector<Target> targets_;
  std::vector<layers::Parameter> factors_;
  weights::Metadata metadata_;
};

}  // namespace mnemo::train
