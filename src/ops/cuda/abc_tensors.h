#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "ops/abc/abc.h"
#include "ops/attention/heads.h"
#include "ops/cuda/abc_backward_body.h"
#include "ops/cuda/abc_parts.h"
#include "ops/cuda/tensors.h"

namespace mnemo::ops::cuda {

/// The inputs of the scan.
struct AbcOperands {
  at::Tensor q, k, v, s;
  double scale;

  template <class S>
  AbcInputs<S> inputs() const {
    return {q.size(0),
            q.size(1),
            q.size(2),
            static_cast<int>(s.size(3)),
            static_cast<int>(q.size(3)),
            static_cast<int>(v.size(3)),
            rows_of<const S>(q),
            rows_of<const S>(k),
            rows_of<const S>(v),
            rows_of<const S>(s),
            static_cast<Wide<S>>(scale)};
  }
};

/// Memories one after another: [B,H,count,..].
struct AbcPath {
  at::Tensor k, v, m, l;

  /// Space for `count` memories per head.
  static AbcPath empty(const at::Tensor& k, const at::Tensor& v, int64_t count) {
    auto room = [&](int64_t width) { return at::empty({k.size(0), k.size(1), count, k.size(2), width}, k.options()); };
    return {room(k.size(3)), room(v.size(3)), room(1), room(1)};
  }
  template <class T>
  AbcMemoryOf<T> pointers() const {
    if (!k.defined()) return {};
    if constexpr (std::is_const_v<T>) {
      using P = std::remove_const_t<T>;
      return {k.const_data_ptr<P>(), v.const_data_ptr<P>(), m.const_data_ptr<P>(), l.const_data_ptr<P>()};
    } else {
      return {k.mutable_data_ptr<T>(), v.mutable_data_ptr<T>(), m.mutable_data_ptr<T>(), l.mutable_data_ptr<T>()};
    }
  }
};

struct AbcScanned {
  at::Tensor o;
  AbcMemory memory;
  AbcPath path;
};

/// abc_exp_scan (ops/abc/abc_scan.h) with the kernels of abc_body.h, a block for each head and part of the tokens
/// (abc_parts.h). Launch::run(body) runs a kernel on the tensors' device, which has Launch::multiprocessors();
/// Launch::most_shared_bytes() is the limit of shared memory per block. Memories have the type of sums.
template <class Launch>
struct AbcKernels {
  using variable_list = torch::autograd::variable_list;

  static AbcScanned forward(const AbcOperands& in, const AbcPairs& before, bool keeps_path) {
    const int64_t time = in.q.size(2);
    AbcScanned out{empty_heads(in.q, time, in.v.size(3)),
                   {at::empty(before.k.sizes(), before.k.options()), at::empty(before.v.sizes(), before.v.options()),
                    at::empty(before.m.sizes(), before.m.options())},
                   {}};
    if (keeps_path) {
      constexpr int64_t kTokens = kAbcChunksKept * kAbcTokens;
      out.path = AbcPath::empty(before.k, before.v, (time + kTokens - 1) / kTokens);
    }
    const AbcPairs start{before.k.contiguous(), before.v.contiguous(), before.m.contiguous(), before.l};
    with_type_of(in.q, [&](auto type) {
      using S = decltype(type);
      using A = Wide<S>;
      const AbcMemoryOf<const A> first{start.k.const_data_ptr<A>(), start.v.const_data_ptr<A>(),
                                       start.m.const_data_ptr<A>(),
                                       start.l.defined() ? start.l.const_data_ptr<A>() : nullptr};
      A *k1 = out.memory.k.mutable_data_ptr<A>(), *v1 = out.memory.v.mutable_data_ptr<A>(),
        *z1 = out.memory.z.mutable_data_ptr<A>();
      if (time == 1 && !keeps_path) {
        Launch::run(AbcStep<S>{in.inputs<S>(), first.k, first.v, first.m, rows_of<S>(out.o), k1, v1, z1});
      } else {
        Launch::run(AbcForward<S>{in.inputs<S>(), first, rows_of<S>(out.o), k1, v1, z1, out.path.pointers<A>()});
      }
    });
    return out;
  }

  struct Scan : torch::autograd::Function<Scan> {
    static variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                                 const at::Tensor& v, const at::Tensor& s, const at::Tensor& memory_k,
                                 const at::Tensor& memory_v, const at::Tensor& memory_z,
                                 const std::optional<at::Tensor>& memory_l, double scale) {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      const AbcScanned out = AbcKernels::forward({q, k, v, s, scale},
                                                 {memory_k, memory_v, memory_z, memory_l.value_or(at::Tensor())}, true);
      ctx->save_for_backward({q, k, v, s, out.path.k, out.path.v, out.path.m, out.path.l});
      ctx->saved_data["scale"] = scale;
      return {out.o, out.memory.k, out.memory.v, out.memory.z};
    }

    static variable_list backward(torch::autograd::AutogradContext* ctx, variable_list grads) {
      const variable_list saved = ctx->get_saved_variables();
      const AbcOperands in{saved[0], saved[1], saved[2], saved[3], ctx->saved_data["scale"].toDouble()};
      const AbcPath path{saved[4], saved[5], saved[6], saved[7]};
      const int64_t time = in.q.size(2);
      const at::Tensor grad_o = with_rows(grads[0]);
      const at::Tensor grad_q = empty_heads(in.q, time, in.q.size(3)), grad_k = empty_heads(in.q, time, in.q.size(3)),
                       grad_v = empty_heads(in.q, time, in.v.size(3)), grad_s = empty_heads(in.q, time, in.s.size(3));
      // The gradients of the last memory become those of the first, in place.
      const AbcMemory memory{grads[1].clone(at::MemoryFormat::Contiguous), grads[2].clone(at::MemoryFormat::Contiguous),
                             grads[3].clone(at::MemoryFormat::Contiguous)};
      const AbcPath pieces = AbcPath::empty(memory.k, memory.v, kAbcChunksKept);
      with_type_of(in.q, [&](auto type) {
        using S = decltype(type);
        using A = Wide<S>;
        Launch::run(AbcBackward<S>{in.inputs<S>(), path.pointers<const A>(), pieces.pointers<A>(),
                                   rows_of<const S>(grad_o), rows_of<S>(grad_q), rows_of<S>(grad_k), rows_of<S>(grad_v),
                                   rows_of<S>(grad_s), memory.k.mutable_data_ptr<A>(), memory.v.mutable_data_ptr<A>(),
                                   memory.z.mutable_data_ptr<A>()});
      });
      return {grad_q, grad_k, grad_v, grad_s, memory.k, memory.v, memory.z, {}, {}};
    }
  };

  /// Whether there are kernels for these sizes; others use the naive reference.
  static bool fits(const at::Tensor& q, const at::Tensor& v, const at::Tensor& s) {
    if (s.size(3) > kAbcMostSlots || q.size(3) > kMaxWidth || v.size(3) > kMaxWidth) return false;
    bool fits = false;
    with_type_of(q, [&](auto type) {
      AbcBackward<decltype(type)> largest{};
      largest.in.slots = static_cast<int>(s.size(3)), largest.in.width = static_cast<int>(q.size(3)),
      largest.in.value_width = static_cast<int>(v.size(3));
      fits = largest.shared_bytes() <= Launch::most_shared_bytes();
    });
    return fits;
  }

  static AbcOutput run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                       const AbcMemory& memory, double scale) {
    if (v.numel() == 0) return {v.to(q.scalar_type()), memory};  // no token, or no sequence
    const at::ScalarType held = memory.k.scalar_type(), wide = wide_type(q);
    auto typed = [&](const at::Tensor& tensor) { return with_rows(tensor.to(q.scalar_type())); };
    const AbcOperands in{with_rows(q), typed(k), typed(v), typed(s), scale};
    const AbcMemory before{memory.k.to(wide), memory.v.to(wide), memory.z.to(wide)};
    const int64_t time = q.size(2), wanted = kRounds * Launch::multiprocessors() / (q.size(0) * q.size(1));
    const AbcParts parts = AbcParts::of(time, std::max<int64_t>(1, wanted), kAbcChunksKept * kAbcTokens);
    if (parts.count == 1) {
      const AbcOutput out = scan(in, {before.k, before.v, before.z, {}});
      return {out.o, {out.memory.k.to(held), out.memory.v.to(held), out.memory.z.to(held)}};
    }
    constexpr double kUnseen = -std::numeric_limits<double>::infinity();
    const AbcOperands each{parts.split(in.q, 0), parts.split(in.k, 0), parts.split(in.v, 0), parts.split(in.s, kUnseen),
                           scale};
    const AbcPairs starts = memories_before(parts, each.k.to(wide), each.v.to(wide), each.s.to(wide), before);
    const AbcOutput out = scan(each, starts);
    const auto last = [&](const at::Tensor& x) { return parts.last(x).to(held); };
    return {parts.join(out.o, time), {last(out.memory.k), last(out.memory.v), last(out.memory.z)}};
  }

 private:
  /// Blocks of a scan for each multiprocessor, where there are tokens enough: fewer leave some idle at the end.
  static constexpr int64_t kRounds = 2;

  static AbcOutput scan(const AbcOperands& in, const AbcPairs& before) {
    if (!at::GradMode::is_enabled()) {
      const AbcScanned result = forward(in, before, false);
      return {result.o, result.memory};
    }
    const variable_list out = Scan::apply(in.q, in.k, in.v, in.s, before.k, before.v, before.m,
                                          before.l.defined() ? std::optional(before.l) : std::nullopt, in.scale);
    return {out[0], {out[1], out[2], out[3]}};
  }
};

}  // namespace mnemo::ops::cuda
