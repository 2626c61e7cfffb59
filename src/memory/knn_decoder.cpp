#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "core/key_rows_state.h"
#include "memory/knn.h"
#include "ops/attention/knn.h"
#include "ops/decode/decode_rows.h"
#include "ops/row_kernels.h"

namespace mnemo::memory {
namespace {

/// Keys and values of one sequence, [memory; open segment], and the state of the attention inside.
struct KnnDecodeState final : core::DecodeState {
  explicit KnnDecodeState(const core::KeyLayout& layout) : rows(layout) {}
  core::KeyRowsState rows;
  int64_t memory = 0;  ///< rows that the open segment reads
  std::unique_ptr<core::DecodeState> inner;

  int64_t held() const { return rows.keys() - rows.first(); }
  std::unique_ptr<core::DecodeState> clone() const override {
    auto copy = std::make_unique<KnnDecodeState>(*this, inner->clone());
    return copy;
  }
  KnnDecodeState(const KnnDecodeState& other, std::unique_ptr<core::DecodeState> of_inner)
      : rows(other.rows), memory(other.memory), inner(std::move(of_inner)) {}
  int64_t num_bytes() const override { return rows.num_bytes() + inner->num_bytes(); }
};

/// H heads of queries, G of keys, d their width, `width` padded with zeros to whole vectors, M rows of the memory.
class KnnDecoder final : public core::DecodeAttention {
 public:
  KnnDecoder(const core::DecodeBuild& build, const KnnOptions& options, int64_t heads, int64_t groups, int64_t head_dim,
             const at::Tensor& gate, const at::Tensor& scale, std::unique_ptr<core::DecodeAttention> inner)
      : inner_(std::move(inner)),
        memory_len_(options.memory_len),
        top_k_(options.top_k),
        normalize_(options.normalize),
        num_heads_(heads),
        layout_{groups, head_dim, (head_dim + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep, build.wide_keys()},
        share_(core::plain_numbers(at::sigmoid(gate.detach()))),
        scale_(core::plain_numbers(scale)) {}

  std::unique_ptr<core::DecodeState> import(const core::State& state, const core::OpenKeys& keys) const override {
    const core::State own = state.child("knn");
    const auto& knn = own.as<KnnState>();
    require_knn_state(knn, 1, layout_.heads, layout_.head_dim);
    auto made = std::make_unique<KnnDecodeState>(layout_);
    made->memory = knn.valid.size(1) - core::left_padding(knn.valid);
    made->rows.take(knn.keys, knn.values, made->memory);
    if (knn.open_valid.defined())
      made->rows.take(knn.open_keys, knn.open_values, knn.open_valid.size(1) - core::left_padding(knn.open_valid));
    made->inner = inner_->import(state.child("core"), keys);
    return made;
  }

  core::State export_state(const core::DecodeState& state, bool open) const override {
    const auto& own = static_cast<const KnnDecodeState&>(state);
    const int64_t all = own.held(), fresh = all - own.memory;
    const at::Tensor keys = own.rows.tensor(false, all), values = own.rows.tensor(true, all);
    KnnState knn;
    knn.keys = keys.narrow(2, 0, own.memory).contiguous();
    knn.values = values.narrow(2, 0, own.memory).contiguous();
    knn.valid = at::ones({1, own.memory}, at::kBool);
    if (open) {
      knn.open_keys = keys.narrow(2, own.memory, fresh).contiguous();
      knn.open_values = values.narrow(2, own.memory, fresh).contiguous();
      knn.open_valid = at::ones({1, fresh}, at::kBool);
    }
    return core::State::list({{"knn", knn}, {"core", inner_->export_state(*own.inner, open)}});
  }

  void heads(const core::DecodePass& pass, const float* x, float* heads) const override {
    thread_local std::vector<core::DecodeState*> states;
    thread_local std::vector<float> qkv_memory, q_memory;
    const auto count = static_cast<int64_t>(pass.rows.size()), pieces = static_cast<int64_t>(pass.pieces.size());
    const int64_t all = num_heads_ * layout_.head_dim, padded = num_heads_ * layout_.width, maps = map_stride();
    float* qkv = pass.qkv != nullptr ? pass.qkv : core::at_least(qkv_memory, count * maps);
    float* q = core::at_least(q_memory, count * padded);
    states.clear();
    for (core::DecodeState* state : pass.states) states.push_back(static_cast<KnnDecodeState*>(state)->inner.get());
    inner_->heads({pass.pieces, pass.rows, states, qkv}, x, heads);

    int64_t most = 1;
    for (int64_t number = 0; number < pieces; ++number) {
      const core::DecodePiece& piece = pass.pieces[static_cast<size_t>(number)];
      auto& state = *static_cast<KnnDecodeState*>(pass.states[static_cast<size_t>(number)]);
      take(state, piece, qkv + piece.first_row * maps, q + piece.first_row * padded);
      most = std::max(most, state.memory * piece.rows());
    }
    at::parallel_for(0, pieces * num_heads_, core::thread_grain(most * layout_.width), [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const auto number = static_cast<size_t>(item / num_heads_);
        const core::DecodePiece& piece = pass.pieces[number];
        const auto& state = *static_cast<const KnnDecodeState*>(pass.states[number]);
        const float* of_piece = q + piece.first_row * padded;
        float* to = heads + piece.first_row * all;
        if (layout_.wide) {
          read<float>(state, item % num_heads_, of_piece, piece.rows(), to);
        } else {
          read<ops::Bf16Bits>(state, item % num_heads_, of_piece, piece.rows(), to);
        }
      }
    });
  }

  const ops::PackedLinear& output() const override { return inner_->output(); }
  void require_places(const core::DecodeState& state, int64_t rows) const override {
    inner_->require_places(*static_cast<const KnnDecodeState&>(state).inner, rows);
  }

  bool end_segment(core::DecodeState& state, std::span<const core::KeptKeys> kept) const override {
    auto& own = static_cast<KnnDecodeState&>(state);
    own.memory = std::min(own.held(), memory_len_);
    own.rows.trim(own.memory);
    return inner_->end_segment(*own.inner, kept);
  }

  int64_t bytes_per_token(int64_t keys) const override {
    const int64_t rows = std::min(keys, memory_len_);
    return inner_->bytes_per_token(keys) +
           (rows * layout_.heads + std::min(rows, top_k_) * num_heads_) * layout_.head_dim * (layout_.wide ? 4 : 2);
  }

 private:
  /// The factor that gives a head's row length one.
  float to_length_one(const float* row) const {
    return 1.0f / std::sqrt(ops::inner_product(row, row, layout_.head_dim) + 1e-12f);
  }

  /// Stores the keys and values of a piece's rows, and puts its queries, as they are scored, into q [rows,H,width].
  void take(KnnDecodeState& state, const core::DecodePiece& piece, float* qkv, float* q) const {
    const int64_t d = layout_.head_dim, of_queries = num_heads_ * d, of_keys = layout_.heads * d;
    const float plain = 1.0f / std::sqrt(static_cast<float>(d));
    thread_local std::vector<float> memory;
    float* key = core::at_least(memory, of_keys);
    state.rows.reserve(piece.rows());
    for (int64_t i = 0; i < piece.rows(); ++i) {
      const float* row = qkv + i * map_stride();
      for (int64_t head = 0; head < num_heads_; ++head) {
        const float* own = row + head * d;
        const float factor = normalize_ ? scale_[static_cast<size_t>(head)] * to_length_one(own) : plain;
        float* to = q + (i * num_heads_ + head) * layout_.width;
        for (int64_t c = 0; c < d; ++c) to[c] = own[c] * factor;
        std::fill(to + d, to + layout_.width, 0.0f);
      }
      for (int64_t head = 0; head < layout_.heads; ++head) {
        const float* own = row + of_queries + head * d;
        const float factor = normalize_ ? to_length_one(own) : 1.0f;
        for (int64_t c = 0; c < d; ++c) key[head * d + c] = own[c] * factor;
      }
      state.rows.store(state.rows.keys() + i, key, row + of_queries + of_keys);
    }
    state.rows.append(piece.rows());
  }

  /// Width of a row's q, k and v together: [H*d], [G*d] and [G*d].
  int64_t map_stride() const { return (num_heads_ + 2 * layout_.heads) * layout_.head_dim; }

  /// heads_h <- g o_mem + (1 - g) heads_h for one head and `count` rows of a piece. q [count,H,width], heads
  /// [count,H*d].
  template <class T>
  void read(const KnnDecodeState& state, int64_t head, const float* q, int64_t count, float* heads) const {
    if (state.memory == 0) return;
    constexpr int64_t kBlock = 512;  // keys, which stay near while all rows pass
    thread_local std::vector<ops::BestRows<float>> best;
    thread_local std::vector<float> memory;
    const int64_t kept = std::min(top_k_, state.memory), width = layout_.width, d = layout_.head_dim,
                  group = head / (num_heads_ / layout_.heads);
    float* scores = core::at_least(memory, std::max(kBlock, kept) + width);
    float* o = scores + std::max(kBlock, kept);
    best.resize(std::max(best.size(), static_cast<size_t>(count)));
    for (int64_t i = 0; i < count; ++i) best[static_cast<size_t>(i)].start(kept);
    for (int64_t first = 0; first < state.memory; first += kBlock) {
      const int64_t keys = std::min(kBlock, state.memory - first);
      const T* k = state.rows.key<T>(group, state.rows.first() + first);
      for (int64_t i = 0; i < count; ++i) {
        ops::key_scores<T>(q + (i * num_heads_ + head) * width, nullptr, k, nullptr, keys, width, scores);
        best[static_cast<size_t>(i)].take(scores, first, keys);
      }
    }
    thread_local std::vector<T> values;
    values.resize(static_cast<size_t>(kept * width));
    const float share = share_[static_cast<size_t>(head)];
    for (int64_t i = 0; i < count; ++i) {
      int64_t found = 0;
      for (const auto& [score, number] : best[static_cast<size_t>(i)].in_order()) {
        scores[found] = score;
        std::copy_n(state.rows.value<T>(group, state.rows.first() + number), width, values.data() + found++ * width);
      }
      const float highest = ops::add_then_max<float>(scores, nullptr, found);
      const float far = share / ops::exp_then_sum<float>(scores, found, highest);
      ops::weigh_values<T>(scores, values.data(), found, width, o);
      float* to = heads + (i * num_heads_ + head) * d;
      for (int64_t c = 0; c < d; ++c) to[c] = far * o[c] + (1.0f - share) * to[c];
    }
  }

  std::unique_ptr<core::DecodeAttention> inner_;
  int64_t memory_len_, top_k_;
  bool normalize_;
  int64_t num_heads_;
  core::KeyLayout layout_;            // of keys and values: G heads
  std::vector<float> share_, scale_;  // g [H], and with normalize the scale [H]
};

}  // namespace

std::unique_ptr<core::DecodeAttention> Knn::decoder(const core::DecodeBuild& build) const {
  std::unique_ptr<core::DecodeAttention> inner = inner_->decoder(build);
  if (inner == nullptr) return nullptr;
  return std::make_unique<KnnDecoder>(build, options_, num_heads_, num_kv_heads_, head_dim_, gate_, scale_,
                                      std::move(inner));
}

}  // namespace mnemo::memory
