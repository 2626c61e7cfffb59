#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/require_state.h"
#include "memory/abc_control/mlp.h"
#include "memory/abc_decoder.h"
#include "ops/decode/decode_rows.h"

namespace mnemo::memory {
namespace {

/// z [H,n].
struct MlpSlots final : core::CopiedState<MlpSlots, AbcDecodeSlots> {
  std::vector<float> z;
};

class AbcMlpDecoder final : public AbcDecoder {
 public:
  /// gate [H,D] and its bias [H], or undefined.
  AbcMlpDecoder(const core::DecodeBuild& build, const AbcMaps& maps, const at::Tensor& weight, const at::Tensor& gate,
                const at::Tensor& gate_bias, int64_t slots, double scale, bool shared, ops::AbcActivation activation,
                double eps)
      : AbcDecoder(build, maps, slots, scale, gate.defined() ? at::cat({weight, gate}).detach() : weight),
        gate_at_(weight.size(0)),
        gate_bias_(gate.defined() ? core::plain_numbers(gate_bias.detach()) : std::vector<float>()),
        shared_(shared),
        activation_(activation),
        eps_(static_cast<float>(eps)) {}

  std::unique_ptr<core::DecodeState> import(const core::State& state, const core::OpenKeys&) const override {
    const auto& slots = state.as<AbcState>();
    core::require_state("abc", slots.k, {1, heads_, slots_, head_dim_});
    auto made = std::make_unique<MlpSlots>();
    const auto padded = [&](const at::Tensor& heads) {
      return core::plain_numbers(at::constant_pad_nd(heads, {0, width_ - head_dim_}));
    };
    made->k = padded(slots.k), made->v = padded(slots.v), made->z = core::plain_numbers(slots.z);
    made->used_bytes = slot_bytes();
    return made;
  }
  core::State exported(const core::DecodeState& state) const override {
    const auto& slots = static_cast<const MlpSlots&>(state);
    const auto heads = [&](const std::vector<float>& numbers) {
      return core::tensor_of(numbers.data(), {1, heads_, slots_, width_}).narrow(3, 0, head_dim_).contiguous();
    };
    return AbcState{heads(slots.k), heads(slots.v), core::tensor_of(slots.z.data(), {1, heads_, slots_})};
  }

 protected:
  void prepare(core::DecodeState&, const Rows&) const override {}
  void run(core::DecodeState& state, int64_t head, const Rows& rows, float* o, int64_t o_stride) const override {
    thread_local std::vector<float> memory;
    float* scratch = core::at_least(memory, width_ + 4 * slots_);
    float *gated = scratch + 3 * slots_, *read = gated + slots_;
    auto& slots = static_cast<MlpSlots&>(state);
    const ops::AbcSlots own{slots.k.data() + head * slots_ * width_, slots.v.data() + head * slots_ * width_,
                            slots.z.data() + head * slots_, slots_, width_};
    for (int64_t row = 0; row < rows.count; ++row) {
      const int64_t at = (row * heads_ + head) * width_;
      const float* control = rows.control + row * rows.control_stride + (shared_ ? 0 : head * slots_);
      if (!gate_bias_.empty()) {
        const float gate = rows.control[row * rows.control_stride + gate_at_ + head] +
                           gate_bias_[static_cast<size_t>(head)];
        const float log_keep = log_sigmoid(gate), log_write = log_sigmoid(-gate);
        for (int64_t i = 0; i < slots_; ++i) {
          own.z[i] += log_keep;
          gated[i] = control[i] + log_write;
        }
        control = gated;
      }
      ops::abc_step(own, rows.q + at, rows.k + at, rows.v + at, control, activation_, eps_, scratch, read);
      std::copy_n(read, head_dim_, o + row * o_stride);
    }
  }
  int64_t slot_bytes() const override { return heads_ * slots_ * (2 * head_dim_ + 1) * 4; }

 private:
  static float log_sigmoid(float x) { return std::min(x, 0.0f) - std::log1p(std::exp(-std::abs(x))); }

  int64_t gate_at_;               // the column of the first head's gate among the control's
  std::vector<float> gate_bias_;  // [H]; empty: no gate
  bool shared_;
  ops::AbcActivation activation_;
  float eps_;
};

}  // namespace

std::unique_ptr<core::DecodeAttention> AbcMlpControl::decoder(const core::DecodeBuild& build,
                                                              const AbcMaps& maps) const {
  return std::make_unique<AbcMlpDecoder>(build, maps, weight_, gate_weight_, gate_bias_, slots_, scale_,
                                         options_.shared_across_heads, activation_, options_.eps);
}

}  // namespace mnemo::memory
