#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/option_poly.h"

/// Options with a field of every kind, for the tests of reading and writing and for the fuzz targets.
namespace mnemo::test {

struct SampleCache {
  int64_t mem_len = 64;
  bool same_length = false;
  std::string variant = "paper";
  base::Depth bptt_depth = base::Depth::all();

  template <class V>
  void visit(V&& v) {
    v("mem_len", mem_len, "rows kept from earlier segments", base::range(0, 1 << 20));
    v("same_length", same_length, "every query sees exactly mem_len keys");
    v("variant", variant, "which reading", base::one_of("paper", "authors"));
    v("bptt_depth", bptt_depth, "segments that gradients reach back", base::range(0, 1000));
  }
  void validate(const base::Where& where) const {
    where.require(mem_len > 0 || !same_length, "same_length", "needs mem_len above 0, found {}", mem_len);
  }
  bool operator==(const SampleCache&) const = default;
};

struct SampleNothing {
  template <class V>
  void visit(V&&) {}
  bool operator==(const SampleNothing&) const = default;
};

inline const base::OptionTypes& sample_memories();

/// A part that contains a part of its own kind.
struct SampleGate {
  double lambda = -5;
  base::Node inner = "nothing";

  template <class V>
  void visit(V&& v) {
    v("lambda", lambda, "initial gate");
    v("inner", inner, "what is gated", base::poly(sample_memories()));
  }
  bool operator==(const SampleGate&) const = default;
};

inline const base::OptionTypes& sample_memories() {
  static const base::OptionTypes types = [] {
    base::OptionTypes made("memory");
    made.add<SampleCache>("segment_cache", "rows of earlier segments");
    made.add<SampleGate>("gate", "a gate around another memory");
    made.add<SampleNothing>("nothing", "no memory");
    return made;
  }();
  return types;
}

struct SampleOptimizer {
  double learning_rate = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  std::optional<double> clip = 1.0;
  std::optional<int64_t> warmup = std::nullopt;

  template <class V>
  void visit(V&& v) {
    v("learning_rate", learning_rate, "step size", base::positive());
    v("betas", betas, "decay of the moments", base::half_open_range(0, 1));
    v("clip", clip, "largest gradient norm", base::positive());
    v("warmup", warmup, "steps of warm-up", base::at_least(0));
  }
  void validate(const base::Where& where) const {
    where.require(betas.size() == 2, "betas", "expected 2 numbers, found {}", betas.size());
  }
  bool operator==(const SampleOptimizer&) const = default;
};

struct SampleOptions {
  std::string name = "sample";
  int64_t seed = 0;
  bool causal = true;
  base::Node attention = base::Node::table({{"type", "gate"}, {"lambda", 0.5}});
  base::Node adapter;
  std::vector<base::TypedOptions> memory;
  SampleOptimizer optimizer;
  std::vector<SampleOptimizer> phases;
  std::optional<SampleCache> cache;
  std::vector<int64_t> cutoffs;
  std::vector<std::string> files;
  std::optional<std::string> resume;
  std::optional<bool> deterministic;
  std::optional<base::Depth> depth;
  std::optional<std::vector<int64_t>> shape;

  template <class V>
  void visit(V&& v) {
    v("name", name, "what the run is called", base::not_empty());
    v("seed", seed, "of every generator");
    v("causal", causal, "no token sees a later one");
    v("attention", attention, "the attention", base::poly(sample_memories()));
    v("adapter", adapter, "may be unset", base::poly(sample_memories()));
    v("memory", memory, "the memories, innermost first", base::poly(sample_memories()));
    v("optimizer", optimizer, "how weights move");
    v("phases", phases, "optimizers one after another");
    v("cache", cache, "a cache, if any");
    v("cutoffs", cutoffs, "borders of frequency bands", base::at_least(1));
    v("files", files, "texts to read", base::not_empty());
    v("resume", resume, "checkpoint to go on from");
    v("deterministic", deterministic, "same bits every time");
    v("depth", depth, "a depth, if any");
    v("shape", shape, "a shape, if any");
  }
  bool operator==(const SampleOptions&) const = default;
};

}  // namespace mnemo::test
