#include "ops/attention.h"

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <optional>

#include "base/error.h"

namespace mnemo::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Sizes {
  int64_t batch, heads, queries, keys, columns;
};

/// Offset of the position score of (query i, key j) within one [Q, columns] matrix, or -1 where it is zero.
inline int64_t position_index(RelShift shift, const Sizes& sizes, int64_t i, int64_t j) {
  if (shift == RelShift::signed_) {
    const int64_t column = j + sizes.queries - 1 - i;
    return column < sizes.columns ? i * sizes.columns + column : -1;
  }
  // The padded matrix has rows of 1 + K; flat reading from Q on with rows of K.
  const int64_t flat = sizes.queries + i * sizes.keys + j;
  const int64_t row = flat / (sizes.keys + 1), column = flat % (sizes.keys + 1) - 1;
  return column < 0 ? -1 : row * sizes.columns + column;
}

/// scores = scale * (scores + shifted position), -inf where masked. Returns whether some query has no key at all.
template <class T>
bool finish_scores(T* scores, const T* position, const bool* mask, int64_t mask_batch_stride, RelShift shift,
                   const Sizes& sizes, T scale) {
  std::atomic<bool> empty_row{false};
  const int64_t rows = sizes.batch * sizes.heads * sizes.queries;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, sizes.keys));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t matrix = row / sizes.queries, i = row % sizes.queries;
      T* out = scores + row * sizes.keys;
      if (position != nullptr) {
        const T* from = position + matrix * sizes.queries * sizes.columns;
        if (shift == RelShift::signed_) {
          const T* line = from + i * sizes.columns + sizes.queries - 1 - i;
          const int64_t known = std::min(sizes.keys, sizes.columns - (sizes.queries - 1 - i));
          for (int64_t j = 0; j < known; ++j) out[j] += line[j];
        } else {
          for (int64_t j = 0; j < sizes.keys; ++j) {
            const int64_t index = position_index(shift, sizes, i, j);
            if (index >= 0) out[j] += from[index];
          }
        }
      }
      if (mask == nullptr) {
        for (int64_t j = 0; j < sizes.keys; ++j) out[j] *= scale;
        continue;
      }
      const bool* allowed = mask + (matrix / sizes.heads) * mask_batch_stride + i * sizes.keys;
      bool any = false;
      for (int64_t j = 0; j < sizes.keys; ++j) {
        out[j] = allowed[j] ? out[j] * scale : -std::numeric_limits<T>::infinity();
        any |= allowed[j];
      }
      if (!any) empty_row.store(true, std::memory_order_relaxed);
    }
  });
  return empty_row.load();
}

/// position gradient from the score gradient: the transpose of the shift.
template <class T>
void unshift(const T* grad_scores, T* grad_position, RelShift shift, const Sizes& sizes) {
  const int64_t matrices = sizes.batch * sizes.heads;
  at::parallel_for(0, matrices, 1, [&](int64_t begin, int64_t end) {
    for (int64_t matrix = begin; matrix < end; ++matrix) {
      T* to = grad_position + matrix * sizes.queries * sizes.columns;
      const T* from = grad_scores + matrix * sizes.queries * sizes.keys;
      std::fill(to, to + sizes.queries * sizes.columns, T(0));
      for (int64_t i = 0; i < sizes.queries; ++i) {
        if (shift == RelShift::signed_) {
          T* line = to + i * sizes.columns + sizes.queries - 1 - i;
          const int64_t known = std::min(sizes.keys, sizes.columns - (sizes.queries - 1 - i));
          for (int64_t j = 0; j < known; ++j) line[j] = from[i * sizes.keys + j];
        } else {
          for (int64_t j = 0; j < sizes.keys; ++j) {
            const int64_t index = position_index(shift, sizes, i, j);
            if (index >= 0) to[index] += from[i * sizes.keys + j];
          }
        }
      }
    }
  });
}

Sizes sizes_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& position) {
  return {q.size(0), q.size(1), q.size(2), k.size(2), position.defined() ? position.size(3) : 0};
}

at::Tensor merge(const at::Tensor& tensor) {
  return tensor.contiguous().view({tensor.size(0) * tensor.size(1), tensor.size(2), tensor.size(3)});
}

struct Probabilities {
  at::Tensor p;  // [B*H,Q,K]
  Sizes sizes;
};

Probabilities probabilities(const at::Tensor& q, const at::Tensor& k, const at::Tensor& position, RelShift shift,
                            const at::Tensor& mask, double scale) {
  const Sizes sizes = sizes_of(q, k, position);
  at::Tensor scores = at::bmm(merge(q), merge(k).transpose(1, 2));
  const at::Tensor held_position = position.defined() ? position.contiguous() : at::Tensor();
  const at::Tensor held_mask = mask.defined() ? mask.contiguous() : at::Tensor();
  bool empty_row = false;
  AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "attention", [&] {
    empty_row = finish_scores<scalar_t>(
        scores.mutable_data_ptr<scalar_t>(),
        held_position.defined() ? held_position.const_data_ptr<scalar_t>() : nullptr,
        held_mask.defined() ? held_mask.const_data_ptr<bool>() : nullptr,
        held_mask.defined() && held_mask.dim() == 3 ? sizes.queries * sizes.keys : 0, shift, sizes,
        static_cast<scalar_t>(scale));
  });
  at::_softmax_out(scores, scores, -1, false);
  if (empty_row) scores.nan_to_num_(0.0);
  return {scores, sizes};
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& position, const std::optional<at::Tensor>& mask,
                            int64_t shift, double scale) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [p, sizes] = probabilities(q, k, position.value_or(at::Tensor()), static_cast<RelShift>(shift),
                                    mask.value_or(at::Tensor()), scale);
    at::Tensor out = at::bmm(p, merge(v)).view({sizes.batch, sizes.heads, sizes.queries, v.size(3)});
    ctx->save_for_backward({q, k, v, p});
    ctx->saved_data["shift"] = shift;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["columns"] = sizes.columns;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &p = saved[3];
    const auto shift = static_cast<RelShift>(ctx->saved_data["shift"].toInt());
    const double scale = ctx->saved_data["scale"].toDouble();
    Sizes sizes = sizes_of(q, k, {});
    sizes.columns = ctx->saved_data["columns"].toInt();
    const at::Tensor grad = merge(grads[0]);
    at::Tensor grad_v = at::bmm(p.transpose(1, 2), grad).view_as(v);
    at::Tensor grad_p = at::bmm(grad, merge(v).transpose(1, 2));
    at::Tensor grad_scores = at::_softmax_backward_data(grad_p, p, -1, p.scalar_type()).mul_(scale);
    at::Tensor grad_position;
    if (sizes.columns > 0) {
      grad_position = at::empty({sizes.batch, sizes.heads, sizes.queries, sizes.columns}, q.options());
      AT_DISPATCH_FLOATING_TYPES(p.scalar_type(), "attention_backward", [&] {
        unshift<scalar_t>(grad_scores.const_data_ptr<scalar_t>(), grad_position.mutable_data_ptr<scalar_t>(), shift,
                          sizes);
      });
    }
    at::Tensor grad_q = at::bmm(grad_scores, merge(k)).view_as(q);
    at::Tensor grad_k = at::bmm(grad_scores.transpose(1, 2), merge(q)).view_as(k);
    return {grad_q, grad_k, grad_v, grad_position, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rel_shift(const at::Tensor& position, int64_t num_keys, RelShift shift) {
  const int64_t queries = position.size(-2);
  if (shift == RelShift::faithful) {
    at::Tensor padded = at::constant_pad_nd(position, {1, 0});
    std::vector<int64_t> shape = position.sizes().vec();
    shape[shape.size() - 2] = num_keys + 1;
    shape.back() = queries;
    return padded.reshape(shape).narrow(-2, 1, num_keys).reshape([&] {
      shape[shape.size() - 2] = queries;
      shape.back() = num_keys;
      return shape;
    }());
  }
  const int64_t columns = position.size(-1);
  const at::Tensor i = at::arange(queries, position.options().dtype(at::kLong)).unsqueeze(1);
  const at::Tensor j = at::arange(num_keys, position.options().dtype(at::kLong)).unsqueeze(0);
  const at::Tensor column = j + (queries - 1) - i;
  std::vector<int64_t> shape = position.sizes().vec();
  shape.back() = num_keys;
  return position.gather(-1, column.clamp_max(columns - 1).expand(shape)) * (column < columns);
}

at::Tensor attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& position,
                           RelShift shift, const at::Tensor& mask, double scale) {
  at::Tensor scores = at::matmul(q, k.transpose(-1, -2));
  if (shift != RelShift::none) scores = scores + rel_shift(position, k.size(2), shift);
  scores = scores * scale;
  if (!mask.defined()) return at::matmul(at::softmax(scores, -1), v);
  const at::Tensor allowed = mask.dim() == 2 ? mask : mask.unsqueeze(1);
  const at::Tensor any = allowed.any(-1, true);
  // Rows without a key get a harmless softmax first and zeros after, so that no gradient is NaN.
  scores = scores.masked_fill(at::logical_and(at::logical_not(allowed), any), -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1) * any, v);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& position,
                     RelShift shift, const at::Tensor& mask, double scale) {
  base::ensure((shift == RelShift::none) == !position.defined(), "attention: position scores and shift do not agree");
  if (!at::GradMode::is_enabled()) {
    auto [p, sizes] = probabilities(q, k, position, shift, mask, scale);
    return at::bmm(p, merge(v)).view({sizes.batch, sizes.heads, sizes.queries, v.size(3)});
  }
  auto optional = [](const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
  return AttentionFunction::apply(q, k, v, optional(position), optional(mask), static_cast<int64_t>(shift), scale);
}

}  // namespace mnemo::ops
