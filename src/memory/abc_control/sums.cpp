#include "memory/abc_control/sums.h"

#include <torch/types.h>

#include "base/error.h"
#include "core/draws.h"
#include "core/require_state.h"
#include "ops/abc/abc_sums.h"

namespace mnemo::memory {

at::Tensor token_numbers(const at::Tensor& position, const at::Tensor& valid, int64_t keys) {
  if (!valid.defined()) return position.unsqueeze(1) + at::arange(keys, position.options());
  return (position.unsqueeze(1) + valid.cumsum(1) - 1).clamp_min(0);
}

at::Tensor next_position(const at::Tensor& position, const at::Tensor& valid, int64_t keys) {
  return valid.defined() ? position + valid.sum(1) : position + keys;
}

AbcSumControl::AbcSumControl(const char* name, Keeps keeps, const AbcControlBuild& build)
    : name_(name),
      slots_(build.num_slots),
      heads_(build.attention.num_heads),
      head_dim_(build.attention.head_dim),
      keeps_(keeps),
      scale_(build.scale),
      causal_(build.attention.causal),
      masked_(build.mask_empty_slots),
      like_(build.like) {
  if (causal_) build.attention.attn.reserve_state("k, v", {heads_, slots_, 2 * head_dim_});
}

AbcSlots AbcSumControl::empty(int64_t batch) const {
  const auto options = like_.options().requires_grad(false);
  AbcSlots slots{at::zeros({batch, heads_, slots_, head_dim_}, options),
                 at::zeros({batch, heads_, slots_, head_dim_}, options),
                 {},
                 {}};
  if (counts()) slots.z = at::zeros({batch, slots_}, options);
  if (keeps_ == Keeps::positions) slots.position = at::zeros({batch}, options.dtype(at::kLong));
  if (redraw() != Redraw::never) slots.draw = at::full({batch}, core::kNotDrawn, options.dtype(at::kLong));
  return slots;
}

core::State AbcSumControl::initial_state(int64_t batch) const { return causal_ ? empty(batch) : AbcSlots{}; }

at::Tensor AbcSumControl::one_hot(const at::Tensor& slots) const {
  return slots.unsqueeze(-1).eq(at::arange(slots_, slots.options())).to(like_.scalar_type());
}

at::Tensor AbcSumControl::given_slots(const AbcCall& call) const {
  const at::Tensor& given = call.slot_index;
  base::require(given.dim() == 2 && given.scalar_type() == at::kLong && given.size(0) == call.k.size(0) &&
                    given.size(1) == call.k.size(2),
                "[abc] control '{}': expected slot_index int64 [{},{}], found {} {}", name_, call.k.size(0),
                call.k.size(2), c10::toString(given.scalar_type()), c10::str(given.sizes()));
  const at::Tensor real = call.valid.defined() ? given.masked_fill(call.valid.logical_not(), 0) : given;
  if (real.numel() > 0) {
    const auto [least, greatest] = at::aminmax(real);
    base::require(least.item<int64_t>() >= 0 && greatest.item<int64_t>() < slots_,
                  "[abc] control '{}': expected a slot_index of 0 to {}, found {} to {}", name_, slots_ - 1,
                  least.item<int64_t>(), greatest.item<int64_t>());
  }
  return real;
}

void AbcSumControl::require_places(int64_t last) const {
  const Places places = this->places();
  base::require(places.tokens == 0 || last < places.tokens,
                "[abc] control '{}' takes sequences of at most {} tokens, which is its {}; found token number {}",
                name_, places.tokens, places.option, last + 1);
}

void AbcSumControl::require_numbers(const AbcCall& call, const at::Tensor& numbers) const {
  if (numbers.numel() == 0) return;
  require_places(
      (call.valid.defined() ? numbers.masked_fill(call.valid.logical_not(), 0) : numbers).max().item<int64_t>());
}

AbcAnswer AbcSumControl::attend(const AbcCall& call, const core::State& state) const {
  const int64_t batch = call.k.size(0), keys = call.k.size(2);
  // In a bidirectional model every call starts from empty slots.
  AbcSlots past = causal_ ? state.as<AbcSlots>() : empty(batch);
  core::require_state("abc", past.k, {batch, heads_, slots_, head_dim_});
  if (counts()) core::require_state("abc", past.z, {batch, slots_});
  if (keeps_ == Keeps::positions) core::require_state("abc", past.position, {batch});
  base::require(past.z.defined() == counts() && past.position.defined() == (keeps_ == Keeps::positions),
                "[abc] the state belongs to a control other than '{}', or to another mask_empty_slots", name_);

  core::require_draw("abc", past.draw, redraw() != Redraw::never, batch);
  if (past.draw.defined()) past.draw = core::draws(past.draw, batch, call.mode);

  const at::Tensor numbers = keeps_ == Keeps::positions ? token_numbers(past.position, call.valid, keys) : at::Tensor();
  Writes written = writes(call, past, numbers);
  if (!written.tokens.defined()) written.tokens = written.phi;
  if (call.valid.defined()) {
    const at::Tensor real = call.valid.unsqueeze(-1).to(written.phi.scalar_type());
    written.phi = written.phi * real;
    written.tokens = written.tokens * real;
  }
  const at::Tensor phi = written.phi.unsqueeze(1).expand({batch, heads_, keys, slots_});
  // How slots are read after each token; in bidirectional models only after the last.
  AbcSlots next{{}, {}, {}, keeps_ == Keeps::positions ? next_position(past.position, call.valid, keys) : at::Tensor()};
  if (past.draw.defined())
    next.draw = redraw() == Redraw::segment && call.ends ? at::full_like(past.draw, core::kNotDrawn) : past.draw;
  ops::AbcReading reading;
  if (counts()) {
    const at::Tensor tokens = written.tokens.detach(), before = past.z.detach();
    const at::Tensor held = causal_ ? before.unsqueeze(1) + tokens.cumsum(1)
                                    : tokens.sum(1, true);  // [B,T,n] or [B,1,n]
    next.z = keys == 0 ? before : held.select(1, held.size(1) - 1);
    if (keeps_ == Keeps::means)
      reading.factor = held.clamp_min(1.0).reciprocal().unsqueeze(1).expand({-1, heads_, -1, -1});
    if (masked_) reading.open = held.gt(0.0).unsqueeze(1).expand({-1, heads_, -1, -1});
  }
  if (!causal_) {
    const ops::AbcSumsOutput full = ops::abc_sums_full(call.q, call.k, call.v, phi, reading, scale_);
    const auto as_read = [&](const at::Tensor& slots) {
      return reading.factor.defined() ? slots * reading.factor.transpose(2, 3) : slots;
    };
    return {
        full.o,
        state,
        {},
        full.sums.v,
        {as_read(full.sums.k), as_read(full.sums.v), masked_ ? reading.open.select(1, 0).squeeze(1) : at::Tensor()}};
  }
  const auto out = ops::abc_sums(call.q, call.k, call.v, phi, {past.k, past.v}, reading, scale_);
  next.k = out.sums.k, next.v = out.sums.v;
  return {out.o, next};
}

}  // namespace mnemo::memory
