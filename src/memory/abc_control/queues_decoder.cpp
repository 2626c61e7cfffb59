#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/require_state.h"
#include "memory/abc_control/queues.h"
#include "memory/abc_decoder.h"
#include "ops/decode/decode_rows.h"
#include "ops/row_kernels.h"

namespace mnemo::memory {
namespace {

/// The queues of one sequence as ring buffers: k, v [H,queues,n,width]; the next row overwrites the oldest.
struct QueuesState final : core::CopiedState<QueuesState, AbcDecodeSlots> {
  struct Ring {
    int64_t next = 0, held = 0;  ///< next: write position; held: number of tokens in the ring, at most n
  };
  struct Turn {
    int64_t queue, place, held;  ///< for a row of the pass
  };
  std::vector<Ring> rings;
  int64_t position = 0;
  std::vector<Turn> turns;
};

class AbcQueuesDecoder final : public AbcDecoder {
 public:
  AbcQueuesDecoder(const core::DecodeBuild& build, const AbcMaps& maps, int64_t slots, double scale, int64_t queues,
                   bool masked)
      : AbcDecoder(build, maps, slots, scale), queues_(queues), masked_(masked) {}

  std::unique_ptr<core::DecodeState> import(const core::State& state, const core::OpenKeys&) const override {
    AbcQueues from;
    if (queues_ > 1) {
      from = state.as<AbcQueues>();
    } else {
      const auto& one = state.as<AbcSlots>();
      core::require_state("abc", one.k, {1, heads_, slots_, head_dim_});
      from = {one.k.unsqueeze(2), one.v.unsqueeze(2), one.z.defined() ? one.z.unsqueeze(1) : one.z, one.position};
    }
    core::require_state("abc", from.k, {1, heads_, queues_, slots_, head_dim_});
    if (masked_) core::require_state("abc", from.z, {1, queues_, slots_});
    auto made = std::make_unique<QueuesState>();
    made->rings.resize(static_cast<size_t>(queues_));
    for (int64_t queue = 0; masked_ && queue < queues_; ++queue) {
      auto& ring = made->rings[static_cast<size_t>(queue)];
      ring.held = from.z.select(1, queue).gt(0.0).sum().item<int64_t>();
      ring.next = ring.held % slots_;
    }
    made->k = turned(from.k, *made, -1), made->v = turned(from.v, *made, -1);
    if (from.position.defined()) made->position = from.position.item<int64_t>();
    core::require_position("abc", made->position);
    made->used_bytes = slot_bytes() + (masked_ ? queues_ * slots_ * 4 : 0);
    return made;
  }

  core::State exported(const core::DecodeState& state) const override {
    const auto& own = static_cast<const QueuesState&>(state);
    const auto heads = [&](const std::vector<float>& numbers) {
      const at::Tensor all = core::tensor_of(numbers.data(), {1, heads_, queues_, slots_, width_});
      const std::vector<float> turned_back = turned(all.narrow(4, 0, head_dim_), own, 1);
      return core::tensor_of(turned_back.data(), all.sizes()).narrow(4, 0, head_dim_).contiguous();
    };
    AbcQueues queues{heads(own.k), heads(own.v), {}, {}};
    if (masked_) {
      queues.z = at::zeros({1, queues_, slots_}, at::kFloat);
      for (int64_t queue = 0; queue < queues_; ++queue) {
        const int64_t held = own.rings[static_cast<size_t>(queue)].held;
        queues.z.select(1, queue).narrow(1, slots_ - held, held).fill_(1.0);
      }
    }
    if (queues_ == 1)
      return AbcSlots{queues.k.squeeze(2), queues.v.squeeze(2), masked_ ? queues.z.squeeze(1) : queues.z, {}};
    queues.position = at::full({1}, own.position, at::kLong);
    return queues;
  }

 protected:
  void prepare(core::DecodeState& state, const Rows& rows) const override {
    auto& own = static_cast<QueuesState&>(state);
    own.turns.clear();
    for (int64_t row = 0; row < rows.count; ++row) {
      const int64_t queue = own.position++ % queues_;
      QueuesState::Ring& ring = own.rings[static_cast<size_t>(queue)];
      ring.held = std::min(slots_, ring.held + 1);
      own.turns.push_back({queue, ring.next, masked_ ? ring.held : slots_});
      ring.next = (ring.next + 1) % slots_;
    }
  }

  void run(core::DecodeState& state, int64_t head, const Rows& rows, float* o, int64_t o_stride) const override {
    thread_local std::vector<float> memory;
    float *scores = core::at_least(memory, slots_ + width_), *read = scores + slots_;
    auto& own = static_cast<QueuesState&>(state);
    for (int64_t row = 0; row < rows.count; ++row) {
      const QueuesState::Turn& turn = own.turns[static_cast<size_t>(row)];
      const int64_t at = (row * heads_ + head) * width_, first = (head * queues_ + turn.queue) * slots_ * width_;
      std::copy_n(rows.k + at, width_, own.k.data() + first + turn.place * width_);
      std::copy_n(rows.v + at, width_, own.v.data() + first + turn.place * width_);
      ops::key_scores<float>(rows.q + at, nullptr, own.k.data() + first, nullptr, turn.held, width_, scores);
      const float most = ops::add_then_max<float>(scores, nullptr, turn.held);
      const float sum = ops::exp_then_sum<float>(scores, turn.held, most);
      ops::weigh_values<float>(scores, own.v.data() + first, turn.held, width_, read);
      for (int64_t c = 0; c < head_dim_; ++c) o[row * o_stride + c] = read[c] / sum;
    }
  }
  int64_t slot_bytes() const override { return heads_ * queues_ * slots_ * 2 * head_dim_ * 4; }

 private:
  /// Queues [1,H,queues,n,d] padded to whole vectors, each rotated so that its oldest row is at its position in the
  /// ring (direction -1), or first (1).
  std::vector<float> turned(const at::Tensor& rows, const QueuesState& own, int64_t direction) const {
    std::vector<at::Tensor> queues;
    for (int64_t queue = 0; queue < queues_; ++queue) {
      queues.push_back(rows.select(2, queue).roll(-direction * own.rings[static_cast<size_t>(queue)].next, 2));
    }
    return core::plain_numbers(at::constant_pad_nd(at::stack(queues, 2), {0, width_ - head_dim_}));
  }

  int64_t queues_;
  bool masked_;
};

}  // namespace

std::unique_ptr<core::DecodeAttention> AbcQueueControl::decoder(const core::DecodeBuild& build,
                                                                const AbcMaps& maps) const {
  return std::make_unique<AbcQueuesDecoder>(build, maps, slots_, scale_, queues_, masked_);
}

}  // namespace mnemo::memory
