#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <optional>

#include "ops/attention/heads.h"
#include "ops/cuda/attention_library.h"
#include "ops/cuda/tensors.h"

namespace mnemo::ops::cuda {

/// attention_by_products() where there are too many scores to be kept for the backward pass: those of a few heads of a
/// few sequences at a time, which the backward pass computes again. First derivatives only.
struct AttentionInParts : torch::autograd::Function<AttentionInParts> {
  using variable_list = torch::autograd::variable_list;
  using Optional = std::optional<at::Tensor>;

  /// q, k, v, u, v, r, scores, and the ranges' valid; their dimensions of sequences and of heads (-1: none).
  static constexpr size_t kTerms = 8;
  using Terms = std::array<at::Tensor, kTerms>;
  static constexpr std::array<int64_t, kTerms> kSequenceDim = {0, 0, 0, -1, -1, -1, 0, 0},
                                               kHeadDim = {1, 1, 1, 0, 0, 1, 1, -1};

  struct Part {
    int64_t sequence, sequences, head, heads;
    at::Tensor of(at::Tensor x, size_t term) const {
      if (!x.defined()) return x;
      if (kSequenceDim[term] >= 0) x = x.narrow(kSequenceDim[term], sequence, sequences);
      return kHeadDim[term] < 0 ? x : x.narrow(kHeadDim[term], head, heads);
    }
  };

  /// f(part) for parts of at most so many scores, or else of one head.
  template <class F>
  static void each_part(const Terms& all, int64_t most, F f) {
    const int64_t batch = all[0].size(0), heads = all[0].size(1), pairs = all[0].size(2) * all[1].size(2);
    const int64_t some_heads = std::clamp<int64_t>(most / pairs, 1, heads),
                  some = std::clamp<int64_t>(most / pairs / heads, 1, batch);
    for (int64_t b = 0; b < batch; b += some) {
      for (int64_t h = 0; h < heads; h += some_heads)
        f(Part{b, std::min(some, batch - b), h, std::min(some_heads, heads - h)});
    }
  }

  static at::Tensor products(const Terms& t, const at::Tensor& offsets, const at::Tensor& bounds, double scale) {
    return attention_by_products(t[0], t[1], t[2], {t[3], t[4], t[5], t[6]}, {t[1].size(2), offsets, bounds, t[7]},
                                 scale);
  }

  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const Optional& u, const Optional& v_bias, const Optional& r,
                            const Optional& scores, const Optional& valid, const at::Tensor& offsets,
                            const at::Tensor& bounds, double scale, int64_t most) {
    auto given = [](const Optional& tensor) { return tensor.value_or(at::Tensor()); };
    const Terms all = {q, k, v, given(u), given(v_bias), given(r), given(scores), given(valid)};
    const at::Tensor o = empty_heads(q, q.size(2), v.size(3));
    each_part(all, most, [&](const Part& part) {
      Terms terms;
      for (size_t i = 0; i < kTerms; ++i) terms[i] = part.of(all[i], i);
      part.of(o, 0).copy_(products(terms, offsets, bounds, scale));
    });
    variable_list saved(all.begin(), all.end());
    saved.insert(saved.end(), {offsets, bounds});
    ctx->save_for_backward(saved);
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["most"] = most;
    return o;
  }

  static variable_list backward(torch::autograd::AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const double scale = ctx->saved_data["scale"].toDouble();
    Terms all, sums;
    std::copy_n(saved.begin(), kTerms, all.begin());
    for (size_t i = 0; i + 1 < kTerms; ++i) {
      if (all[i].defined()) sums[i] = at::zeros(all[i].sizes(), all[i].options().dtype(wide_type(all[i])));
    }
    each_part(all, ctx->saved_data["most"].toInt(), [&](const Part& part) {
      Terms terms;
      variable_list leaves;
      std::vector<size_t> places;
      for (size_t i = 0; i < kTerms; ++i) {
        terms[i] = part.of(all[i], i);
        if (!sums[i].defined()) continue;
        leaves.push_back(terms[i] = terms[i].detach().requires_grad_());
        places.push_back(i);
      }
      const at::AutoGradMode with_graph(true);
      const at::Tensor o = products(terms, saved[kTerms], saved[kTerms + 1], scale);
      const variable_list found = torch::autograd::grad({o}, leaves, {part.of(grads[0], 0)}, std::nullopt, false,
                                                        /*allow_unused=*/true);
      const at::NoGradGuard sum_only;
      for (size_t n = 0; n < places.size(); ++n) {
        if (found[n].defined()) part.of(sums[places[n]], places[n]).add_(found[n]);
      }
    });
    variable_list result(kTerms + 4);
    for (size_t i = 0; i < kTerms; ++i) {
      if (sums[i].defined()) result[i] = sums[i].to(all[i].scalar_type());
    }
    return result;
  }
};

/// Bytes of scores that are kept for the backward pass, or at most made at once, and of those of a part.
inline constexpr int64_t kScoresKept = int64_t{1} << 31, kScoresOfPart = int64_t{1} << 28;

/// Whether a head's scores can be made.
inline bool head_fits(const at::Tensor& q, const KeyRanges& ranges) {
  return ranges.queries() * ranges.keys * static_cast<int64_t>(q.element_size()) <= kScoresKept;
}

/// attention_by_products(), in parts where there are more scores than are kept.
inline at::Tensor attention_of_any_size(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const Positions& positions, const KeyRanges& ranges, double scale,
                                        int64_t kept = kScoresKept, int64_t of_part = kScoresOfPart) {
  const auto size = static_cast<int64_t>(q.element_size());
  if (q.size(0) * q.size(1) * ranges.queries() * ranges.keys * size <= kept)
    return attention_by_products(q, k, v, positions, ranges, scale);
  auto optional = [](const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
  return AttentionInParts::apply(q, k, v, optional(positions.u), optional(positions.v), optional(positions.r),
                                 optional(positions.scores), optional(ranges.valid), ranges.offsets, ranges.bounds,
                                 scale, of_part / size);
}

}  // namespace mnemo::ops::cuda
