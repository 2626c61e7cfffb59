#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "infer/engine.h"

namespace mnemo::infer {

/// Consecutive rows of one sequence in a pass: memory rows that are read, tokens, memory rows that are written.
struct Engine::Piece {
  EngineSequence* sequence;
  std::span<const int64_t> tokens;
  size_t step;
  bool starts, ends;
  int64_t read, write;     ///< memory rows
  int64_t first_row = 0;   ///< within the pass
  int64_t first_kept = 0;  ///< row of the piece that the cache keeps first
  int64_t kept = 0;        ///< and how many
  int64_t rows() const { return read + static_cast<int64_t>(tokens.size()) + write; }
};

/// A row of a pass: its key's number within the sequence, and the keys it sees, lo .. hi-1.
struct Engine::Row {
  EngineSequence* sequence;
  int64_t key, lo, hi;
};

struct Engine::Workspace {
  std::vector<Piece> pieces;
  std::vector<Row> rows;
  std::vector<size_t> next;  ///< tokens of each step that have run
  std::vector<float> h, x, maps, q, qr, heads, y, ffn, cache_q, gathered, logits;
  std::vector<float*> targets;

  void resize(const Engine& engine, int64_t count) {
    const EnginePlan& plan = engine.plan_;
    const auto at_least = [&](std::vector<float>& memory, int64_t width) {
      if (static_cast<int64_t>(memory.size()) < count * width) memory.resize(static_cast<size_t>(count * width));
    };
    at_least(h, plan.dim);
    at_least(x, plan.dim);
    at_least(y, plan.dim);
    at_least(maps, engine.layers_[0].maps.out());
    at_least(q, plan.heads * plan.width);
    at_least(qr, plan.heads * plan.width);
    at_least(heads, plan.heads * plan.head_dim);
    at_least(ffn, plan.ffn);
    at_least(cache_q, plan.grc_channels);
  }

  /// Rows through a layer norm, in x.
  const float* normalised(const float* from, int64_t count, int64_t dim, const std::vector<float>& weight,
                          const std::vector<float>& bias, float eps) {
    for (int64_t row = 0; row < count; ++row)
      ops::normalise_row(from + row * dim, weight.data(), bias.data(), eps, dim, x.data() + row * dim);
    return x.data();
  }

  /// Puts a row's key and value in their place. maps: the row of Layer::maps.
  static void store_keys(const Engine& engine, const EngineSequence& sequence, int64_t layer, int64_t key,
                         const float* maps) {
    const EnginePlan& plan = engine.plan_;
    const int64_t all = plan.heads * plan.head_dim;
    for (int64_t head = 0; head < plan.heads; ++head) {
      const float *k = maps + all + head * plan.head_dim, *v = maps + 2 * all + head * plan.head_dim;
      if (engine.wide_keys()) {
        ops::copy_row(k, plan.head_dim, sequence.keys_of<float>(layer, head) + key * plan.width);
        ops::copy_row(v, plan.head_dim, sequence.values_of<float>(layer, head) + key * plan.width);
      } else {
        ops::copy_row(k, plan.head_dim, sequence.keys_of<ops::Bf16Bits>(layer, head) + key * plan.width);
        ops::copy_row(v, plan.head_dim, sequence.values_of<ops::Bf16Bits>(layer, head) + key * plan.width);
      }
    }
  }
};

}  // namespace mnemo::infer
