#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/parameters.h"
#include "ops/decode/decode_rows.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::infer {

struct EnginePlan;

/// One layer's gated recurrent cache of one sequence.
struct GrcMemory {
  std::vector<float> cache;  ///< [N,C]
  std::vector<float> k, v;   ///< [H,N,width]: projected once for each cache, not for each token
  std::vector<float> rows;   ///< [M,C]: the open segment's rows, where the cache moves
};

/// The cache branch of one layer in the decoding engine (memory/grc.h, the causal form of variant "paper").
/// H `num_heads`, N `cache_len`, C cached channels, width that of a head of C / H, padded.
class EngineGrc {
 public:
  EngineGrc(const EnginePlan& plan, const layers::ParameterSet& parameters, const std::string& attention,
            ops::Precision precision);

  /// Keys and values of a cache that was put in from outside.
  void project(GrcMemory& memory) const;
  /// q of rows x [count, x_stride] -> [count,C], scaled.
  void queries(const float* x, int64_t count, int64_t x_stride, float* q) const;
  /// Puts what one row reads from the cache beside its own heads: o_h <- sigma(lambda_h) [m_h, 0] + (1 -
  /// sigma(lambda_h)) o_h.
  /// q [C]; heads [H*d].
  void mix(const GrcMemory& memory, const float* q, float* heads) const;
  /// The cache that the next segment reads, made from memory.rows, which go.
  void update(GrcMemory& memory) const;

  int64_t channels() const { return channels_; }
  int64_t num_bytes() const { return q_.num_bytes() + kv_.num_bytes(); }

 private:
  int64_t heads_, head_dim_, length_, channels_, width_;
  ops::PackedLinear q_, kv_, gates_, candidate_;
  std::vector<float> share_;  // sigma(lambda) [H]
};

}  // namespace mnemo::infer
