#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "ops/attention/attention.h"
#include "ops/attention/heads.h"
#include "ops/cuda/attention_body.h"
#include "ops/cuda/attention_library.h"
#include "ops/cuda/tensors.h"
#include "ops/fixed_shapes.h"

namespace mnemo::ops::cuda {

/// Offsets, bounds and padding on a device.
inline KeyRanges on_device(const KeyRanges& ranges, at::Device device) {
  const auto made = [&ranges](const auto& send) {
    return KeyRanges{ranges.keys, send(ranges.offsets), send(ranges.bounds)};
  };
  FixedShapes* work = FixedShapes::now();
  KeyRanges there = work != nullptr ? made([&](const at::Tensor& table) { return work->there(table, device); })
                                    : made_once<KeyRanges>(ranges, device, [&] {
                                        return made([device](const at::Tensor& table) { return sent(table, device); });
                                      });
  if (ranges.valid.defined()) there.valid = ranges.valid.to(device).contiguous();
  return there;
}

/// All inputs of attention, in the form that the kernels use.
struct AttentionOperands {
  at::Tensor q, k, v, u, v_bias, r, scores, offsets, bounds, valid;
  double scale;

  static AttentionOperands of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                              const KeyRanges& ranges, double scale) {
    // All tensors get the type of the queries.
    auto typed = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(q.scalar_type()) : tensor; };
    auto contiguous = [&](const at::Tensor& tensor) { return tensor.defined() ? typed(tensor).contiguous() : tensor; };
    const at::Tensor r = typed(positions.r);
    const KeyRanges there = on_device(ranges, q.device());
    return {with_rows(q),
            with_rows(typed(k)),
            with_rows(typed(v)),
            contiguous(positions.u),
            contiguous(positions.v),
            r.defined() && r.stride(2) != 1 ? r.contiguous() : r,
            with_rows(typed(positions.scores)),
            there.offsets,
            there.bounds,
            there.valid,
            scale};
  }

  template <class S>
  AttentionInputs<S> inputs() const {
    auto pointer = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr<S>() : nullptr; };
    AttentionInputs<S> in{};
    in.batch = q.size(0), in.heads = q.size(1), in.queries = static_cast<int>(q.size(2)),
    in.width = static_cast<int>(q.size(3));
    in.keys = static_cast<int>(k.size(2)), in.value_width = static_cast<int>(v.size(3));
    in.distances = static_cast<int>(r.defined() ? r.size(0) : scores.defined() ? scores.size(3) : 0);
    in.q = rows_of<const S>(q), in.k = rows_of<const S>(k), in.v = rows_of<const S>(v),
    in.scores = rows_of<const S>(scores);
    if (r.defined()) in.r = {r.const_data_ptr<S>(), 0, r.stride(1), r.stride(0)};
    in.u = pointer(u), in.v_bias = pointer(v_bias);
    in.offsets = offsets.const_data_ptr<int32_t>(), in.bounds = bounds.const_data_ptr<int32_t>();
    in.valid = valid.defined() ? valid.const_data_ptr<bool>() : nullptr;
    in.scale = static_cast<Wide<S>>(scale);
    return in;
  }
};

/// attention (ops/attention/attention.h) with the kernels of attention_body.h; Launch as in AbcKernels.
template <class Launch>
struct AttentionKernels {
  using variable_list = torch::autograd::variable_list;
  using Optional = std::optional<at::Tensor>;

  struct Outputs {
    at::Tensor o, log_sum;
  };

  static Outputs forward(const AttentionOperands& in) {
    const at::Tensor o = empty_heads(in.q, in.q.size(2), in.v.size(3));
    const at::Tensor log_sum = at::empty({in.q.size(0), in.q.size(1), in.q.size(2)},
                                         in.q.options().dtype(wide_type(in.q)));
    with_type_of(in.q, [&](auto type) {
      using S = decltype(type);
      Launch::run(AttentionForward<S>{in.inputs<S>(), rows_of<S>(o), log_sum.mutable_data_ptr<Wide<S>>()});
    });
    return {o, log_sum};
  }

  struct Attend : torch::autograd::Function<Attend> {
    static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const Optional& u, const Optional& v_bias, const Optional& r,
                              const Optional& scores, const at::Tensor& offsets, const at::Tensor& bounds,
                              const Optional& valid, double scale) {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      auto given = [](const Optional& tensor) { return tensor.value_or(at::Tensor()); };
      const AttentionOperands in{
          q, k, v, given(u), given(v_bias), given(r), given(scores), offsets, bounds, given(valid), scale};
      const at::Tensor o = [&] {
        const Outputs out = AttentionKernels::forward(in);
        ctx->save_for_backward(
            {in.q, in.k, in.v, in.u, in.v_bias, in.r, in.scores, in.offsets, in.bounds, in.valid, out.o, out.log_sum});
        return out.o;
      }();
      ctx->saved_data["scale"] = scale;
      return o;
    }

    static variable_list backward(torch::autograd::AutogradContext* ctx, variable_list grads) {
      const variable_list s = ctx->get_saved_variables();
      const AttentionOperands in{
          s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], ctx->saved_data["scale"].toDouble()};
      const at::ScalarType wide = wide_type(in.q);
      const at::Tensor grad_o = with_rows(grads[0]), mean = (s[10].to(wide) * grad_o.to(wide)).sum(-1).contiguous();
      const at::TensorOptions options = in.q.options().dtype(wide);
      const bool has_r = in.r.defined();
      const at::Tensor by_content = at::empty(in.q.sizes(), options),
                       by_position = has_r ? at::empty(in.q.sizes(), options) : at::Tensor();
      const at::Tensor grad_k = at::empty(in.k.sizes(), options), grad_v = at::empty(in.v.sizes(), options);
      const at::Tensor grad_r = has_r ? at::empty(in.r.sizes(), options) : at::Tensor();
      const at::Tensor grad_scores = in.scores.defined() ? at::zeros(in.scores.sizes(), options) : at::Tensor();
      with_type_of(in.q, [&](auto type) {
        using S = decltype(type);
        using A = Wide<S>;
        const AttentionGradient<S> g{in.inputs<S>(), rows_of<const S>(grad_o), s[11].const_data_ptr<A>(),
                                     mean.const_data_ptr<A>()};
        Launch::run(AttentionBackwardQueries<S>{g, by_content.mutable_data_ptr<A>(),
                                                has_r ? by_position.mutable_data_ptr<A>() : nullptr,
                                                rows_of<A>(grad_scores)});
        Launch::run(AttentionBackwardKeys<S>{g, grad_k.mutable_data_ptr<A>(), grad_v.mutable_data_ptr<A>()});
        if (has_r) Launch::run(AttentionBackwardDistances<S>{g, grad_r.mutable_data_ptr<A>()});
      });
      const at::ScalarType type = in.q.scalar_type();
      auto narrow = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(type) : tensor; };
      auto of_bias = [&](const at::Tensor& bias, const at::Tensor& by_query) {
        return !bias.defined()      ? at::Tensor()
               : by_query.defined() ? by_query.sum(at::IntArrayRef({0, 2})).to(type)
                                    : at::zeros_like(bias);
      };
      const at::Tensor none;
      return {narrow(has_r ? by_content + by_position : by_content),
              narrow(grad_k),
              narrow(grad_v),
              of_bias(in.u, by_content),
              of_bias(in.v_bias, by_position),
              narrow(grad_r),
              narrow(grad_scores),
              none,
              none,
              none,
              none};
    }
  };

  /// Whether there are kernels for these sizes.
  static bool fits(const at::Tensor& q, const at::Tensor& v) {
    if (q.size(3) > kMaxWidth || v.size(3) > kMaxWidth) return false;
    bool fits = false;
    with_type_of(q, [&](auto type) {
      using S = decltype(type);
      const S some{};
      AttentionBackwardDistances<S> slanted{};
      AttentionBackwardKeys<S> straight{};
      for (AttentionInputs<S>* in : {&slanted.g.in, &straight.g.in}) {
        in->width = static_cast<int>(q.size(3)), in->value_width = static_cast<int>(v.size(3)), in->r.data = &some;
      }
      fits = std::max(slanted.shared_bytes(), straight.shared_bytes()) <= Launch::most_shared_bytes();
    });
    return fits;
  }

  static at::Tensor run(const AttentionOperands& in) {
    if (!at::GradMode::is_enabled()) return forward(in).o;
    auto optional = [](const at::Tensor& tensor) { return tensor.defined() ? Optional(tensor) : std::nullopt; };
    return Attend::apply(in.q, in.k, in.v, optional(in.u), optional(in.v_bias), optional(in.r), optional(in.scores),
                         in.offsets, in.bounds, optional(in.valid), in.scale);
  }
};

}  // namespace mnemo::ops::cuda
