#include "attention/key_decoder.h"

#include <torch/types.h>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "core/kv_state.h"
#include "core/mapped_tensor.h"
#include "ops/attention/position.h"
#include "ops/attention/rotary.h"
#include "ops/decode/attend_rows.h"
#include "ops/row_kernels.h"

namespace mnemo::attention {
namespace {

/// [H,d] as [H,width], times scale.
std::vector<float> padded_heads(const at::Tensor& heads, int64_t width, float scale) {
  return core::plain_numbers(at::constant_pad_nd(heads.detach() * scale, {0, width - heads.size(1)}));
}

/// Distance terms have no int8 form.
KeyLayout layout_of(const core::DecodeBuild& build, const layers::AttentionProjections& maps, bool distances) {
  return {maps.num_kv_heads, maps.head_dim, (maps.head_dim + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep,
          build.wide_keys(), build.int8_keys && !distances};
}

}  // namespace

std::shared_ptr<const DistanceRows::Rows> DistanceRows::reach(int64_t longest, int64_t right) const {
  const std::lock_guard lock(mutex_);
  if (rows_->count - rows_->right > longest && rows_->right >= right) return rows_;
  const c10::InferenceMode inference;
  auto grown = std::make_shared<Rows>();
  grown->right = std::max(right, rows_->right);
  grown->count = grown->right + 64;
  while (grown->count - grown->right <= longest) grown->count *= 2;
  at::Tensor numbers = at::arange(-grown->right, grown->count - grown->right, at::kDouble);
  if (clamp_ > 0) numbers = numbers.clamp(-clamp_, clamp_);
  const at::Tensor rows = ops::sinusoids(numbers, dim_, at::TensorOptions().dtype(at::kFloat));
  const at::Tensor r = at::constant_pad_nd(
                           at::linear(rows, weight_).view({grown->count, layout_.heads, layout_.head_dim}),
                           {0, layout_.width - layout_.head_dim})
                           .transpose(0, 1)
                           .contiguous();
  grown->memory = ops::AlignedBytes(layout_.heads * grown->count * layout_.bytes_of_row());
  if (layout_.wide) {
    ops::copy_row(r.const_data_ptr<float>(), r.numel(), grown->memory.as<float>());
  } else {
    ops::copy_row(r.const_data_ptr<float>(), r.numel(), grown->memory.as<ops::Bf16Bits>());
  }
  rows_ = std::move(grown);
  return rows_;
}

std::shared_ptr<const DistanceBiases::Rows> DistanceBiases::reach(int64_t longest, int64_t right) const {
  const std::lock_guard lock(mutex_);
  if (rows_->longest >= longest && rows_->count - 1 - rows_->longest >= right) return rows_;
  const c10::InferenceMode inference;
  auto grown = std::make_shared<Rows>();
  grown->longest = std::max<int64_t>(rows_->longest, 63);
  while (grown->longest < longest) grown->longest = 2 * grown->longest + 1;
  grown->count = grown->longest + 1 + std::max(right, rows_->count - 1 - rows_->longest);
  grown->values = core::plain_numbers(bias_(grown->longest, grown->count));
  rows_ = std::move(grown);
  return rows_;
}

KeyDecoder::KeyDecoder(const core::DecodeBuild& build, const layers::AttentionProjections& maps,
                       const KeyDecoderOptions& options)
    : layout_(layout_of(build, maps, options.distances.r.defined())),
      num_heads_(maps.num_heads),
      window_(options.window),
      dim_(maps.q.weight.size(1)),
      scale_(options.scale > 0.0 ? static_cast<float>(options.scale)
                                 : 1.0f / std::sqrt(static_cast<float>(maps.head_dim))),
      frequencies_(options.frequencies),
      maps_(build.pack({maps.q, maps.k, maps.v})),
      output_(build.pack(maps.o.weight, maps.o.bias)) {
  const DistanceTerms& relative = options.distances;
  base::ensure(!relative.r.defined() || num_heads_ == layout_.heads, "distance terms and grouped queries");
  if (options.bias) biases_ = std::make_unique<DistanceBiases>(options.bias);
  if (!relative.r.defined()) return;
  u_ = padded_heads(relative.u, layout_.width, scale_);
  v_ = padded_heads(relative.v, layout_.width, scale_);
  distances_ = std::make_unique<DistanceRows>(core::owned(relative.r), relative.dim, relative.clamp, layout_);
}

std::unique_ptr<core::DecodeState> KeyDecoder::import(const core::State& state, const core::OpenKeys& keys) const {
  const auto& kv = state.as<core::KvState>();
  const int64_t all = keys.context + keys.segment;
  if (!keys.open || !kv.k.defined()) {
    base::require(!keys.open || all == 0, "engine: the state of an open segment has no keys; is it of another model?");
    return std::make_unique<KeyRowsState>(layout_);
  }
  const int64_t held = std::min(all, kv.k.size(2));
  base::require(held == exported(all) && kv.k.size(1) == layout_.heads && kv.k.size(3) == layout_.head_dim,
                "engine: expected keys [1,{},{},{}], found {}; is the state of another model?", layout_.heads,
                exported(all), layout_.head_dim, c10::str(kv.k.sizes()));
  auto rows = std::make_unique<KeyRowsState>(layout_, all - held);
  rows->take(frequencies_.empty() ? kv.k : ops::rotate(kv.k, all - kv.k.size(2), frequencies_), kv.v, held);
  return rows;
}

core::State KeyDecoder::export_state(const core::DecodeState& state, bool open) const {
  const auto& rows = static_cast<const KeyRowsState&>(state);
  if (!open) return core::KvState{};
  const int64_t count = exported(rows.keys());
  const at::Tensor k = rows.tensor(false, count);
  return core::KvState{frequencies_.empty() ? k : ops::rotate(k, rows.keys() - count, frequencies_, true),
                       rows.tensor(true, count)};
}

void KeyDecoder::turn_key(int64_t number, float* k) const {
  if (frequencies_.empty()) return;
  thread_local std::vector<float> memory;
  const auto half = static_cast<int64_t>(frequencies_.size());
  float* angles = core::at_least(memory, 2 * half);
  ops::rotary_angles(number, frequencies_, angles, angles + half);
  for (int64_t head = 0; head < layout_.heads; ++head)
    ops::rotate_row(k + head * layout_.head_dim, angles, angles + half, half);
}

void KeyDecoder::heads(const core::DecodePass& pass, const float* x, float* heads) const {
  thread_local std::vector<float> maps_memory, q_memory, qr_memory, angle_memory;
  const auto count = static_cast<int64_t>(pass.rows.size());
  const int64_t width = layout_.width, d = layout_.head_dim, all = num_heads_ * d, of_keys = layout_.heads * d,
                stride = maps_.out(), half = static_cast<int64_t>(frequencies_.size());
  float* angles = core::at_least(angle_memory, 2 * half);
  // A wrapping mechanism gets the maps before they are turned.
  const bool own = pass.qkv == nullptr || half > 0;
  float* maps = own ? core::at_least(maps_memory, count * stride) : pass.qkv;
  float* q = core::at_least(q_memory, count * num_heads_ * width);
  float* qr = distances_ ? core::at_least(qr_memory, count * num_heads_ * width) : nullptr;
  maps_(x, count, dim_, maps, stride);
  if (own && pass.qkv != nullptr) std::copy_n(maps, count * stride, pass.qkv);
  for (size_t piece = 0; piece < pass.pieces.size(); ++piece)
    static_cast<KeyRowsState*>(pass.states[piece])->reserve(pass.pieces[piece].rows());
  int64_t longest = 0, right = 0;
  for (int64_t i = 0; i < count; ++i) {
    const core::DecodeRow& row = pass.rows[static_cast<size_t>(i)];
    float* map = maps + i * stride;
    if (half > 0) {
      ops::rotary_angles(row.key, frequencies_, angles, angles + half);
      // Queries and, right after them, keys.
      for (int64_t head = 0; head < num_heads_ + layout_.heads; ++head)
        ops::rotate_row(map + head * d, angles, angles + half, half);
    }
    for (int64_t head = 0; head < num_heads_; ++head) {
      const int64_t at = (i * num_heads_ + head) * width;
      for (int64_t c = 0; c < d; ++c) {
        const float scaled = map[head * d + c] * scale_;
        if (!distances_) {
          q[at + c] = scaled;
          continue;
        }
        q[at + c] = scaled + u_[static_cast<size_t>(head * width + c)];
        qr[at + c] = scaled + v_[static_cast<size_t>(head * width + c)];
      }
      for (int64_t c = d; c < width; ++c) {
        q[at + c] = 0.0f;
        if (distances_) qr[at + c] = 0.0f;
      }
    }
    static_cast<KeyRowsState*>(pass.states[static_cast<size_t>(row.piece)])
        ->store(row.key, map + all, map + all + of_keys);
    longest = std::max(longest, row.key - row.lo);
    right = std::max(right, row.hi - 1 - row.key);
  }
  for (size_t piece = 0; piece < pass.pieces.size(); ++piece)
    static_cast<KeyRowsState*>(pass.states[piece])->append(pass.pieces[piece].rows());
  const std::shared_ptr<const DistanceRows::Rows> distances = distances_ ? distances_->reach(longest, right) : nullptr;
  const std::shared_ptr<const DistanceBiases::Rows> biases = biases_ ? biases_->reach(longest, right) : nullptr;
  if (layout_.int8) {
    attend<int8_t>(pass, q, qr, distances.get(), biases.get(), heads);
  } else if (layout_.wide) {
    attend<float>(pass, q, qr, distances.get(), biases.get(), heads);
  } else {
    attend<ops::Bf16Bits>(pass, q, qr, distances.get(), biases.get(), heads);
  }
  if (window_ == 0) return;
  for (core::DecodeState* state : pass.states) static_cast<KeyRowsState*>(state)->trim(window_ - 1);
}

template <class T>
void KeyDecoder::attend(const core::DecodePass& pass, const float* q, const float* qr,
                        const DistanceRows::Rows* distances, const DistanceBiases::Rows* biases, float* heads) const {
  // One head of keys at a time, so that it stays in cache while all rows are processed.
  thread_local std::vector<RowRange> ranges;
  list_ranges(pass, distances != nullptr, ranges);
  int64_t keys = 1;
  for (const core::DecodeRow& row : pass.rows) keys = std::max(keys, row.hi - row.lo);
  const int64_t share = num_heads_ / layout_.heads, count = static_cast<int64_t>(ranges.size());
  const std::span<const RowRange> all = ranges;  // the threads have lists of their own
  at::parallel_for(0, count * layout_.heads, core::thread_grain(share * keys * layout_.width),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t item = begin; item < end; ++item) {
                       const RowRange& range = all[static_cast<size_t>(item % count)];
                       if (range.count > 1) {
                         attend_together<T>(pass, range, item / count, q, biases, heads);
                       } else {
                         attend_alone<T>(pass, range.first, item / count, q, qr, distances, biases, heads);
                       }
                     }
                   });
}

void KeyDecoder::list_ranges(const core::DecodePass& pass, bool distances, std::vector<RowRange>& ranges) const {
  // Fewer do not pay for the turned keys; more would not stay in a cache with their scores.
  constexpr int64_t kLeast = 8, kMost = 64;
  const int64_t most = std::max<int64_t>(kLeast, kMost * layout_.heads / num_heads_);
  ranges.clear();
  for (const core::DecodePiece& piece : pass.pieces) {
    const auto rows = pass.rows.subspan(static_cast<size_t>(piece.first_row), static_cast<size_t>(piece.rows()));
    const bool together = window_ == 0 && !distances && piece.rows() >= kLeast &&
                          std::ranges::all_of(rows, [&](const auto& row) { return row.lo == rows.front().lo; });
    const int64_t step = together ? most : 1;
    for (int64_t i = 0; i < piece.rows(); i += step)
      ranges.push_back({piece.first_row + i, std::min(step, piece.rows() - i)});
  }
}

template <class T>
void KeyDecoder::attend_alone(const core::DecodePass& pass, int64_t i, int64_t of_keys, const float* q, const float* qr,
                              const DistanceRows::Rows* distances, const DistanceBiases::Rows* biases,
                              float* heads) const {
  thread_local std::vector<float> memory;
  const int64_t width = layout_.width, share = num_heads_ / layout_.heads, head = of_keys * share;
  const core::DecodeRow& row = pass.rows[static_cast<size_t>(i)];
  const auto& state = *static_cast<const KeyRowsState*>(pass.states[static_cast<size_t>(row.piece)]);
  int64_t lo = row.lo, hi = row.hi;
  if (window_ > 0) lo = std::max(lo, row.key - window_ + 1), hi = std::min(hi, row.key + window_);
  const int64_t at = (i * num_heads_ + head) * width, seen = hi - lo;
  float* scores = core::at_least(memory, share * (seen + width + 1));
  float *o = scores + share * seen, *sums = o + share * width;
  if constexpr (!std::is_same_v<T, int8_t>) {
    if (distances != nullptr) {
      const T* r = distances->memory.template as<T>() +
                   (head * distances->count + row.key - lo + distances->right) * width;
      ops::key_scores<T>(q + at, qr + at, state.key<T>(of_keys, lo), r, seen, width, scores);
    }
  }
  if (distances == nullptr) {
    ops::key_scores_of_queries<T>(q + at, share, state.key<T>(of_keys, lo), seen, width, scores, seen);
  }
  for (int64_t member = 0; member < share; ++member)
    sums[member] = exponentials(row, lo, seen, head + member, biases, scores + member * seen);
  ops::weigh_values_of_queries<T>(scores, share, seen, state.value<T>(of_keys, lo), seen, width, o);
  for (int64_t member = 0; member < share; ++member)
    write_head(o + member * width, sums[member], i, head + member, heads);
}

template <class T>
void KeyDecoder::attend_together(const core::DecodePass& pass, const RowRange& range, int64_t of_keys, const float* q,
                                 const DistanceBiases::Rows* biases, float* heads) const {
  thread_local std::vector<float> memory;
  thread_local std::vector<int64_t> counts;
  const int64_t width = layout_.width, share = num_heads_ / layout_.heads, head = of_keys * share,
                queries = range.count * share;
  const auto rows = pass.rows.subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.count));
  const auto& state = *static_cast<const KeyRowsState*>(pass.states[static_cast<size_t>(rows.front().piece)]);
  const int64_t lo = rows.front().lo;
  int64_t keys = 0;
  counts.clear();
  for (const core::DecodeRow& row : rows) {
    keys = std::max(keys, row.hi - lo);
    counts.insert(counts.end(), static_cast<size_t>(share), row.hi - lo);
  }
  // Rows whose addresses are a power of two apart would share few lines of a cache.
  const int64_t stride = (keys + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep + ops::kHeadStep;
  float* scores = core::at_least(memory, queries * (stride + 2 * width + 1));
  float *own = scores + queries * stride, *o = own + queries * width, *sums = o + queries * width;
  for (int64_t i = 0; i < range.count; ++i)
    std::copy_n(q + ((range.first + i) * num_heads_ + head) * width, share * width, own + i * share * width);
  ops::key_scores_of_rows<T>(own, queries, state.key<T>(of_keys, lo), keys, width, scores, stride);
  for (int64_t i = 0; i < queries; ++i)
    sums[i] = exponentials(rows[static_cast<size_t>(i / share)], lo, counts[static_cast<size_t>(i)], head + i % share,
                           biases, scores + i * stride);
  ops::weigh_values_of_rows<T>(scores, queries, stride, state.value<T>(of_keys, lo), counts.data(), width, o);
  for (int64_t i = 0; i < queries; ++i)
    write_head(o + i * width, sums[i], range.first + i / share, head + i % share, heads);
}

float KeyDecoder::exponentials(const core::DecodeRow& row, int64_t lo, int64_t seen, int64_t head,
                               const DistanceBiases::Rows* biases, float* scores) const {
  const float* bias = biases == nullptr
                          ? nullptr
                          : biases->values.data() + head * biases->count + biases->longest - (row.key - lo);
  const float most = ops::add_then_max<float>(scores, bias, seen);
  return ops::exp_then_sum<float>(scores, seen, most);
}

void KeyDecoder::write_head(const float* o, float sum, int64_t row, int64_t head, float* heads) const {
  float* to = heads + (row * num_heads_ + head) * layout_.head_dim;
  for (int64_t c = 0; c < layout_.head_dim; ++c) to[c] = o[c] / sum;
}

bool KeyDecoder::end_segment(core::DecodeState& state, std::span<const core::KeptKeys> kept) const {
  auto& rows = static_cast<KeyRowsState&>(state);
  if (!frequencies_.empty()) {
    // A key that gets another number has been turned too far: it is computed again.
    int64_t number = 0;
    for (const core::KeptKeys& run : kept) {
      if (run.rows == nullptr && run.count > 0 && run.from != number) return false;
      number += run.count;
    }
  }
  const int64_t needed = window_ > 0 ? window_ - 1 : std::numeric_limits<int64_t>::max();
  return rows.keep(kept, needed, [&](const float* x, int64_t skipped, int64_t count, int64_t number) {
    thread_local std::vector<float> memory;
    const int64_t before = num_heads_ * layout_.head_dim, of_keys = layout_.heads * layout_.head_dim,
                  stride = maps_.out();
    constexpr int64_t kRows = 64;
    float* maps = core::at_least(memory, kRows * stride);
    for (int64_t from = 0; from < count; from += kRows) {
      const int64_t some = std::min(kRows, count - from);
      maps_(x + (skipped + from) * dim_, some, dim_, maps, stride);
      for (int64_t i = 0; i < some; ++i) {
        float* map = maps + i * stride + before;
        turn_key(number + from + i, map);
        rows.store(number + from + i, map, map + of_keys);
      }
    }
  });
}

int64_t KeyDecoder::bytes_per_token(int64_t keys) const {
  const int64_t seen = window_ > 0 ? std::min(keys, window_) : keys;
  return maps_.num_bytes() + output_.num_bytes() + seen * layout_.heads * layout_.bytes_in_use() * (distances_ ? 3 : 2);
}

}  // namespace mnemo::attention
