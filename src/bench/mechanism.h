#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "models/options.h"
#include "weights/safetensors.h"

namespace mnemo::bench {

/// A model of one mechanism, as `mnemo-bench --all` trains it: 2 layers, 256 wide, 4 heads, one sequence.
struct MechanismCase {
  std::string name;
  std::string attention;    ///< inside of an inline table of TOML: type = "softmax"
  std::string memory = {};  ///< inline tables: { type = "segment_cache" }
  bool encoder = false;     ///< looks both ways and gives one class a segment
  double
      agree = 1.0;  ///< share of outputs that must be a peer's; less where rounding decides between buckets or clusters
  double gradient = 1e-3;  ///< relative difference of the gradient's norm; more where float32 itself is further from
                           ///< float64

  /// Tokens of a segment: models with a memory between segments get their text in such parts, the others (0) in one
  /// piece.
  int64_t segment() const { return memory.empty() ? 0 : 512; }
  models::ModelOptions options() const;
};

/// One for each attention, each control of ABC, each memory.
const std::vector<MechanismCase>& mechanism_cases();
/// Tokens that a model must handle in training.
const std::vector<int64_t>& mechanism_lengths();

/// What one side computes of the text to check with, from the same parameters.
struct MechanismFigures {
  double loss = 0, gradient_norm = 0;
  double agree = 1, off = 0;  ///< of a peer: share of tokens whose outputs are ours to 1e-4 of the largest; the largest
                              ///< difference in that unit
};

/// Throws InputError for an answer that is none.
MechanismFigures read_mechanism_figures(const std::string& json, const std::string& peer);
/// What differs, with both numbers; empty where nothing does. Relative 1e-4 for the loss, 1e-3 for the norm.
std::string mechanism_disagreement(const MechanismCase& mechanism, const MechanismFigures& ours,
                                   const MechanismFigures& theirs);

/// Our side of one case.
class MechanismSubject {
 public:
  explicit MechanismSubject(const MechanismCase& mechanism);
  ~MechanismSubject();

  /// For the peer: parameters by name, "bench.tokens" [1,T+1], "bench.labels" [1,S], and "bench.outputs" of the text to
  /// check with.
  weights::NamedTensors tensors() const;
  /// What the peer is told. memory_limit: bytes that it may take.
  base::Node peer_case(int64_t threads, int64_t memory_limit) const;
  /// The request for its figures.
  std::string check_request() const;
  MechanismFigures figures() const;

  /// Seconds of a training step over that many tokens.
  double train(int64_t tokens);
  /// Bytes of pages that such a step takes beyond what stood before it; nothing where the system does not tell.
  std::optional<int64_t> memory(int64_t tokens);
  /// Bytes that the model carries after that many tokens: in a decoder the last segment is still open, as in
  /// generation.
  int64_t state_bytes(int64_t tokens) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mnemo::bench
