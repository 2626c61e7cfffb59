#pragma once

#include <memory>

#include "base/options.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/bounded.h"
#include "core/inspection.h"
#include "layers/parts.h"

namespace mnemo::memory {

struct KnnOptions {
  int64_t memory_len = 1024;
  int64_t top_k = 32;
  bool normalize = true;
  template <class V>
  void visit(V&& v) {
    v("memory_len", memory_len, "keys and values of the past that are kept for each sequence", base::range(1, 1 << 24));
    v("top_k", top_k, "rows of the memory that a query uses, for each head", base::range(1, 1 << 16));
    v("normalize", normalize,
      "normalise queries and keys of the memory to length one and learn a scale per head, so that old keys stay "
      "comparable");
  }
};

/// Keys and values of the past, [B,H,M,d] (with grouped queries those of the G key heads), right-aligned; valid [B,M]:
/// which rows are real. open: those of a segment that goes on in the next call, absent between segments.
struct KnnState {
  at::Tensor keys, values, valid;
  at::Tensor open_keys, open_values, open_valid;
  template <class F>
  void visit(F&& f) {
    f("keys", keys, "B H M d");
    f("values", values, "B H M d");
    f("valid", valid, "B M");
    f("open.keys", open_keys, "B H M d");
    f("open.values", open_values, "B H M d");
    f("open.valid", open_valid, "B M");
  }
};

/// Throws where the state is of another model or batch.
void require_knn_state(const KnnState& state, int64_t batch, int64_t heads, int64_t head_dim);

/// Attention with a kNN memory around an inner core (Wu et al. 2022, Memorizing Transformers, sections 3.1 and 3.2).
///   s_ij = q_i . K_j / sqrt(d), or, normalised, scale_h (q_i / |q_i|) . K_j with K_j of length one
///   o_mem_i = sum over the top_k real rows j with the largest s_ij of softmax(s_i)_j V_j
///   heads = g o_mem + (1 - g) o_local,  g = sigmoid(gate_h)
/// q, k, v are the core's own maps of the call's rows, without its terms of position (rotary turns too); with grouped
/// queries the heads of a group look into the memory of their key head, each for itself. o_local is the core as it is.
/// A sequence with an empty memory has o_local alone. A segment reads the memory as it was before the segment; when it
/// ends, the memory takes its keys and values, without gradient, and keeps the last memory_len real rows. Padding is
/// not stored.
/// Parameters: gate [H], starts at 0; scale [H] if normalised, starts at sqrt(d).
class Knn final : public core::CoreAttention, public core::Inspectable, public core::Bounded {
 public:
  using Options = KnnOptions;
  /// Throws InputError around an attention that does not say how it maps rows to queries, keys and values.
  Knn(const Options& options, const core::AttentionBuild& build, std::unique_ptr<core::CoreAttention> inner);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  at::Tensor project(const at::Tensor& heads) const override { return inner_->project(heads); }
  core::State initial_state(int64_t batch) const override;
  core::AttentionSupport support() const override;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;
  int64_t bptt_depth(std::string_view field) const override;
  int64_t max_rows(std::string_view field, core::Mode mode) const override;
  const layers::AttentionProjections* projections() const override { return maps_; }
  /// The inner attention's maps, and "knn": the weights of the memory's rows for each query.
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;
  core::State history(const core::AttentionInput& input, const core::State& state,
                      const core::State& history) const override;
  /// g of every head: how much of the output comes from the memory.
  std::vector<core::Scalar> scalars() const override;

 private:
  const KnnState& checked(const core::State& knn, int64_t batch) const;
  /// q [B,H,Q,d] as it is scored, by key heads (core/grouped_queries.h).
  at::Tensor queries(const at::Tensor& q) const;
  /// The state after the call's keys and values k, v [B,H,Q,d], as they are mapped.
  KnnState after(const KnnState& old, const at::Tensor& k, const at::Tensor& v,
                 const core::AttentionInput& input) const;

  Options options_;
  std::unique_ptr<core::CoreAttention> inner_;
  const layers::AttentionProjections* maps_;
  int64_t num_heads_, num_kv_heads_, head_dim_;
  at::Tensor gate_, scale_;
};

}  // namespace mnemo::memory
