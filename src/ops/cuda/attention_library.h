#pragma once

#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <deque>
#include <limits>
#include <optional>

#include "ops/attention/attention.h"
#include "ops/fixed_shapes.h"
#include "ops/naive/attention.h"

/// Attention to many keys on a device, by LibTorch.
namespace mnemo::ops::cuda {

/// Whether queries see a quarter of the keys or more. LibTorch's own attention computes every pair under a mask, but
/// several times as fast as our kernels, which skip tiles that no query sees and use no tensor cores.
inline bool sees_much(const KeyRanges& ranges) {
  const at::Tensor seen = (ranges.bounds.select(1, 1) - ranges.bounds.select(1, 0)).sum();
  return 4 * seen.item<int64_t>() >= ranges.queries() * ranges.keys;
}

/// A copy on the device, without waiting.
inline at::Tensor sent(const at::Tensor& host, at::Device device) {
  return device.is_cuda() ? host.pin_memory().to(device, /*non_blocking=*/true) : host.to(device);
}

/// make(), or what it made for ranges of the same contents and that device: each training segment has a new table.
/// Padding does not count.
template <class Made, class Make>
Made made_once(const KeyRanges& ranges, at::Device device, Make make) {
  struct Entry {
    KeyRanges from;
    at::Device device;
    Made made;
  };
  constexpr size_t kMost = 4;
  thread_local std::deque<Entry> last;
  const auto same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b) || at::equal(a, b); };
  for (const Entry& entry : last) {
    if (entry.from.keys == ranges.keys && entry.device == device && same(entry.from.offsets, ranges.offsets) &&
        same(entry.from.bounds, ranges.bounds))
      return entry.made;
  }
  // They outlive this call: if made in inference mode, they could not be used for training later.
  const c10::InferenceMode ordinary(false);
  if (last.size() == kMost) last.pop_front();
  return last.emplace_back(KeyRanges{ranges.keys, ranges.offsets, ranges.bounds}, device, make()).made;
}

/// mask() of ranges on a device, true = may attend.
struct DeviceMask {
  at::Tensor open;     ///< [Q,K], or [B,1,Q,K] if there is padding
  bool blind = false;  ///< there may be queries without keys
};

inline DeviceMask mask_on_device(const KeyRanges& ranges, at::Device device) {
  const auto made = [&ranges](const auto& send) {
    const at::Tensor mask = KeyRanges{ranges.keys, ranges.offsets, ranges.bounds}.mask();
    return DeviceMask{send(mask), !mask.any(-1).all().template item<bool>()};
  };
  FixedShapes* work = FixedShapes::now();
  const DeviceMask there = work != nullptr
                               ? made([&](const at::Tensor& mask) { return work->there(mask, device); })
                               : made_once<DeviceMask>(ranges, device, [&] {
                                   return made([device](const at::Tensor& mask) { return sent(mask, device); });
                                 });
  if (!ranges.valid.defined()) return there;
  return {there.open.logical_and(ranges.valid.to(device).unsqueeze(1)).unsqueeze(1), true};
}

/// LibTorch's own attention. position [B,H,Q,K]: added to the scaled scores; or undefined.
inline at::Tensor library_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const at::Tensor& position, const KeyRanges& ranges, double scale) {
  const auto attend = [&](const at::Tensor& bias, bool causal) {
    return at::scaled_dot_product_attention(q, k, v, bias.defined() ? std::optional(bias) : std::nullopt, 0.0, causal,
                                            scale);
  };
  const Plain plain = plain_form(ranges);
  if (plain == Plain::all || (plain == Plain::causal && !position.defined()))
    return attend(position, plain == Plain::causal);
  const DeviceMask mask = mask_on_device(ranges, q.device());
  // A query without keys sees all of them, since not every device's kernel gives it zeros, and its output becomes 0.
  const at::Tensor blind = mask.blind ? mask.open.any(-1, true).logical_not() : at::Tensor(),
                   open = mask.blind ? mask.open.logical_or(blind) : mask.open;
  const auto biased = [&] {
    const at::Tensor hidden = at::zeros(open.sizes(), position.options().requires_grad(false));
    return position + hidden.masked_fill_(open.logical_not(), -std::numeric_limits<double>::infinity());
  };
  const at::Tensor o = attend(position.defined() ? biased() : open, false);
  return mask.blind ? o.masked_fill(blind, 0) : o;
}

/// Attention without position terms.
inline at::Tensor attention_by_content(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                       const KeyRanges& ranges, double scale) {
  return library_attention(q, k.to(q.scalar_type()), v.to(q.scalar_type()), {}, ranges, scale);
}

/// Any attention, with buffers [B,H,Q,K]: its definition. In bfloat16 LibTorch's own attention, which has tensor cores:
/// sums are in float32, but position scores are rounded.
inline at::Tensor attention_by_products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const Positions& positions, const KeyRanges& ranges, double scale) {
  const bool rounded = q.scalar_type() == at::kBFloat16;
  const auto typed = [&](const at::Tensor& x) { return x.defined() ? x.to(q.scalar_type()) : x; };
  const auto plus = [&](const at::Tensor& bias) { return bias.defined() ? q + typed(bias).unsqueeze(1) : q; };
  const auto scaled = [&](const at::Tensor& x) { return rounded && x.defined() ? x * scale : x; };
  const at::Tensor position = positions.r.defined()
                                  ? at::matmul(scaled(plus(positions.v)), typed(positions.r).permute({1, 2, 0}))
                                  : scaled(typed(positions.scores));
  const RelShift shift = position.defined() ? RelShift::signed_ : RelShift::none;
  if (rounded) {
    const at::Tensor bias = position.defined() ? rel_shift(position, k.size(2), shift) : position;
    return library_attention(plus(positions.u), typed(k), typed(v), bias, ranges, scale);
  }
  const at::Tensor mask = mask_on_device(ranges, q.device()).open;
  return attention_naive(plus(positions.u), typed(k), typed(v), position, shift,
                         mask.dim() == 4 ? mask.squeeze(1) : mask, scale);
}

}  // namespace mnemo::ops::cuda
