#include <torch/types.h>

#include <algorithm>
#include <cstring>

#include "core/decode.h"
#include "core/require_state.h"
#include "memory/segment_cache.h"

namespace mnemo::memory {
namespace {

constexpr int64_t kFirstRoom = 32;  // rows

/// The rows of one sequence that entered each layer, in buffers that grow by a quarter.
struct CacheRows final : core::CopiedState<CacheRows> {
  std::vector<int64_t> served = {};            ///< layers that have rows
  std::vector<ops::AlignedBytes> layers = {};  ///< [capacity,D] each, of all layers of the model
  int64_t dim = 0, mem_len = 0;
  int64_t capacity = 0, first = 0;
  int64_t count = 0;  ///< includes rows that will be dropped when the segment ends

  CacheRows() = default;
  /// A copy has no room for more rows.
  CacheRows(const CacheRows& other)
      : CopiedState(other),
        served(other.served),
        layers(other.layers.size()),
        dim(other.dim),
        mem_len(other.mem_len),
        capacity(other.count),
        count(other.count) {
    for (const int64_t number : served) {
      const auto layer = static_cast<size_t>(number);
      layers[layer] = ops::AlignedBytes(count * dim * 4);
      if (count > 0) std::memcpy(row(layer, 0), other.row(layer, 0), static_cast<size_t>(count * dim * 4));
    }
  }

  float* row(size_t layer, int64_t number) const { return layers[layer].as<float>() + (first + number) * dim; }
  int64_t kept() const { return std::min(count, mem_len); }
  void drop() {
    first += count - kept();
    count = kept();
  }
  void reserve(int64_t more) {
    const int64_t wanted = count + more;
    if (first + wanted <= capacity) return;
    // As keys do: rows slide to the front once a quarter as many have left.
    const bool slides = wanted <= capacity && 4 * first >= count;
    const int64_t room = slides ? capacity : std::max(kFirstRoom, wanted + wanted / 4);
    for (const int64_t number : served) {
      const auto layer = static_cast<size_t>(number);
      ops::AlignedBytes fresh;
      if (room != capacity) fresh = ops::AlignedBytes(room * dim * 4);
      std::byte* to = (room != capacity ? fresh : layers[layer]).as<std::byte>();
      if (count > 0) std::memmove(to, row(layer, 0), static_cast<size_t>(count * dim * 4));
      if (room != capacity) layers[layer] = std::move(fresh);
    }
    capacity = room;
    first = 0;
  }
  int64_t num_bytes() const override { return kept() * dim * 4 * static_cast<int64_t>(served.size()); }
};

class SegmentCacheDecoder final : public core::DecodeContext {
 public:
  SegmentCacheDecoder(const core::MemoryBuild& build, int64_t mem_len, bool same_length, bool keeps_memory_rows)
      : num_layers_(build.num_layers),
        served_(build.layers),
        dim_(build.dim),
        mem_len_(mem_len),
        same_length_(same_length),
        keeps_memory_rows_(keeps_memory_rows) {}

  std::unique_ptr<core::DecodeState> import(const core::State& state, const Segment& segment) const override {
    const auto& cache = state.as<SegmentCacheState>();
    auto made = std::make_unique<CacheRows>();
    made->dim = dim_, made->mem_len = mem_len_;
    made->served = served_;
    made->layers.resize(static_cast<size_t>(num_layers_));
    core::require_layers("segment_cache", cache.rows, num_layers_, served_);
    const int64_t padding = core::left_padding(cache.valid), count = cache.valid.size(1) - padding;
    if (segment.keys.open) {
      const int64_t fed = segment.keys.segment - (keeps_memory_rows_ ? 0 : segment.read);
      core::require_rows("segment_cache", std::min(mem_len_, segment.keys.context + fed), count);
    }
    made->reserve(count);
    for (const int64_t number : served_) {
      const auto layer = static_cast<size_t>(number);
      core::require_state("segment_cache", cache.rows[layer], {1, padding + count, dim_});
      const std::vector<float> rows = core::plain_numbers(cache.rows[layer].narrow(1, padding, count));
      std::copy(rows.begin(), rows.end(), made->row(layer, 0));
    }
    made->count = count;
    return made;
  }

  core::State export_state(const core::DecodeState& state, bool) const override {
    const auto& own = static_cast<const CacheRows&>(state);
    SegmentCacheState cache;
    cache.rows.resize(own.layers.size());
    for (const int64_t layer : served_) {
      const auto number = static_cast<size_t>(layer);
      cache.rows[number] = core::tensor_of(own.row(number, own.count - own.kept()), {1, own.kept(), dim_});
    }
    cache.valid = at::ones({1, own.kept()}, at::kBool);
    return cache;
  }

  int64_t band() const override { return same_length_ ? mem_len_ : 0; }

  void reserve(core::DecodeState& state, const core::DecodePiece& piece) const override {
    auto& own = static_cast<CacheRows&>(state);
    own.drop();
    own.reserve(keeps_memory_rows_ ? piece.rows() : piece.tokens);
  }
  void enter(core::DecodeState& state, int64_t layer, const core::DecodePiece& piece,
             const float* rows) const override {
    auto& own = static_cast<CacheRows&>(state);
    const int64_t from = keeps_memory_rows_ ? 0 : piece.read, count = keeps_memory_rows_ ? piece.rows() : piece.tokens;
    std::copy_n(rows + from * dim_, count * dim_, own.row(static_cast<size_t>(layer), own.count));
  }
  void leave(core::DecodeState& state, const core::DecodePiece& piece) const override {
    static_cast<CacheRows&>(state).count += keeps_memory_rows_ ? piece.rows() : piece.tokens;
  }

  void end_segment(core::DecodeState& state, const Segment&) const override { static_cast<CacheRows&>(state).drop(); }
  void kept(const core::DecodeState&, int64_t, const Segment& segment,
            std::vector<core::KeptKeys>& kept) const override {
    const int64_t context = segment.keys.context;
    const int64_t first = keeps_memory_rows_ ? 0 : segment.read;
    const int64_t rows = segment.keys.segment - (keeps_memory_rows_ ? 0 : segment.read + segment.write);
    const int64_t dropped = std::max<int64_t>(0, context + rows - mem_len_);
    const int64_t dropped_rows = std::max<int64_t>(0, dropped - context);
    if (dropped < context) kept.push_back({dropped, context - dropped});
    if (rows > dropped_rows) kept.push_back({context + first + dropped_rows, rows - dropped_rows});
  }

  const float* rows(const core::DecodeState& state, int64_t layer) const override {
    return static_cast<const CacheRows&>(state).row(static_cast<size_t>(layer), 0);
  }
  int64_t count(const core::DecodeState& state) const override { return static_cast<const CacheRows&>(state).count; }

 private:
  int64_t num_layers_;
  std::vector<int64_t> served_;
  int64_t dim_, mem_len_;
  bool same_length_, keeps_memory_rows_;
};

}  // namespace

std::unique_ptr<core::DecodeContext> SegmentCache::decoder(const core::DecodeBuild&) const {
  return std::make_unique<SegmentCacheDecoder>(build_, mem_len(core::Mode::evaluate), same_length(core::Mode::evaluate),
                                               options_.keep_memory_rows);
}

}  // namespace mnemo::memory
