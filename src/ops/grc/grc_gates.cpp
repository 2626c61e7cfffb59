#include "ops/grc/grc_gates.h"

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "ops/grc/grc_kernels.h"
#include "ops/naive/rows.h"

namespace mnemo::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Values per task, for all sequences of a shared cache: its part of the cache stays in the processor's cache.
constexpr int64_t kPiece = 4096;

bool ours(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble) && x.numel() > 0;
}

/// Calls f(offset in the cache, offset in the input, count) over [B,N,C] values with a cache [B,N,C] or [1,N,C].
template <class F>
void each_piece(const at::Tensor& input, const at::Tensor& cache, F&& f) {
  const int64_t size = cache.numel(), times = input.numel() / size, pieces = (size + kPiece - 1) / kPiece;
  at::parallel_for(0, pieces, std::max<int64_t>(1, 8 / times), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kPiece, count = std::min(kPiece, size - first);
      for (int64_t time = 0; time < times; ++time) f(first, time * size + first, count);
    }
  });
}

template <class T>
const T* at_offset(const at::Tensor& tensor, int64_t offset) {
  return tensor.defined() ? tensor.const_data_ptr<T>() + offset : nullptr;
}

template <class T>
T* to_offset(const at::Tensor& tensor, int64_t offset) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() + offset : nullptr;
}

/// The gradient of the cache's term: that of the input if each sequence has its own cache, otherwise a sum.
at::Tensor sum_of(const at::Tensor& input, const at::Tensor& cache) {
  return cache.numel() == input.numel() ? at::Tensor() : at::zeros_like(cache);
}

struct KeepFunction : torch::autograd::Function<KeepFunction> {
  static at::Tensor run(const at::Tensor& input, const at::Tensor& cache, const at::Tensor& old) {
    const at::Tensor out = at::empty_like(input);
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "gate_keep", [&] {
      each_piece(input, cache, [&](int64_t c, int64_t i, int64_t count) {
        gate_keep<scalar_t>({at_offset<scalar_t>(input, i), at_offset<scalar_t>(cache, c)}, at_offset<scalar_t>(old, c),
                            to_offset<scalar_t>(out, i), count);
      });
    });
    return out;
  }
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& cache,
                            const at::Tensor& old) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({input, cache, old});
    return run(input, cache, old);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    const at::Tensor grad = grads[0].contiguous(), logits = at::empty_like(s[0]), sum = sum_of(s[0], s[1]);
    const at::Tensor old = ctx->needs_input_grad(2) ? at::zeros_like(s[2]) : at::Tensor();
    AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "gate_keep_backward", [&] {
      each_piece(s[0], s[1], [&](int64_t c, int64_t i, int64_t count) {
        gate_keep_grad<scalar_t>({at_offset<scalar_t>(s[0], i), at_offset<scalar_t>(s[1], c)},
                                 at_offset<scalar_t>(s[2], c), at_offset<scalar_t>(grad, i),
                                 to_offset<scalar_t>(logits, i), to_offset<scalar_t>(sum, c),
                                 to_offset<scalar_t>(old, c), count);
      });
    });
    return {logits, sum.defined() ? sum : logits, old};
  }
};

struct BlendFunction : torch::autograd::Function<BlendFunction> {
  using Optional = std::optional<at::Tensor>;
  static at::Tensor run(const at::Tensor& input, const at::Tensor& cache, const at::Tensor& old,
                        const at::Tensor& fresh, const at::Tensor& more) {
    const at::Tensor out = at::empty_like(input);
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "gate_blend", [&] {
      each_piece(input, cache, [&](int64_t c, int64_t i, int64_t count) {
        gate_blend<scalar_t>({at_offset<scalar_t>(input, i), at_offset<scalar_t>(cache, c)},
                             at_offset<scalar_t>(old, c), at_offset<scalar_t>(fresh, i), at_offset<scalar_t>(more, i),
                             to_offset<scalar_t>(out, i), count);
      });
    });
    return out;
  }
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& cache,
                            const at::Tensor& old, const at::Tensor& fresh, const Optional& more) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({input, cache, old, fresh, more.value_or(at::Tensor())});
    return run(input, cache, old, fresh, more.value_or(at::Tensor()));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    const at::Tensor grad = grads[0].contiguous(), logits = at::empty_like(s[0]), sum = sum_of(s[0], s[1]),
                     fresh = at::empty_like(s[0]);
    const at::Tensor old = ctx->needs_input_grad(2) ? at::zeros_like(s[2]) : at::Tensor();
    AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "gate_blend_backward", [&] {
      each_piece(s[0], s[1], [&](int64_t c, int64_t i, int64_t count) {
        gate_blend_grad<scalar_t>({at_offset<scalar_t>(s[0], i), at_offset<scalar_t>(s[1], c)},
                                  at_offset<scalar_t>(s[2], c), at_offset<scalar_t>(s[3], i),
                                  at_offset<scalar_t>(s[4], i), at_offset<scalar_t>(grad, i),
                                  to_offset<scalar_t>(logits, i), to_offset<scalar_t>(sum, c),
                                  to_offset<scalar_t>(fresh, i), to_offset<scalar_t>(old, c), count);
      });
    });
    return {logits, sum.defined() ? sum : logits, old, fresh, s[4].defined() ? fresh : at::Tensor()};
  }
};

struct MixFunction : torch::autograd::Function<MixFunction> {
  /// Calls f(row of m, row of o, head) for every row of [B*T] and head.
  template <class F>
  static void each_row(const at::Tensor& m, const at::Tensor& o, int64_t heads, F&& f) {
    const int64_t rows = o.numel() / o.size(-1), narrow = m.size(-1), width = o.size(-1);
    at::parallel_for(0, rows, std::max<int64_t>(1, (1 << 15) / width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t h = 0; h < heads; ++h)
          f(row * narrow + h * (narrow / heads), row * width + h * (width / heads), h, row);
      }
    });
  }
  static at::Tensor run(const at::Tensor& m, const at::Tensor& o, const at::Tensor& share) {
    const at::Tensor y = at::empty_like(o);
    const int64_t heads = share.size(0);
    AT_DISPATCH_FLOATING_TYPES(o.scalar_type(), "mix_heads", [&] {
      const scalar_t *shares = share.const_data_ptr<scalar_t>(), *from_m = m.const_data_ptr<scalar_t>(),
                     *from_o = o.const_data_ptr<scalar_t>();
      scalar_t* to = y.mutable_data_ptr<scalar_t>();
      const int64_t narrow = m.size(-1) / heads, width = o.size(-1) / heads;
      each_row(m, o, heads, [&](int64_t at_m, int64_t at_o, int64_t h, int64_t) {
        mix_head<scalar_t>(from_m + at_m, from_o + at_o, shares[h], to + at_o, narrow, width);
      });
    });
    return y;
  }
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& m, const at::Tensor& o, const at::Tensor& share) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({m, o, share});
    return run(m, o, share);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    const int64_t heads = s[2].size(0), rows = s[1].numel() / s[1].size(-1);
    const at::Tensor grad = grads[0].contiguous(), m = at::empty_like(s[0]), o = at::empty_like(s[1]),
                     share = at::empty({rows, heads}, s[2].options());
    AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "mix_heads_backward", [&] {
      const scalar_t *shares = s[2].const_data_ptr<scalar_t>(), *from_m = s[0].const_data_ptr<scalar_t>(),
                     *from_o = s[1].const_data_ptr<scalar_t>();
      const scalar_t* from_grad = grad.const_data_ptr<scalar_t>();
      scalar_t *of_share = share.mutable_data_ptr<scalar_t>(), *to_m = m.mutable_data_ptr<scalar_t>(),
               *to_o = o.mutable_data_ptr<scalar_t>();
      const int64_t narrow = m.size(-1) / heads, width = o.size(-1) / heads;
      each_row(m, o, heads, [&](int64_t at_m, int64_t at_o, int64_t h, int64_t row) {
        of_share[row * heads + h] = mix_head_grad<scalar_t>(from_m + at_m, from_o + at_o, from_grad + at_o, shares[h],
                                                            to_m + at_m, to_o + at_o, narrow, width);
      });
    });
    return {m, o, share.sum(0)};
  }
};

}  // namespace

at::Tensor gate_keep(const GateTerms& gate, const at::Tensor& old) {
  if (!ours(gate.input)) return gate_keep_naive(gate, old);
  const at::Tensor input = gate.input.contiguous(), cache = gate.cache.contiguous(), before = old.contiguous();
  return at::GradMode::is_enabled() ? KeepFunction::apply(input, cache, before)
                                    : KeepFunction::run(input, cache, before);
}

at::Tensor gate_blend(const GateTerms& gate, const at::Tensor& old, const at::Tensor& fresh, const at::Tensor& more) {
  if (!ours(gate.input)) return gate_blend_naive(gate, old, fresh, more);
  const at::Tensor input = gate.input.contiguous(), cache = gate.cache.contiguous(), before = old.contiguous(),
                   from = fresh.contiguous();
  const at::Tensor added = more.defined() ? more.contiguous() : more;
  if (!at::GradMode::is_enabled()) return BlendFunction::run(input, cache, before, from, added);
  return BlendFunction::apply(input, cache, before, from, added.defined() ? std::optional(added) : std::nullopt);
}

at::Tensor mix_heads(const at::Tensor& m, const at::Tensor& o, const at::Tensor& share) {
  if (!ours(o)) return mix_heads_naive(m, o, share);
  const at::Tensor memory = m.contiguous(), self = o.contiguous(), shares = share.contiguous();
  return at::GradMode::is_enabled() ? MixFunction::apply(memory, self, shares) : MixFunction::run(memory, self, shares);
}

}  // namespace mnemo::ops
