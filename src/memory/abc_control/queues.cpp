#include "memory/abc_control/queues.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/require_state.h"
#include "ops/abc/abc_window.h"

namespace mnemo::memory {
namespace {

/// Selects the rows of x [B,H,T,d] at the given positions, which ascend; a view if they are evenly spaced.
at::Tensor rows_at(const at::Tensor& x, const std::vector<int64_t>& places) {
  if (places.empty()) return x.narrow(2, 0, 0);
  const int64_t step = places.size() > 1 ? places[1] - places[0] : 1;
  bool even = true;
  for (size_t i = 1; i < places.size(); ++i) even = even && places[i] - places[i - 1] == step;
  if (even) return x.slice(2, places.front(), places.back() + 1, step);
  return x.index_select(2, at::tensor(places, at::kLong).to(x.device()));
}

AbcCall row_of(const AbcCall& call, int64_t row) {
  const auto one = [&](const at::Tensor& x) { return x.defined() ? x.narrow(0, row, 1) : x; };
  return {one(call.q), one(call.k), one(call.v), one(call.rows), one(call.valid), {}, {}};
}

AbcQueues row_of(const AbcQueues& queues, int64_t row) {
  const auto one = [&](const at::Tensor& x) { return x.defined() ? x.narrow(0, row, 1) : x; };
  return {one(queues.k), one(queues.v), one(queues.z), one(queues.position)};
}

}  // namespace

AbcQueueControl::AbcQueueControl(const char* name, int64_t queues, const AbcControlBuild& build)
    : name_(name),
      queues_(queues),
      slots_(build.num_slots),
      heads_(build.attention.num_heads),
      head_dim_(build.attention.head_dim),
      scale_(build.scale),
      causal_(build.attention.causal),
      masked_(build.mask_empty_slots),
      like_(build.like) {
  if (causal_) build.attention.attn.reserve_state("k, v", {heads_, queues_, slots_, 2 * head_dim_});
}

AbcQueues AbcQueueControl::empty(int64_t batch) const {
  const auto options = like_.options().requires_grad(false);
  AbcQueues queues{at::zeros({batch, heads_, queues_, slots_, head_dim_}, options),
                   at::zeros({batch, heads_, queues_, slots_, head_dim_}, options),
                   {},
                   {}};
  if (masked_) queues.z = at::zeros({batch, queues_, slots_}, options);
  if (queues_ > 1) queues.position = at::zeros({batch}, options.dtype(at::kLong));
  return queues;
}

core::State AbcQueueControl::closed(const AbcQueues& queues) const {
  if (queues_ > 1) return queues;
  return AbcSlots{
      queues.k.squeeze(2), queues.v.squeeze(2), queues.z.defined() ? queues.z.squeeze(1) : at::Tensor(), {}};
}

AbcQueues AbcQueueControl::opened(const core::State& state, int64_t batch) const {
  AbcQueues queues;
  if (queues_ > 1) {
    queues = state.as<AbcQueues>();
    core::require_state("abc", queues.k, {batch, heads_, queues_, slots_, head_dim_});
    core::require_state("abc", queues.position, {batch});
  } else {
    const AbcSlots& one = state.as<AbcSlots>();
    core::require_state("abc", one.k, {batch, heads_, slots_, head_dim_});
    queues = {one.k.unsqueeze(2), one.v.unsqueeze(2), one.z.defined() ? one.z.unsqueeze(1) : one.z, one.position};
  }
  if (masked_) core::require_state("abc", queues.z, {batch, queues_, slots_});
  base::require(queues.z.defined() == masked_ && queues.position.defined() == (queues_ > 1),
                "[abc] the state belongs to a control other than '{}', or to another mask_empty_slots", name_);
  return queues;
}

core::State AbcQueueControl::initial_state(int64_t batch) const {
  if (causal_) return closed(empty(batch));
  return AbcSlots{};
}

AbcAnswer AbcQueueControl::attend(const AbcCall& call, const core::State& state) const {
  const int64_t batch = call.k.size(0), keys = call.k.size(2);
  const AbcQueues past = causal_ ? opened(state, batch) : empty(batch);
  const at::Tensor positions = past.position.defined() ? past.position.to(at::kCPU) : at::zeros({batch}, at::kLong);
  Turn turn;
  if (!call.valid.defined() && (batch == 0 || positions.eq(positions[0]).all().item<bool>())) {
    turn = run(call, past, batch == 0 ? 0 : positions[0].item<int64_t>(),
               std::vector<bool>(static_cast<size_t>(keys), true));
  } else {
    // Padding and different queue positions: the sequences must be processed separately.
    const at::Tensor valid = call.valid.defined() ? call.valid.to(at::kCPU).contiguous()
                                                  : at::ones({batch, keys}, at::kBool);
    std::vector<at::Tensor> o, k, v, z;
    for (int64_t row = 0; row < batch; ++row) {
      const bool* real = valid.const_data_ptr<bool>() + row * keys;
      const Turn one = run(row_of(call, row), row_of(past, row), positions[row].item<int64_t>(),
                           std::vector<bool>(real, real + keys));
      o.push_back(one.o), k.push_back(one.queues.k), v.push_back(one.queues.v);
      if (masked_) z.push_back(one.queues.z);
    }
    turn = {at::cat(o), {at::cat(k), at::cat(v), masked_ ? at::cat(z) : at::Tensor(), {}}};
  }
  if (!causal_) {
    const at::Tensor k = turn.queues.k.squeeze(2), v = turn.queues.v.squeeze(2);
    return {turn.o, state, {}, v, {k, v, masked_ ? turn.queues.z.squeeze(1).gt(0.0) : at::Tensor()}};
  }
  if (queues_ > 1) turn.queues.position = next_position(past.position, call.valid, keys);
  return {turn.o, closed(turn.queues)};
}

AbcQueueControl::Turn AbcQueueControl::run(const AbcCall& call, const AbcQueues& past, int64_t first,
                                           const std::vector<bool>& real) const {
  struct Lane {
    std::vector<int64_t> queries, keys, seen;
  };
  std::vector<Lane> lanes(static_cast<size_t>(queues_));
  // A query at padding reads the queue of the token before it.
  int64_t number = first;
  auto lane_of = [&](int64_t token) -> Lane& {
    return lanes[static_cast<size_t>(std::max<int64_t>(token, 0) % queues_)];
  };
  for (size_t i = 0; i < real.size(); ++i) {
    if (real[i]) lane_of(number++).keys.push_back(static_cast<int64_t>(i));
    if (!causal_) continue;
    Lane& own = lane_of(number - 1);
    own.queries.push_back(static_cast<int64_t>(i));
    own.seen.push_back(static_cast<int64_t>(own.keys.size()));
  }
  if (!causal_) {
    for (int64_t t = 0; t < call.q.size(2); ++t) lanes[0].queries.push_back(t);
    lanes[0].seen.assign(lanes[0].queries.size(), static_cast<int64_t>(lanes[0].keys.size()));
  }

  std::vector<at::Tensor> o, k, v, z;
  std::vector<int64_t> order;
  for (int64_t queue = 0; queue < queues_; ++queue) {
    const Lane& lane = lanes[static_cast<size_t>(queue)];
    const at::Tensor held = masked_ ? past.z.select(1, queue).detach() : at::Tensor();
    const auto out = ops::abc_window(rows_at(call.q, lane.queries), rows_at(call.k, lane.keys),
                                     rows_at(call.v, lane.keys), {past.k.select(2, queue), past.v.select(2, queue)},
                                     masked_ ? held.gt(0.0) : at::Tensor(), lane.seen, scale_);
    o.push_back(out.o), k.push_back(out.sums.k), v.push_back(out.sums.v);
    order.insert(order.end(), lane.queries.begin(), lane.queries.end());
    if (!masked_) continue;
    const int64_t fresh = static_cast<int64_t>(lane.keys.size());
    z.push_back(at::cat({held, at::ones({held.size(0), fresh}, held.options())}, 1).narrow(1, fresh, slots_));
  }
  Turn turn{o[0], {at::stack(k, 2), at::stack(v, 2), masked_ ? at::stack(z, 1) : at::Tensor(), {}}};
  if (queues_ > 1) turn.o = at::cat(o, 2).index_select(2, at::tensor(order, at::kLong).argsort().to(call.q.device()));
  return turn;
}

AbcDilatedControl::AbcDilatedControl(const Options&, const AbcControlBuild& build)
    : AbcQueueControl("dilated", 2, build) {
  base::require(build.attention.causal,
                "ABC: control 'dilated' needs a causal model: which of its two queues a query reads depends on the "
                "query's position");
}

}  // namespace mnemo::memory
