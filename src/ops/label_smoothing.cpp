#include "ops/label_smoothing.h"

#include <torch/types.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/row_kernels.h"

namespace mnemo::ops {
namespace {

/// sum_v (top - x_v), of terms that are not negative; in eight sums side by side, since one waits for every addition.
template <class T>
double sum_below(const T* x, int64_t size, T top) {
  constexpr int64_t kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(top - x[i + k]);
  }
  for (; i < size; ++i) sums[0] += static_cast<double>(top - x[i]);
  double all = 0;
  for (const double sum : sums) all += sum;
  return all;
}

/// Both losses in one pass over the logits, and their gradient in another:
///   d/dx_v = (c_n + V c_a) p_v - c_a - c_n [v = target],  c_n = g_nll + g_smoothed (1 - eps - share),
///   c_a = g_smoothed share
struct LabelSmoothing : torch::autograd::Function<LabelSmoothing> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& logits,
                                                const at::Tensor& targets, double epsilon, int64_t ignore) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const int64_t rows = logits.size(0), words = logits.size(1);
    const double share = epsilon / static_cast<double>(words - 1);
    at::Tensor nll = at::empty({rows}, logits.options()), smoothed = at::empty_like(nll), log_sum = at::empty_like(nll);
    AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "label_smoothing", [&] {
      const scalar_t* x = logits.const_data_ptr<scalar_t>();
      const int64_t* target = targets.const_data_ptr<int64_t>();
      scalar_t *own = nll.mutable_data_ptr<scalar_t>(), *mixed = smoothed.mutable_data_ptr<scalar_t>(),
               *sums = log_sum.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
        std::vector<scalar_t> memory(static_cast<size_t>(words));
        for (int64_t row = begin; row < end; ++row) {
          const scalar_t* from = x + row * words;
          std::copy_n(from, words, memory.data());
          const scalar_t most = add_then_max<scalar_t>(memory.data(), nullptr, words);
          const scalar_t sum = exp_then_sum(memory.data(), words, most);
          sums[row] = most + std::log(sum);
          own[row] = mixed[row] = 0;
          if (target[row] == ignore) continue;
          own[row] = sums[row] - from[target[row]];
          mixed[row] = static_cast<scalar_t>((1.0 - epsilon - share) * static_cast<double>(own[row]) +
                                             share * sum_below(from, words, sums[row]));
        }
      });
    });
    ctx->save_for_backward({logits, targets, log_sum});
    ctx->saved_data["epsilon"] = epsilon;
    ctx->saved_data["ignore"] = ignore;
    return {nll, smoothed};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const at::Tensor &logits = saved[0], &targets = saved[1], &log_sum = saved[2];
    const double epsilon = ctx->saved_data["epsilon"].toDouble();
    const int64_t ignore = ctx->saved_data["ignore"].toInt(), rows = logits.size(0), words = logits.size(1);
    const double share = epsilon / static_cast<double>(words - 1);
    at::Tensor grad = at::empty_like(logits);
    const at::Tensor of_nll = grads[0].contiguous(), of_smoothed = grads[1].contiguous();
    AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "label_smoothing_grad", [&] {
      const scalar_t *x = logits.const_data_ptr<scalar_t>(), *sums = log_sum.const_data_ptr<scalar_t>(),
                     *g_nll = of_nll.const_data_ptr<scalar_t>(), *g_smoothed = of_smoothed.const_data_ptr<scalar_t>();
      const int64_t* target = targets.const_data_ptr<int64_t>();
      scalar_t* to = grad.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          scalar_t* own = to + row * words;
          if (target[row] == ignore) {
            std::fill_n(own, words, scalar_t(0));
            continue;
          }
          std::copy_n(x + row * words, words, own);
          exp_then_sum(own, words, sums[row]);  // p
          const auto c_a = static_cast<scalar_t>(share) * g_smoothed[row];
          const scalar_t c_n = g_nll[row] + static_cast<scalar_t>(1.0 - epsilon - share) * g_smoothed[row];
          const scalar_t factor = c_n + static_cast<scalar_t>(words) * c_a;
          for (int64_t word = 0; word < words; ++word) own[word] = factor * own[word] - c_a;
          own[target[row]] -= c_n;
        }
      });
    });
    return {grad, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// Label smoothing from LibTorch's operations, for other devices and types.
SmoothedLoss label_smoothing_composed(const at::Tensor& logits, const at::Tensor& targets, double epsilon,
                                      int64_t ignore) {
  const at::Tensor p = at::log_softmax(logits, -1);
  const at::Tensor ignored = targets == ignore;
  const at::Tensor index = targets.masked_fill(ignored, 0).unsqueeze(-1);
  const at::Tensor nll = -p.gather(-1, index).squeeze(-1).masked_fill(ignored, 0.0);
  if (epsilon == 0.0) return {nll, nll};
  const double share = epsilon / static_cast<double>(logits.size(-1) - 1);
  return {nll, (1.0 - epsilon - share) * nll + share * (-p.sum(-1)).masked_fill(ignored, 0.0)};
}

}  // namespace

SmoothedLoss label_smoothing(const at::Tensor& logits, const at::Tensor& targets, double epsilon, int64_t ignore) {
  if (logits.size(-1) < 2) epsilon = 0.0;  // there is no other word
  const bool plain = logits.is_cpu() && (logits.scalar_type() == at::kFloat || logits.scalar_type() == at::kDouble);
  if (!plain || epsilon == 0.0) return label_smoothing_composed(logits, targets, epsilon, ignore);
  const auto losses = LabelSmoothing::apply(logits.flatten(0, -2).contiguous(), targets.reshape({-1}).contiguous(),
                                            epsilon, ignore);
  return {losses[0].view(targets.sizes()), losses[1].view(targets.sizes())};
}

}  // namespace mnemo::ops
