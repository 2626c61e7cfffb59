#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/decode.h"
#include "core/key_rows_state.h"
#include "layers/parts.h"

namespace mnemo::attention {

using core::KeyLayout;
using core::KeyRowsState;

/// The distance terms of relative attention, projected once for the longest distance requested so far.
///   r_p = W_r R(p);  rows [H, count, width], row i is the distance i - right
class DistanceRows {
 public:
  struct Rows {
    int64_t count = 0, right = 0;
    ops::AlignedBytes memory;
  };
  /// weight [H*d,D] of r; clamp: longer distances are clamped to it, 0 = no clamping.
  DistanceRows(const at::Tensor& weight, int64_t dim, int64_t clamp, const KeyLayout& layout)
      : weight_(weight.detach()), dim_(dim), clamp_(clamp), layout_(layout), rows_(std::make_shared<const Rows>()) {}
  /// Rows for at least the distances -right .. longest.
  std::shared_ptr<const Rows> reach(int64_t longest, int64_t right) const;

 private:
  at::Tensor weight_;
  int64_t dim_, clamp_;
  KeyLayout layout_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Rows> rows_;
};

/// A bias of the scores for every distance and head.
///   first, count -> [H,count]: of the distances first, first - 1, ...
using BiasOfDistances = std::function<at::Tensor(int64_t first, int64_t count)>;

/// The biases of distances, computed once for the longest distance requested so far.
class DistanceBiases {
 public:
  struct Rows {
    int64_t longest = -1, count = 0;
    std::vector<float> values;  ///< [H,count], of the distances longest, longest - 1, ...
  };
  explicit DistanceBiases(BiasOfDistances bias) : bias_(std::move(bias)), rows_(std::make_shared<const Rows>()) {}
  /// Biases of at least the distances -right .. longest.
  std::shared_ptr<const Rows> reach(int64_t longest, int64_t right) const;

 private:
  BiasOfDistances bias_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Rows> rows_;
};

/// Parameters that only relative attention has.
struct DistanceTerms {
  at::Tensor u, v;  ///< [H,d]
  at::Tensor r;     ///< [H*d,D]; undefined: no distance terms
  int64_t dim = 0, clamp = 0;
};

/// Optional parts of a key-value decoder: window, distance terms, biases, rotary positions and so on.
struct KeyDecoderOptions {
  int64_t window = 0;            ///< keys up to and including its own that a row sees, likewise to the right; 0 = all
  DistanceTerms distances = {};  ///< of relative attention
  BiasOfDistances bias = {};     ///< added to the scores; unset: none
  double scale = 0.0;            ///< of q k^T; 0: 1/sqrt(d)
  std::vector<double> frequencies;  ///< of rotary positions; empty: none
};

/// Decoder of attentions over individual keys: softmax, and with additional terms relative, relative buckets and
/// sliding window.
///   o_h = softmax_j( (q_h + u_h) . k_j + (q_h + v_h) . r_{p(i,j)} + b_{h,p(i,j)} ) v_j
/// q, u and v are scaled by 1/sqrt(d), unless the options have another scale.
/// With rotary positions, keys are stored as they are after the turn by their number; with grouped queries, H query
/// heads read G key heads.
class KeyDecoder final : public core::DecodeAttention {
 public:
  KeyDecoder(const core::DecodeBuild& build, const layers::AttentionProjections& maps,
             const KeyDecoderOptions& options = {});

  std::unique_ptr<core::DecodeState> import(const core::State& state, const core::OpenKeys& keys) const override;
  core::State export_state(const core::DecodeState& state, bool open) const override;
  void heads(const core::DecodePass& pass, const float* x, float* heads) const override;
  const ops::PackedLinear& output() const override { return output_; }
  bool int8_keys() const override { return layout_.int8; }
  bool end_segment(core::DecodeState& state, std::span<const core::KeptKeys> kept) const override;
  int64_t bytes_per_token(int64_t keys) const override;

 private:
  /// The number of keys of the open segment that are kept in its State.
  int64_t exported(int64_t keys) const { return window_ > 0 ? std::min(keys, window_ - 1) : keys; }
  /// Rows of a pass that one head processes at a time.
  struct RowRange {
    int64_t first, count;
  };
  /// Rows of a piece that see keys from the same one on are processed together if they are enough.
  void list_ranges(const core::DecodePass& pass, bool distances, std::vector<RowRange>& ranges) const;
  template <class T>
  void attend(const core::DecodePass& pass, const float* q, const float* qr, const DistanceRows::Rows* distances,
              const DistanceBiases::Rows* biases, float* heads) const;
  template <class T>
  void attend_alone(const core::DecodePass& pass, int64_t i, int64_t of_keys, const float* q, const float* qr,
                    const DistanceRows::Rows* distances, const DistanceBiases::Rows* biases, float* heads) const;
  template <class T>
  void attend_together(const core::DecodePass& pass, const RowRange& range, int64_t of_keys, const float* q,
                       const DistanceBiases::Rows* biases, float* heads) const;
  /// e^(score - largest), of scores with their biases; returns the sum.
  float exponentials(const core::DecodeRow& row, int64_t lo, int64_t seen, int64_t head,
                     const DistanceBiases::Rows* biases, float* scores) const;
  void write_head(const float* o, float sum, int64_t row, int64_t head, float* heads) const;

  /// Turns the key row of every head, [G*d], by its number.
  void turn_key(int64_t number, float* k) const;

  KeyLayout layout_;   ///< of keys and values: G heads
  int64_t num_heads_;  ///< of queries: H
  int64_t window_;
  int64_t dim_;
  float scale_;
  std::vector<double> frequencies_;
  ops::PackedLinear maps_, output_;
  std::vector<float> u_, v_;  // [H,width], scaled
  std::unique_ptr<DistanceRows> distances_;
  std::unique_ptr<DistanceBiases> biases_;
};

}  // namespace mnemo::attention
