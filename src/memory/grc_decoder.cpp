#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core/decode.h"
#include "core/require_state.h"
#include "memory/grc.h"
#include "ops/decode/decode_rows.h"
#include "ops/row_kernels.h"

namespace mnemo::memory {
namespace {

/// One layer's cache of one sequence, and the state of the inner attention.
struct GrcDecodeState final : core::DecodeState {
  std::vector<float> cache;  ///< [N,C]
  std::vector<float> k, v;   ///< [H,N,width]: projected once per cache, not per token
  std::vector<float> rows;   ///< [M,C]: the open segment's rows, if the cache is updated
  std::unique_ptr<core::DecodeState> inner;

  std::unique_ptr<core::DecodeState> clone() const override {
    auto copy = std::make_unique<GrcDecodeState>();
    copy->cache = cache, copy->k = k, copy->v = v, copy->rows = rows;
    copy->inner = inner->clone();
    return copy;
  }
  int64_t num_bytes() const override {
    return static_cast<int64_t>(cache.size() + k.size() + v.size() + rows.size()) * 4 + inner->num_bytes();
  }
};

float logistic(float x) { return 1.0f / (1.0f + std::exp(-x)); }

/// The parts of the cache branch, for causal models with variant "paper".
struct GrcParts {
  layers::Linear q, k, v;
  const ops::GrcGates& gates;
  at::Tensor lambda;
  int64_t heads, head_dim, length, channels, dim;
  bool moves;  ///< the cache is updated: one per sequence
};

/// H heads, N rows of the cache, C its channels; width is C / H, padded.
class GrcDecoder final : public core::DecodeAttention {
 public:
  GrcDecoder(const core::DecodeBuild& build, const GrcParts& parts, std::unique_ptr<core::DecodeAttention> inner)
      : inner_(std::move(inner)),
        heads_(parts.heads),
        head_dim_(parts.head_dim),
        length_(parts.length),
        channels_(parts.channels),
        dim_(parts.dim),
        width_((parts.channels / parts.heads + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep),
        moves_(parts.moves),
        q_(build.pack(parts.q.weight, parts.q.bias)),
        kv_(build.pack({parts.k, parts.v})),
        gates_(build.pack({map_of(parts.gates.reset_weight, parts.gates.reset_bias),
                           map_of(parts.gates.update_weight, parts.gates.update_bias)})),
        candidate_(build.pack(parts.gates.candidate_weight, parts.gates.candidate_bias)),
        share_(core::plain_numbers(at::sigmoid(parts.lambda.detach()))) {}

  std::unique_ptr<core::DecodeState> import(const core::State& state, const core::OpenKeys& keys) const override {
    const core::State own = state.child("grc");
    const auto& grc = own.as<GrcState>();
    core::require_state("grc", grc.cache, {1, length_, channels_});
    auto made = std::make_unique<GrcDecodeState>();
    made->cache = core::plain_numbers(grc.cache);
    if (grc.rows.defined()) {
      const int64_t padding = core::left_padding(grc.valid);
      made->rows = core::plain_numbers(grc.rows.narrow(1, padding, grc.rows.size(1) - padding));
    }
    project(*made);
    made->inner = inner_->import(state.child("core"), keys);
    return made;
  }

  core::State export_state(const core::DecodeState& state, bool open) const override {
    const auto& own = static_cast<const GrcDecodeState&>(state);
    GrcState grc;
    grc.per_sequence = moves_;
    grc.cache = core::tensor_of(own.cache.data(), {1, length_, channels_});
    if (open && moves_) {
      const int64_t rows = static_cast<int64_t>(own.rows.size()) / channels_;
      grc.rows = core::tensor_of(own.rows.data(), {1, rows, channels_});
      grc.valid = at::ones({1, rows}, at::kBool);
    }
    return core::State::list({{"grc", grc}, {"core", inner_->export_state(*own.inner, open)}});
  }

  void heads(const core::DecodePass& pass, const float* x, float* heads) const override {
    thread_local std::vector<core::DecodeState*> states;
    states.clear();
    for (core::DecodeState* state : pass.states) states.push_back(static_cast<GrcDecodeState*>(state)->inner.get());
    inner_->heads({pass.pieces, pass.rows, states}, x, heads);

    thread_local std::vector<float> q_memory;
    const auto count = static_cast<int64_t>(pass.rows.size());
    const int64_t all = heads_ * head_dim_;
    float* q = core::at_least(q_memory, count * channels_);
    q_(x, count, dim_, q, channels_);
    ops::multiply(q, count * channels_, 1.0f / std::sqrt(static_cast<float>(channels_ / heads_)));
    at::parallel_for(0, count, core::thread_grain(2 * length_ * channels_), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto piece = static_cast<size_t>(pass.rows[static_cast<size_t>(i)].piece);
        mix(*static_cast<const GrcDecodeState*>(pass.states[piece]), q + i * channels_, heads + i * all);
      }
    });
    if (!moves_) return;
    for (size_t piece = 0; piece < pass.pieces.size(); ++piece) {
      auto& state = *static_cast<GrcDecodeState*>(pass.states[piece]);
      const int64_t first = pass.pieces[piece].first_row;
      for (int64_t i = first; i < first + pass.pieces[piece].rows(); ++i)
        state.rows.insert(state.rows.end(), x + i * dim_, x + i * dim_ + channels_);
    }
  }

  const ops::PackedLinear& output() const override { return inner_->output(); }
  void require_places(const core::DecodeState& state, int64_t rows) const override {
    inner_->require_places(*static_cast<const GrcDecodeState&>(state).inner, rows);
  }

  bool end_segment(core::DecodeState& state, std::span<const core::KeptKeys> kept) const override {
    auto& own = static_cast<GrcDecodeState&>(state);
    if (moves_) update(own);
    return inner_->end_segment(*own.inner, kept);
  }

  int64_t bytes_per_token(int64_t keys) const override {
    return inner_->bytes_per_token(keys) + q_.num_bytes() + kv_.num_bytes() + 2 * heads_ * length_ * width_ * 4;
  }

 private:
  static layers::Linear map_of(const at::Tensor& weight, const at::Tensor& bias) {
    layers::Linear map;
    map.weight = weight, map.bias = bias;
    return map;
  }

  /// Projects a cache to keys and values.
  void project(GrcDecodeState& state) const {
    thread_local std::vector<float> memory;
    float* maps = core::at_least(memory, length_ * 2 * channels_);
    kv_(state.cache.data(), length_, channels_, maps, 2 * channels_);
    // The padding of each head stays zero.
    state.k.resize(static_cast<size_t>(heads_ * length_ * width_));
    state.v.resize(state.k.size());
    const int64_t d = channels_ / heads_;
    for (int64_t head = 0; head < heads_; ++head) {
      for (int64_t row = 0; row < length_; ++row) {
        const float* from = maps + row * 2 * channels_ + head * d;
        std::copy_n(from, d, state.k.data() + (head * length_ + row) * width_);
        std::copy_n(from + channels_, d, state.v.data() + (head * length_ + row) * width_);
      }
    }
  }

  /// Mixes what one row reads from the cache into its own heads: o_h <- sigma(lambda_h) [m_h, 0] + (1 -
  /// sigma(lambda_h)) o_h. q [C] scaled; heads [H*d].
  void mix(const GrcDecodeState& state, const float* q, float* heads) const {
    thread_local std::vector<float> memory;
    float* query = core::at_least(memory, length_ + 2 * width_);
    float *o = query + width_, *scores = o + width_;
    const int64_t d = channels_ / heads_;
    std::fill(query + d, query + width_, 0.0f);
    for (int64_t head = 0; head < heads_; ++head) {
      const int64_t at = head * length_ * width_;
      std::copy_n(q + head * d, d, query);
      ops::key_scores<float>(query, nullptr, state.k.data() + at, nullptr, length_, width_, scores);
      const float most = ops::add_then_max<float>(scores, nullptr, length_);
      const float sum = ops::exp_then_sum<float>(scores, length_, most);
      ops::weigh_values<float>(scores, state.v.data() + at, length_, width_, o);
      const float share = share_[static_cast<size_t>(head)], from_cache = share / sum;
      float* own = heads + head * head_dim_;
      for (int64_t c = 0; c < head_dim_; ++c) own[c] = (1.0f - share) * own[c] + (c < d ? from_cache * o[c] : 0.0f);
    }
  }

  /// Computes the cache that the next segment reads from state.rows, and clears these.
  void update(GrcDecodeState& state) const {
    const int64_t c = channels_, rows = static_cast<int64_t>(state.rows.size()) / c;
    if (rows == 0) return;
    thread_local std::vector<float> memory;
    float* joined = core::at_least(memory, length_ * 5 * c);  // [X, C], then [X, r*C]
    float *gates = joined + length_ * 2 * c, *candidate = gates + length_ * 2 * c;
    for (int64_t i = 0; i < length_; ++i) {
      std::copy_n(state.rows.data() + i * rows / length_ * c, c, joined + i * 2 * c);
      std::copy_n(state.cache.data() + i * c, c, joined + i * 2 * c + c);
    }
    gates_(joined, length_, 2 * c, gates, 2 * c);
    for (int64_t i = 0; i < length_; ++i) {
      for (int64_t j = 0; j < c; ++j) joined[i * 2 * c + c + j] *= logistic(gates[i * 2 * c + j]);
    }
    candidate_(joined, length_, 2 * c, candidate, c);
    for (int64_t i = 0; i < length_; ++i) {
      for (int64_t j = 0; j < c; ++j) {
        const float u = logistic(gates[i * 2 * c + c + j]);
        float& old = state.cache[static_cast<size_t>(i * c + j)];
        old = u * candidate[i * c + j] + (1.0f - u) * old;
      }
    }
    state.rows.clear();
    project(state);
  }

  std::unique_ptr<core::DecodeAttention> inner_;
  int64_t heads_, head_dim_, length_, channels_, dim_, width_;
  bool moves_;
  ops::PackedLinear q_, kv_, gates_, candidate_;
  std::vector<float> share_;  // sigma(lambda) [H]
};

}  // namespace

std::unique_ptr<core::DecodeAttention> Grc::decoder(const core::DecodeBuild& build) const {
  base::require(!reads_update(core::Mode::evaluate), "{}",
                "grc with sees_segment = true, which is for analysis: its queries look to the right");
  base::require(reader_.reads_by_softmax(), "{}", "grc with mem_attention = \"same\" around another core than softmax");
  base::require(!reader_.widens(), "{}", "grc with widen = \"projection\"");
  std::unique_ptr<core::DecodeAttention> inner = this->inner().decoder(build);
  if (inner == nullptr) return nullptr;
  const GrcParts parts{reader_.q(),
                       reader_.k(),
                       reader_.v(),
                       gates_,
                       lambda_,
                       num_heads_,
                       head_dim_,
                       cache_len_,
                       channels_,
                       dim_,
                       options_.lifetime == GrcOptions::Lifetime::sequence};
  return std::make_unique<GrcDecoder>(build, parts, std::move(inner));
}

}  // namespace mnemo::memory
