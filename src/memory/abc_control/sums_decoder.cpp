#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "core/draws.h"
#include "core/require_state.h"
#include "memory/abc_control/sums.h"
#include "memory/abc_decoder.h"
#include "ops/abc/abc_slots.h"
#include "ops/decode/decode_rows.h"
#include "ops/row_kernels.h"

namespace mnemo::memory {
namespace {

/// z [n]; and what the rows of a pass write, [rows,n] each.
struct SumsState final : core::CopiedState<SumsState, AbcDecodeSlots> {
  std::vector<float> z;
  int64_t position = 0, draw = core::kFixedDraw;
  std::vector<float> phi, factor, open;
};

class AbcSumsDecoder final : public AbcDecoder {
 public:
  /// means: the control selects the nearest mean, and slots are read as means.
  AbcSumsDecoder(const core::DecodeBuild& build, const AbcMaps& maps, int64_t slots, double scale,
                 const AbcSumControl& control, bool positions, bool means, bool masked)
      : AbcDecoder(build, maps, slots, scale),
        control_(control),
        positions_(positions),
        means_(means),
        masked_(masked),
        ones_(static_cast<size_t>(slots), 1.0f) {}

  std::unique_ptr<core::DecodeState> import(const core::State& state, const core::OpenKeys&) const override {
    const auto& slots = state.as<AbcSlots>();
    core::require_state("abc", slots.k, {1, heads_, slots_, head_dim_});
    if (counts()) core::require_state("abc", slots.z, {1, slots_});
    if (positions_) core::require_state("abc", slots.position, {1});
    auto made = std::make_unique<SumsState>();
    const auto padded = [&](const at::Tensor& heads) {
      return core::plain_numbers(at::constant_pad_nd(heads, {0, width_ - head_dim_}));
    };
    made->k = padded(slots.k), made->v = padded(slots.v), made->z = core::plain_numbers(slots.z);
    if (positions_) made->position = slots.position.item<int64_t>();
    core::require_position("abc", made->position);
    core::require_draw("abc", slots.draw, redraws(), 1);
    if (redraws()) made->draw = slots.draw.item<int64_t>();
    made->used_bytes = slot_bytes() + static_cast<int64_t>(made->z.size()) * 4;
    return made;
  }
  core::State exported(const core::DecodeState& state) const override {
    const auto& own = static_cast<const SumsState&>(state);
    const auto heads = [&](const std::vector<float>& numbers) {
      return core::tensor_of(numbers.data(), {1, heads_, slots_, width_}).narrow(3, 0, head_dim_).contiguous();
    };
    AbcSlots slots{heads(own.k), heads(own.v), {}, {}};
    if (counts()) slots.z = core::tensor_of(own.z.data(), {1, slots_});
    if (positions_) slots.position = at::full({1}, own.position, at::kLong);
    if (redraws()) slots.draw = at::full({1}, own.draw, at::kLong);
    return slots;
  }
  bool end_segment(core::DecodeState& state, std::span<const core::KeptKeys> kept) const override {
    if (control_.redraw() == AbcSumControl::Redraw::segment) static_cast<SumsState&>(state).draw = core::kNotDrawn;
    return AbcDecoder::end_segment(state, kept);
  }
  void require_places(const core::DecodeState& state, int64_t rows) const override {
    if (positions_) control_.require_places(static_cast<const SumsState&>(state).position + rows - 1);
  }

 protected:
  void prepare(core::DecodeState& state, const Rows& rows) const override {
    auto& own = static_cast<SumsState&>(state);
    own.draw = std::max(own.draw, core::kFixedDraw);
    float *phi = core::at_least(own.phi, rows.count * slots_),
          *factor = core::at_least(own.factor, rows.count * slots_),
          *open = core::at_least(own.open, rows.count * slots_);
    thread_local std::vector<float> tokens, sums;
    tokens.resize(static_cast<size_t>(slots_));
    if (means_) join_heads(own, sums);
    for (int64_t row = 0; row < rows.count; ++row) {
      float* written = phi + row * slots_;
      std::fill_n(written, slots_, 0.0f);
      std::fill(tokens.begin(), tokens.end(), 0.0f);
      if (means_) {
        const int64_t slot = nearest(own, sums, rows.k + row * heads_ * width_);
        written[slot] = tokens[static_cast<size_t>(slot)] = 1.0f;
      } else {
        control_.write(own.position, own.draw, written, tokens.data());
      }
      ++own.position;
      for (int64_t j = 0; counts() && j < slots_; ++j) {
        own.z[static_cast<size_t>(j)] += tokens[static_cast<size_t>(j)];
        const float held = own.z[static_cast<size_t>(j)];
        factor[row * slots_ + j] = means_ ? 1.0f / std::max(held, 1.0f) : 1.0f;
        open[row * slots_ + j] = masked_ && held <= 0.0f ? -std::numeric_limits<float>::infinity() : 0.0f;
      }
    }
  }

  void run(core::DecodeState& state, int64_t head, const Rows& rows, float* o, int64_t o_stride) const override {
    thread_local std::vector<float> memory;
    float *scores = core::at_least(memory, slots_ + width_), *read = scores + slots_;
    auto& own = static_cast<SumsState&>(state);
    float *k = own.k.data() + head * slots_ * width_, *v = own.v.data() + head * slots_ * width_;
    for (int64_t row = 0; row < rows.count; ++row) {
      const int64_t at = (row * heads_ + head) * width_;
      const float *phi = own.phi.data() + row * slots_, *factor = counts() ? own.factor.data() + row * slots_ : nullptr;
      ops::write_rows(k, rows.k + at, ones_.data(), phi, rows.q + at, slots_, width_, scores);
      ops::write_rows(v, rows.v + at, ones_.data(), phi, nullptr, slots_, width_, nullptr);
      for (int64_t j = 0; factor != nullptr && j < slots_; ++j) scores[j] *= factor[j];
      const float most = ops::add_then_max<float>(scores, counts() ? own.open.data() + row * slots_ : nullptr, slots_);
      if (most == -std::numeric_limits<float>::infinity()) {  // all slots are empty
        std::fill_n(o + row * o_stride, head_dim_, 0.0f);
        continue;
      }
      const float sum = ops::exp_then_sum<float>(scores, slots_, most);
      for (int64_t j = 0; factor != nullptr && j < slots_; ++j) scores[j] *= factor[j];
      ops::weigh_values<float>(scores, v, slots_, width_, read);
      for (int64_t c = 0; c < head_dim_; ++c) o[row * o_stride + c] = read[c] / sum;
    }
  }
  int64_t slot_bytes() const override { return heads_ * slots_ * 2 * head_dim_ * 4; }

 private:
  bool counts() const { return masked_ || means_; }
  bool redraws() const { return control_.redraw() != AbcSumControl::Redraw::never; }

  /// The sums of keys per slot, [n,H*width].
  void join_heads(const SumsState& own, std::vector<float>& sums) const {
    sums.resize(own.k.size());
    for (int64_t j = 0; j < slots_; ++j) {
      for (int64_t head = 0; head < heads_; ++head)
        std::copy_n(own.k.data() + (head * slots_ + j) * width_, width_, sums.data() + (j * heads_ + head) * width_);
    }
  }
  /// Assigns a key [H*width] to a cluster (ops::nearest_means) and updates that cluster.
  int64_t nearest(const SumsState& own, std::vector<float>& sums, const float* key) const {
    const int64_t width = heads_ * width_;
    thread_local std::vector<float> memory;
    float *squares = core::at_least(memory, 2 * slots_), *dots = squares + slots_;
    for (int64_t j = 0; j < slots_; ++j) {
      const float* sum = sums.data() + j * width;
      squares[j] = ops::inner_product(sum, sum, width), dots[j] = ops::inner_product(sum, key, width);
    }
    const int64_t chosen = ops::choose_cluster(own.z.data(), squares, dots, slots_);
    ops::accumulate(sums.data() + chosen * width, key, width);
    return chosen;
  }

  const AbcSumControl& control_;
  bool positions_, means_, masked_;
  std::vector<float> ones_;
};

}  // namespace

std::unique_ptr<core::DecodeAttention> AbcSumControl::decoder(const core::DecodeBuild& build,
                                                              const AbcMaps& maps) const {
  return std::make_unique<AbcSumsDecoder>(build, maps, slots_, scale_, *this, keeps_ == Keeps::positions,
                                          keeps_ == Keeps::means, masked_);
}

}  // namespace mnemo::memory
