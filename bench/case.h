#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/node.h"
#include "models/model.h"
#include "ops/linear/linear.h"
#include "weights/safetensors.h"

namespace mnemo::bench {

/// Sets parameters so that all of them matter: none is zero or one, and the most likely token depends on what is
/// attended to, not only on the last token.
void spread_parameters(const layers::ParameterSet& parameters, at::Generator generator);

/// One model that `mnemo-bench` measures, and its batch.
struct BenchCase {
  std::string name, attention;  ///< attention: relative, softmax (with sinusoidal positions) or abc
  int64_t layers, dim, heads, ffn, segment, mem_len, mem_tokens, slots, batch, segments;
  int64_t evaluation_segment = 0;  ///< segment size on the held-out text; 0: not measured
  bool grc = false;                ///< adds a gated recurrent cache; the peers have none

  std::unique_ptr<models::Model> build() const;
  /// The configuration sent to the peer.
  base::Node as_node(int64_t threads) const;
};

const std::vector<BenchCase>& bench_cases();

/// The results of one side from the same parameters and tokens. Both sides must agree before they are timed.
struct BenchFigures {
  double loss = 0, gradient_norm = 0;  ///< of the first training step
  double held_out = 0;                 ///< loss on the held-out text, 0 if the case has none
  std::vector<int64_t>
      tokens;  ///< most likely next token after each token of a text fed one at a time, past the end of a segment
};

/// Throws InputError for an invalid answer.
BenchFigures read_figures(const std::string& json, const std::string& peer);
/// Both numbers with a name if they differ by more than tolerance * |ours|; otherwise empty.
std::string unlike(const char* what, double ours, double theirs, double tolerance);
/// Describes differences with both numbers; empty if there are none. Losses may differ by 1e-4, the norm by 1e-3
/// (relative); tokens must be equal.
std::string disagreement(const BenchFigures& ours, const BenchFigures& theirs);

/// Waits until a device has done what it was given; the processor always has.
void wait_for(at::Device device);

/// Our side of one case.
class BenchSubject {
 public:
  explicit BenchSubject(const BenchCase& bench_case, at::Device device = at::kCPU);
  ~BenchSubject();

  /// Tensors for the peer, on the processor: the parameters by name, "bench.tokens" [B,T+1] of a training step, "bench.text" [B,T+1] held
  /// out, and "bench.fed" [T].
  weights::NamedTensors tensors() const;
  BenchFigures figures() const;

  /// Seconds for N training steps.
  double train(int64_t steps, ops::ProductPrecision precision = ops::ProductPrecision::float32);
  /// Floating-point operations of a training step's matrix products: three times those of the forward pass. Scores that
  /// the backward pass recomputes are not counted.
  double train_products() const;
  /// Seconds for N tokens, greedy, starting at a position. Each call continues where the last one from that position
  /// ended. graphs: on a device, by recorded graphs.
  double generate(int64_t position, int64_t tokens, bool graphs = false);
  /// How many of these tokens graphs have run.
  int64_t graph_tokens(int64_t position);
  /// Bytes of tensors allocated per token, averaged over whole segments after a position, as many as one buffer of the
  /// segment cache lasts.
  double allocated(int64_t position);
  /// Seconds for the held-out text in segments, using the memory; below, the number of its tokens.
  double evaluate();
  int64_t evaluation_tokens() const;
  /// Seconds per token and row if its whole context (`window` tokens) is recomputed.
  double recompute();
  int64_t window() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mnemo::bench
