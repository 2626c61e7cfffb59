#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/node.h"
#include "models/model.h"
#include "ops/linear/linear.h"
#include "weights/safetensors.h"

namespace mnemo::bench {

/// Parameters with which everything matters: nothing is zero or one, and the likeliest token hangs on what is attended
/// to, not on the last token alone.
void spread_parameters(const layers::ParameterSet& parameters, at::Generator generator);

/// One model that `mnemo-bench` measures, and its batch.
struct BenchCase {
  std::string name, attention;  ///< attention: relative, softmax (with sinusoidal positions) or abc
  int64_t layers, dim, heads, ffn, segment, mem_len, mem_tokens, slots, batch, segments;
  int64_t evaluation_segment = 0;  ///< of the held-out text; 0: it is not measured
  bool grc = false;                ///< a gated recurrent cache besides; the peers have none

  std::unique_ptr<models::Model> build() const;
  /// What the peer reads.
  base::Node as_node(int64_t threads) const;
};

const std::vector<BenchCase>& bench_cases();

/// What one side computes from the same parameters and tokens; two sides have to agree before they are timed.
struct BenchFigures {
  double loss = 0, gradient_norm = 0;  ///< of the first training step
  double held_out = 0;                 ///< loss of the held-out text, 0 where the case has none
  std::vector<int64_t>
      tokens;  ///< the likeliest next one after each token of a text fed one at a time, past the end of a segment
};

/// Throws InputError for an answer that is none.
BenchFigures read_figures(const std::string& json, const std::string& peer);
/// Both numbers, named, where they differ by more than tolerance * |ours|; else empty.
std::string unlike(const char* what, double ours, double theirs, double tolerance);
/// What differs, with both numbers; empty where nothing does. Relative 1e-4 for losses, 1e-3 for the norm, equal
/// tokens.
std::string disagreement(const BenchFigures& ours, const BenchFigures& theirs);

/// Our side of one case.
class BenchSubject {
 public:
  explicit BenchSubject(const BenchCase& bench_case);
  ~BenchSubject();

  /// For the peer: the parameters by name, "bench.tokens" [B,T+1] of a training step, "bench.text" [B,T+1] held out,
  /// and "bench.fed" [T].
  weights::NamedTensors tensors() const;
  BenchFigures figures() const;

  /// Seconds of N training steps.
  double train(int64_t steps, ops::ProductPrecision precision = ops::ProductPrecision::float32);
  /// Floating-point operations of a training step's matrix products: thrice those of the forward pass. Scores that the
  /// backward pass computes once more are not counted.
  double train_products() const;
  /// Seconds of N tokens, greedy, from a position on; each call goes on where the last one of that position ended.
  double generate(int64_t position, int64_t tokens);
  /// Bytes of tensors that one token allocates, the mean over whole segments behind a position; as many as a buffer of
  /// the segment cache lasts.
  double allocated(int64_t position);
  /// Seconds of the held-out text in segments, with what the memory keeps; and how many tokens that are.
  double evaluate();
  int64_t evaluation_tokens() const;
  /// Seconds of one token a row, its whole context computed anew (`window` tokens).
  double recompute();
  int64_t window() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mnemo::bench
