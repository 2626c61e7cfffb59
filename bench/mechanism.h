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

/// A model with one mechanism, as trained by `mnemo-bench --all`: 2 layers, width 256, 4 heads, one sequence.
struct MechanismCase {
  std::string name;
  std::string attention;    ///< content of an inline TOML table: type = "softmax"
  std::string memory = {};  ///< inline tables: { type = "segment_cache" }
  bool encoder = false;     ///< bidirectional, with one class per segment
  double agree = 1.0;       ///< share of outputs that must equal a peer's; lower if rounding decides between buckets or
                            ///< clusters
  double gradient = 1e-3;   ///< tolerated relative difference of the gradient norm; larger if float32 is itself less
                            ///< accurate

  /// Tokens per segment: models with a memory between segments process their text in segments, the others (0) in one
  /// piece.
  int64_t segment() const { return memory.empty() ? 0 : 512; }
  models::ModelOptions options() const;
};

/// One case for each attention, each control of ABC and each memory.
const std::vector<MechanismCase>& mechanism_cases();
/// Numbers of tokens that a model must handle in training.
const std::vector<int64_t>& mechanism_lengths();

/// The results of one side on the test text, from the same parameters.
struct MechanismFigures {
  double loss = 0, gradient_norm = 0;
  double agree = 1, off = 0;  ///< for a peer: the share of tokens whose outputs match ours to 1e-4 of the largest
                              ///< value; the largest difference in that unit
};

/// Throws InputError for an invalid answer.
MechanismFigures read_mechanism_figures(const std::string& json, const std::string& peer);
/// Describes differences with both numbers; empty if there are none. The loss may differ by 1e-4, the norm by 1e-3
/// (relative).
std::string mechanism_disagreement(const MechanismCase& mechanism, const MechanismFigures& ours,
                                   const MechanismFigures& theirs);

/// Our side of one case.
class MechanismSubject {
 public:
  explicit MechanismSubject(const MechanismCase& mechanism);
  ~MechanismSubject();

  /// Tensors for the peer: the parameters by name, "bench.tokens" [1,T+1], "bench.labels" [1,S], and "bench.outputs" of
  /// the test text.
  weights::NamedTensors tensors() const;
  /// The configuration sent to the peer. memory_limit: bytes that it may use.
  base::Node peer_case(int64_t threads, int64_t memory_limit) const;
  /// The request for its results.
  std::string check_request() const;
  MechanismFigures figures() const;

  /// Seconds for a training step over that many tokens.
  double train(int64_t tokens);
  /// Memory in bytes of pages that such a step adds to what is in use before it; nothing if the system does not report
  /// it.
  std::optional<int64_t> memory(int64_t tokens);
  /// Bytes of state after that many tokens. In a decoder the last segment is still open, as in generation.
  int64_t state_bytes(int64_t tokens) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mnemo::bench
