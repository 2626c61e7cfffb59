#include "infer/engine_sequence.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace mnemo::infer {
namespace {

/// Room for keys at first; doubled where it ends.
constexpr int64_t kFirstRoom = 128;

}  // namespace

EngineSequence::EngineSequence(const EnginePlan& plan, bool wide_keys)
    : plan_(plan), wide_keys_(wide_keys), layers_(static_cast<size_t>(plan.layers)) {
  if (!plan.abc) return;
  const int64_t numbers = plan.heads * plan.slots;
  for (Layer& layer : layers_) {
    layer.k = ops::AlignedBytes(numbers * plan.width * 4);
    layer.v = ops::AlignedBytes(numbers * plan.width * 4);
    layer.z = ops::AlignedBytes(numbers * 4);
    std::fill_n(layer.k.as<float>(), numbers * plan.width, 0.0f);
    std::fill_n(layer.v.as<float>(), numbers * plan.width, 0.0f);
    std::fill_n(layer.z.as<float>(), numbers,
                plan.abc_activation == ops::AbcActivation::exp ? -std::numeric_limits<float>::infinity() : 0.0f);
  }
}

ops::AbcSlots EngineSequence::slots_of(int64_t layer, int64_t head) const {
  const Layer& of = layers_[static_cast<size_t>(layer)];
  return {of.k.as<float>() + head * plan_.slots * plan_.width, of.v.as<float>() + head * plan_.slots * plan_.width,
          of.z.as<float>() + head * plan_.slots, plan_.slots, plan_.width};
}

/// Moves the keys into memory of `capacity` rows a head, to its front, without `skip` of them from `skip_from` on.
void EngineSequence::move_keys(int64_t capacity, int64_t skip_from, int64_t skip) {
  const int64_t row = plan_.width * (wide_keys_ ? 4 : 2);
  const auto bytes = [&](int64_t rows) { return static_cast<size_t>(rows * row); };
  for (Layer& layer : layers_) {
    for (ops::AlignedBytes* memory : {&layer.k, &layer.v}) {
      ops::AlignedBytes fresh;
      if (capacity != capacity_) {
        fresh = ops::AlignedBytes(plan_.heads * capacity * row);
        // Between the head's width and the padded one there must be zeros, everywhere.
        if (plan_.width != plan_.head_dim) std::memset(fresh.as<std::byte>(), 0, static_cast<size_t>(fresh.size));
      }
      for (int64_t head = 0; head < plan_.heads && keys > 0; ++head) {
        const std::byte* from = memory->as<std::byte>() + (head * capacity_ + first_) * row;
        std::byte* to = (capacity != capacity_ ? fresh : *memory).as<std::byte>() + head * capacity * row;
        std::memmove(to, from, bytes(skip_from));
        std::memmove(to + skip_from * row, from + (skip_from + skip) * row, bytes(keys - skip_from - skip));
      }
      if (capacity != capacity_) *memory = std::move(fresh);
    }
  }
  capacity_ = capacity;
  first_ = 0;
  keys -= skip;
}

void EngineSequence::reserve(int64_t more, int64_t more_kept) {
  if (!plan_.abc && first_ + keys + more > capacity_) {
    // Half of the memory is room to slide in, so that rows are seldom moved.
    move_keys(keys + more <= capacity_ / 2 ? capacity_ : std::max(kFirstRoom, 2 * (keys + more)), keys, 0);
  }
  if (!plan_.cache) return;
  // Of the rows the cache holds mem_len at most, but those that are about to go stand until the segment ends.
  if (kept > plan_.mem_len) {
    kept_first_ += kept - plan_.mem_len;
    kept = plan_.mem_len;
  }
  if (kept_first_ + kept + more_kept <= kept_capacity_) return;
  const int64_t capacity = kept + more_kept <= kept_capacity_ / 2 ? kept_capacity_
                                                                  : std::max(kFirstRoom, 2 * (kept + more_kept));
  for (Layer& layer : layers_) {
    const auto size = static_cast<size_t>(kept * plan_.dim * 4);
    ops::AlignedBytes fresh;
    if (capacity != kept_capacity_) fresh = ops::AlignedBytes(capacity * plan_.dim * 4);
    std::byte* to = (capacity != kept_capacity_ ? fresh : layer.rows).as<std::byte>();
    if (kept > 0) std::memmove(to, layer.rows.as<std::byte>() + kept_first_ * plan_.dim * 4, size);
    if (capacity != kept_capacity_) layer.rows = std::move(fresh);
  }
  kept_capacity_ = capacity;
  kept_first_ = 0;
}

void EngineSequence::close_segment() {
  open_ = false;
  if (!plan_.cache) {
    first_ = keys = cached = length = 0;
    return;
  }
  if (!plan_.caches_all_rows()) {
    // Keys are [cache; read; tokens; write]: those of memory rows go.
    if (plan_.sequence == EnginePlan::Sequence::recurrent) keys -= plan_.memory_rows;
    move_keys(capacity_, cached, plan_.memory_rows);
  }
  const int64_t stay = std::min(keys, plan_.mem_len);
  first_ += keys - stay;
  keys = cached = stay;
  length = 0;
  kept_first_ += std::max<int64_t>(0, kept - plan_.mem_len);
  kept = std::min(kept, plan_.mem_len);
}

at::Tensor EngineSequence::export_heads(const ops::AlignedBytes& memory, int64_t stride, int64_t first, int64_t count,
                                        bool wide) const {
  const auto type = wide ? at::kFloat : at::kBFloat16;
  if (count == 0) return at::empty({1, plan_.heads, 0, plan_.head_dim}, at::kFloat);
  auto* data = memory.as<std::byte>() + first * plan_.width * (wide ? 4 : 2);
  return at::from_blob(data, {1, plan_.heads, count, plan_.head_dim}, {0, stride * plan_.width, plan_.width, 1}, type)
      .to(at::kFloat)
      .contiguous()
      .clone();
}

void EngineSequence::import_heads(const at::Tensor& tensor, int64_t from, ops::AlignedBytes& memory, int64_t stride,
                                  int64_t first, bool wide) {
  const at::Tensor plain = tensor.to(at::kCPU, at::kFloat).contiguous();  // [1,H,M,d]
  const int64_t rows = plain.size(2);
  for (int64_t head = 0; head < plan_.heads; ++head) {
    for (int64_t row = from; row < rows; ++row) {
      const float* source = plain.const_data_ptr<float>() + (head * rows + row) * plan_.head_dim;
      const int64_t place = (head * stride + first + row - from) * plan_.width;
      if (wide) {
        ops::copy_row(source, plan_.head_dim, memory.as<float>() + place);
      } else {
        ops::copy_row(source, plan_.head_dim, memory.as<ops::Bf16Bits>() + place);
      }
    }
  }
}

int64_t EngineSequence::num_bytes() const {
  const int64_t rows = plan_.abc ? plan_.slots : keys;
  int64_t numbers = plan_.abc ? plan_.heads * plan_.slots * (2 * plan_.head_dim + 1) * 4
                              : 2 * rows * plan_.heads * plan_.head_dim * (wide_keys_ ? 4 : 2);
  numbers += std::min(kept, plan_.mem_len) * plan_.dim * 4;
  if (plan_.grc)
    numbers += static_cast<int64_t>(grc[0].cache.size() + grc[0].k.size() + grc[0].v.size() + grc[0].rows.size()) * 4;
  return numbers * plan_.layers + (plan_.hands_rows_on ? static_cast<int64_t>(memory.size()) * 4 : 0);
}

core::State EngineSequence::state(const core::State& initial) const {
  const at::Tensor none;
  const auto row_of = [&](const float* data, at::IntArrayRef shape) {
    return at::from_blob(const_cast<float*>(data), shape, at::kFloat).clone();
  };
  const auto find = [&](const std::string& path) -> at::Tensor {
    const auto ends = [&](std::string_view end) { return path.ends_with(end); };
    if (path == "open.length") return open_ ? at::full({1}, length, at::kLong) : none;
    if (path == "open.read_rows") return open_ ? at::full({1}, plan_.memory_rows, at::kLong) : none;
    if (path == "open.valid") return open_ ? at::ones({1, cached + length}, at::kBool) : none;
    if (path == "segment_cache.valid") return at::ones({1, std::min(kept, plan_.mem_len)}, at::kBool);
    if (ends(".tokens")) {
      if (!plan_.hands_rows_on) return none;
      return memory.empty() ? at::empty({1, 0, plan_.dim}, at::kFloat)
                            : row_of(memory.data(), {1, plan_.memory_rows, plan_.dim});
    }
    // "segment_cache.layers.3", "layers.backbone.layers.3.attn.k"
    constexpr std::string_view kCached = "segment_cache.layers.", kLayer = "layers.backbone.layers.";
    const bool of_cache = path.starts_with(kCached);
    base::ensure(of_cache || path.starts_with(kLayer), "the engine knows no state '{}'", path);
    const auto layer = static_cast<size_t>(std::stoll(path.substr((of_cache ? kCached : kLayer).size())));
    const Layer& of = layers_.at(layer);
    if (of_cache) {
      const int64_t rows = std::min(kept, plan_.mem_len), over = kept - rows;
      if (rows == 0) return at::empty({1, 0, plan_.dim}, at::kFloat);
      return row_of(of.rows.as<float>() + (kept_first_ + over) * plan_.dim, {1, rows, plan_.dim});
    }
    if (ends(".grc.cache")) return row_of(grc[layer].cache.data(), {1, plan_.grc_len, plan_.grc_channels});
    if (ends(".grc.rows") || ends(".grc.valid")) {
      if (!open_ || !plan_.grc_moves) return none;
      return ends(".valid") ? at::ones({1, length}, at::kBool)
                            : row_of(grc[layer].rows.data(), {1, length, plan_.grc_channels});
    }
    if (plan_.abc && ends(".z")) return row_of(of.z.as<float>(), {1, plan_.heads, plan_.slots});
    if (plan_.abc) return export_heads(ends(".k") ? of.k : of.v, plan_.slots, 0, plan_.slots, true);
    if (!open_) return none;
    return export_heads(ends(".k") ? of.k : of.v, capacity_, first_, keys, wide_keys_);
  };
  return core::load(initial, find);
}

}  // namespace mnemo::infer
