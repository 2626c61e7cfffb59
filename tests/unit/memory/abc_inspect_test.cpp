// How much of each token reaches a query through the slots, for every control.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "base/node.h"
#include "memory/abc.h"
#include "tests/support/numbers.h"

namespace mnemo::memory::abc_look_test {
namespace {

using core::AttendTable;
using core::SpanKind;
using test::difference;
using test::Numbers;

constexpr int64_t kDim = 8, kHeads = 2, kWidth = 4, kSlots = 3;

struct Subject {
  Subject(const base::Node& control, bool causal, bool masked) : parameters(1, at::kDouble) {
    AbcOptions options;
    options.num_slots = kSlots;
    options.control = control;
    options.mask_empty_slots = masked;
    const layers::Scope root = parameters.root();
    abc = std::make_unique<Abc>(options, core::AttentionBuild{root, root, root, kDim, kHeads, kWidth, causal, 0.3});
    const at::NoGradGuard no_grad;
    Numbers numbers(4);
    for (const auto& [name, tensor] : parameters.named())
      at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.5);
  }
  at::Tensor map(const std::string& name, const at::Tensor& rows) const {
    const at::Tensor y = at::matmul(rows, parameters.find(name + ".weight").t()) + parameters.find(name + ".bias");
    return y.view({rows.size(0), rows.size(1), kHeads, kWidth}).transpose(1, 2);
  }
  at::Tensor values(const at::Tensor& rows) const { return map("v", rows); }
  /// [B,H,T,d] before the output projection.
  at::Tensor heads(const core::AttentionInput& input, const core::State& state) const {
    return abc->heads(input, state).heads.view({input.x.size(0), -1, kHeads, kWidth}).transpose(1, 2);
  }
  layers::ParameterSet parameters;
  std::unique_ptr<Abc> abc;
};

std::vector<base::Node> controls(bool causal) {
  using base::Node;
  std::vector<Node> all = {
      Node::table({{"type", "mlp"}}),        Node::table({{"type", "mlp"}, {"activation", "sigmoid"}}),
      Node::table({{"type", "random"}}),     Node::table({{"type", "linformer"}, {"max_len", 40}}),
      Node::table({{"type", "clustering"}}), Node::table({{"type", "window"}})};
  if (causal)
    all.push_back(Node::table({{"type", "dilated"}}));
  else
    all.push_back(Node::table({{"type", "luna"}}));
  return all;
}

AttendTable table_of(int64_t rows, bool causal) {
  return AttendTable({SpanKind::tokens, rows}, causal ? core::Rule::causal() : core::Rule::all());
}

TEST(AbcLook, WeightsOfValuesAreTheOutput) {
  const at::NoGradGuard no_grad;
  for (const bool causal : {true, false}) {
    for (const base::Node& control : controls(causal)) {
      for (const bool masked : {false, true}) {
        const Subject s(control, causal, masked);
        const at::Tensor x = Numbers(2).normal({2, 7, kDim});  // more tokens than the width of a head
        const AttendTable table = table_of(7, causal);
        const core::AttentionInput input{x, {}, table};
        const core::AttentionView view = s.abc->inspect(input, s.abc->initial_state(2), {});
        const std::string where = base::to_json(control, -1);
        ASSERT_FALSE(view.maps.empty()) << where;
        EXPECT_FALSE(view.maps[0].past.defined()) << where;
        EXPECT_LE(difference(at::matmul(view.maps[0].weights, s.values(x)), s.heads(input, s.abc->initial_state(2))),
                  1e-12)
            << where;
        ASSERT_EQ(view.maps.size(), 2u) << where;
        ASSERT_EQ(view.maps[1].weights.sizes(),
                  at::IntArrayRef({2, kHeads, 7, control.at("type").as_string() == "dilated" ? 2 * kSlots : kSlots}))
            << where;
        if (!causal) {
          // There is no state to compare with, but the queries read K = held^T k as in the formula; clusters are read
          // as means.
          const at::Tensor& held = view.maps[1].weights;
          const at::Tensor filled = held.abs().sum(2, true);  // [B,H,1,n]
          EXPECT_GT(filled.max().item<double>(), 0.0) << where;
          at::Tensor read = held;
          if (control.at("type").as_string() == "clustering") read = held / filled.clamp_min(1.0);
          at::Tensor scores = at::matmul(s.map("q", x),
                                         at::matmul(read.transpose(2, 3), s.map("k", x)).transpose(2, 3)) *
                              0.5;
          if (masked) scores = scores.masked_fill(filled == 0.0, -std::numeric_limits<double>::infinity());
          EXPECT_LE(difference(at::matmul(at::softmax(scores, -1), read.transpose(2, 3)), view.maps[0].weights), 1e-12)
              << where;
          continue;
        }
        // The slots' shares of the tokens reproduce the state.
        at::Tensor v;
        for (const auto& [field, tensor] : s.abc->heads(input, s.abc->initial_state(2)).state.fields()) {
          if (field.path == "v") v = tensor.dim() == 5 ? tensor.flatten(2, 3) : tensor;
        }
        EXPECT_LE(difference(at::matmul(view.maps[1].weights.transpose(2, 3), s.values(x)), v), 1e-12) << where;
      }
    }
  }
}

TEST(AbcLook, WhatIsLeftComesFromEarlierSegments) {
  const at::NoGradGuard no_grad;
  for (const base::Node& control : controls(true)) {
    const Subject s(control, true, true);
    Numbers numbers(3);
    const AttendTable table = table_of(4, true);
    core::State state = s.abc->initial_state(2), history;
    std::vector<at::Tensor> rows;
    for (int i = 0; i < 2; ++i) {
      rows.push_back(numbers.normal({2, 4, kDim}));
      const core::AttentionInput input{rows.back(), {}, table};
      history = s.abc->history(input, state, history);
      state = s.abc->heads(input, state).state;
    }
    rows.push_back(numbers.normal({2, 4, kDim}));
    const core::AttentionView view = s.abc->inspect({rows.back(), {}, table}, state, history);
    // Equals a single segment of all tokens.
    const AttendTable whole = table_of(12, true);
    const at::Tensor all = s.abc->inspect({at::cat(rows, 1), {}, whole}, s.abc->initial_state(2), {})
                               .maps[0]
                               .weights.narrow(2, 8, 4);
    const std::string where = base::to_json(control, -1);
    EXPECT_LE(difference(view.maps[0].weights, all.narrow(3, 8, 4)), 1e-12) << where;
    ASSERT_TRUE(view.maps[0].past.defined());
    EXPECT_LE(difference(view.maps[0].past, all.narrow(3, 0, 8).sum(3)), 1e-12) << where;
  }
}

TEST(AbcLook, SharesOfAnExponentialControlSumToOne) {
  const at::NoGradGuard no_grad;
  const Subject s(base::Node::table({{"type", "mlp"}}), true, false);
  const AttendTable table = table_of(5, true);
  const at::Tensor x = Numbers(5).normal({2, 5, kDim});
  const core::State first = s.abc->heads({x, {}, table}, s.abc->initial_state(2)).state;
  const core::State history = s.abc->history({x, {}, table}, s.abc->initial_state(2), {});
  const core::AttentionView view = s.abc->inspect({x, {}, table}, first, history);
  const at::Tensor sums = view.maps[0].weights.sum(3) + view.maps[0].past;
  EXPECT_LE(difference(sums, at::ones_like(sums)), 1e-12);
  EXPECT_GT(view.maps[0].past.min().item<double>(), 0.0);
}

}  // namespace
}  // namespace mnemo::memory::abc_look_test
