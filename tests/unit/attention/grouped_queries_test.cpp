// Grouped queries and rotary positions of softmax attention, also within a window, by definition.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "attention/sliding_window.h"
#include "attention/softmax.h"
#include "base/error.h"
#include "core/kv_state.h"
#include "ops/attention/attention.h"
#include "ops/naive/attention.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::attention {
namespace {

using core::AttendTable;
using core::SpanKind;
using test::difference;
using test::Numbers;

constexpr int64_t kModelWidth = 10, kQueryHeads = 4, kGroups = 2, kHeadWidth = 6;

template <class A>
struct GroupedSubject {
  explicit GroupedSubject(const typename A::Options& options)
      : set(1, at::kDouble),
        attention(options, core::AttentionBuild{set.root() / "attn", set.root() / "layer", set.root(), kModelWidth,
                                                kQueryHeads, kHeadWidth, true, 0.1}) {
    const at::NoGradGuard no_grad;
    Numbers numbers(4);
    for (const auto& [name, tensor] : set.named()) at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.5);
  }
  at::Tensor map(const std::string& name, const at::Tensor& rows) const {
    return at::matmul(rows, set.find("attn." + name + ".weight").t()) + set.find("attn." + name + ".bias");
  }
  at::Tensor heads(const char* name, const at::Tensor& x, int64_t count) const {
    return map(name, x).view({x.size(0), x.size(1), count, kHeadWidth}).transpose(1, 2);
  }
  /// Query head a reads key head a div (H/G) behind the mask [T,T]; with rotary positions each row is turned by its
  /// number.
  at::Tensor expected(const at::Tensor& x, const at::Tensor& mask, bool rotary) const {
    at::Tensor q = heads("q", x, kQueryHeads), k = heads("k", x, kGroups);
    const at::Tensor v = heads("v", x, kGroups);
    const std::vector<double> frequencies = ops::rotary_frequencies(4, 50.0, {});
    if (rotary) q = ops::rotate_naive(q, 0, frequencies), k = ops::rotate_naive(k, 0, frequencies);
    std::vector<at::Tensor> out;
    for (int64_t head = 0; head < kQueryHeads; ++head) {
      const int64_t group = head / (kQueryHeads / kGroups);
      out.push_back(ops::attention_naive(q.narrow(1, head, 1), k.narrow(1, group, 1), v.narrow(1, group, 1), {},
                                         ops::RelShift::none, mask, 1.0 / std::sqrt(1.0 * kHeadWidth)));
    }
    return map("o", at::cat(out, 1).transpose(1, 2).flatten(2));
  }
  layers::ParameterSet set;
  A attention;
};

TEST(GroupedQueries, AreTheFormulaHeadByHead) {
  const AttendTable table({SpanKind::tokens, 7});
  const at::Tensor x = Numbers(1).normal({2, 7, kModelWidth});
  for (const bool rotary : {false, true}) {
    Softmax::Options options;
    options.num_kv_heads = kGroups;
    if (rotary) options.rotary = core::RotaryOptions{.dims = 4, .base = 50.0};
    const GroupedSubject<Softmax> subject(options);
    const at::Tensor found = subject.attention.forward({x, {}, table}, subject.attention.initial_state(2)).y;
    EXPECT_LE(difference(found, subject.expected(x, table.expand(), rotary)), 1e-12) << rotary;
  }
}

TEST(GroupedQueries, InAWindowAreThoseOfTheRowsInIt) {
  SlidingWindow::Options options;
  options.window_size = 4;
  options.num_kv_heads = kGroups;
  options.rotary = core::RotaryOptions{.dims = 4, .base = 50.0};
  const GroupedSubject<SlidingWindow> subject(options);
  const at::Tensor x = Numbers(1).normal({2, 9, kModelWidth});
  const at::Tensor distance = at::arange(9).unsqueeze(1) - at::arange(9);
  const at::Tensor expected = subject.expected(x, at::logical_and(distance >= 0, distance < 4), true);
  const at::Tensor whole = subject.attention
                               .forward({x, {}, AttendTable({SpanKind::tokens, 9})}, subject.attention.initial_state(2))
                               .y;
  EXPECT_LE(difference(whole, expected), 1e-12);

  core::State state = subject.attention.initial_state(2);
  for (int64_t t = 0; t < 9; ++t) {
    AttendTable table({SpanKind::tokens, 1});
    table.append_context({SpanKind::tokens, t}, core::Rule::causal());
    auto step = subject.attention.forward({x.narrow(1, t, 1), {}, table, core::Mode::evaluate, t == 8}, state);
    EXPECT_LE(difference(step.y, expected.narrow(1, t, 1)), 1e-12) << "token " << t;
    state = step.state;
  }
}

TEST(GroupedQueries, HaveSmallerMaps) {
  Softmax::Options options;
  options.num_kv_heads = 1;
  const GroupedSubject<Softmax> subject(options);
  EXPECT_EQ(subject.set.find("attn.q.weight").size(0), kQueryHeads * kHeadWidth);
  EXPECT_EQ(subject.set.find("attn.k.weight").size(0), kHeadWidth);
  EXPECT_EQ(subject.attention.projections()->num_kv_heads, 1);
}

TEST(GroupedQueries, RefuseWhatDoesNotFit) {
  Softmax::Options options;
  options.num_kv_heads = 3;
  test::expect_error<base::InputError>([&] { GroupedSubject<Softmax>{options}; },
                                       {"num_kv_heads", "divisor", "4", "3"});
  options.num_kv_heads.reset();
  options.rotary = core::RotaryOptions{.dims = 8};
  test::expect_error<base::InputError>([&] { GroupedSubject<Softmax>{options}; }, {"rotary.dims", "6", "8"});
}

}  // namespace
}  // namespace mnemo::attention
