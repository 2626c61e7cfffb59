// The operations on states, on random nested states.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <torch/types.h>

#include <map>
#include <vector>

#include "core/state.h"
#include "tests/property/between.h"
#include "tests/support/numbers.h"
#include "tests/support/run.h"

namespace mnemo::test {
namespace {

using core::State;

/// Three kinds of state: rows of the past, one vector per sequence with the batch in the second dimension, and state
/// that belongs to the model.
struct Rows {
  at::Tensor rows, valid;
  void visit(auto&& f) {
    f("rows", rows, "B M D");
    f("valid", valid, "B M");
  }
};
struct Vector {
  at::Tensor vector, absent;
  void visit(auto&& f) {
    f("vector", vector, "H B");
    f("absent", absent, "B");
  }
};
struct Shared {
  at::Tensor cache;
  void visit(auto&& f) { f("cache", cache, "1 N"); }
};

/// The layout of a random state; the same layout can be filled for any batch.
struct Shape {
  int kind = 0;  ///< 0 rows, 1 vector, 2 shared, 3 list
  std::vector<Shape> children;
};

Shape any_shape(int depth) {
  Shape shape;
  shape.kind = depth == 0 ? between(0, 3) : between(0, 4);
  if (shape.kind == 3) {
    const int count = between(0, 4);
    for (int i = 0; i < count; ++i) shape.children.push_back(any_shape(depth - 1));
  }
  return shape;
}

/// The values depend on the seed; rows of the past have the length `past`.
State fill(const Shape& shape, int64_t batch, int64_t past, Numbers& numbers) {
  switch (shape.kind) {
    case 0:
      return Rows{numbers.normal({batch, past, 2}), numbers.flags({batch, past}, 0.7)};
    case 1:
      return Vector{numbers.normal({3, batch}, at::kFloat), {}};
    case 2:
      return Shared{at::ones({1, 4}, at::kDouble)};
    default:
      break;
  }
  State::Children children;
  for (const Shape& child : shape.children) {
    children.emplace_back("part" + std::to_string(children.size()), fill(child, batch, past, numbers));
  }
  return State::list(std::move(children));
}

struct Any {
  Shape shape;
  int64_t batch, past;
  State state;
};

Any any_state() {
  Any any;
  any.shape = {3, {any_shape(2), any_shape(2), any_shape(1)}};
  any.batch = between<int64_t>(1, 5);
  any.past = between<int64_t>(0, 4);
  Numbers numbers(*rc::gen::arbitrary<uint64_t>());
  any.state = fill(any.shape, any.batch, any.past, numbers);
  return any;
}

at::Tensor any_rows(int64_t batch, int64_t most) {
  const auto rows = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, batch));
  const auto count = std::min(rows.size(), static_cast<size_t>(most));
  return at::tensor(std::vector<int64_t>(rows.begin(), rows.begin() + static_cast<int64_t>(count)), at::kLong);
}

bool same(const State& a, const State& b) { return state_difference(a, b, 0.0).empty(); }

RC_GTEST_PROP(StateProperty, SelectingIsIndexingAndComposes, ()) {
  const Any any = any_state();
  const at::Tensor rows = any_rows(any.batch, 6);
  const State selected = core::select_batch(any.state, rows);
  const auto before = any.state.fields(), after = selected.fields();
  RC_ASSERT(before.size() == after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    const int64_t dim = before[i].first.dim("B");
    const at::Tensor expected = dim < 0 ? before[i].second : before[i].second.index_select(dim, rows);
    RC_ASSERT(at::equal(after[i].second, expected));
  }
  if (rows.numel() > 0) {
    const at::Tensor again = any_rows(rows.numel(), 4);
    RC_ASSERT(same(core::select_batch(selected, again), core::select_batch(any.state, rows.index_select(0, again))));
  }
  RC_ASSERT(same(core::select_batch(any.state, at::arange(any.batch)), any.state));
}

RC_GTEST_PROP(StateProperty, JoiningAndSelectingApartGivesTheParts, ()) {
  const Any any = any_state();
  Numbers numbers(*rc::gen::arbitrary<uint64_t>());
  std::vector<State> states;
  std::vector<int64_t> batches, pasts;
  const int count = between(1, 4);
  int64_t longest = 0;
  for (int i = 0; i < count; ++i) {
    batches.push_back(between<int64_t>(1, 4));
    pasts.push_back(between<int64_t>(0, 4));
    longest = std::max(longest, pasts.back());
    states.push_back(fill(any.shape, batches.back(), pasts.back(), numbers));
  }
  const State joined = core::concat_batch(states);
  int64_t first = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    const State mine = core::select_batch(joined, at::arange(first, first + batches[i]));
    first += batches[i];
    const auto found = mine.fields(), expected = states[i].fields();
    RC_ASSERT(found.size() == expected.size());
    for (size_t f = 0; f < found.size(); ++f) {
      const int64_t past = found[f].first.dim("M");
      at::Tensor tensor = found[f].second;
      if (past >= 0) {
        RC_ASSERT(tensor.size(past) == (count == 1 ? pasts[i] : longest));
        const int64_t padding = tensor.size(past) - pasts[i];
        RC_ASSERT(!tensor.narrow(past, 0, padding).to(at::kBool).any().item<bool>());
        tensor = tensor.narrow(past, padding, pasts[i]);
      }
      RC_ASSERT(at::equal(tensor, expected[f].second));
    }
  }
}

RC_GTEST_PROP(StateProperty, ResettingTakesRowsFromTheInitialState, ()) {
  const Any any = any_state();
  Numbers numbers(*rc::gen::arbitrary<uint64_t>());
  const State initial = fill(any.shape, any.batch, between<int64_t>(0, any.past + 1), numbers);
  const at::Tensor rows = numbers.flags({any.batch}, 0.5);
  const State found = core::reset_rows(any.state, rows, initial);
  for (int64_t row = 0; row < any.batch; ++row) {
    const at::Tensor only = at::tensor({row}, at::kLong);
    const State mine = core::select_batch(found, only);
    if (!rows[row].item<bool>()) {
      RC_ASSERT(same(mine, core::select_batch(any.state, only)));
      continue;
    }
    const State fresh = core::select_batch(initial, only);
    const auto got = mine.fields(), wanted = fresh.fields();
    for (size_t f = 0; f < got.size(); ++f) {
      const int64_t past = got[f].first.dim("M");
      at::Tensor tensor = got[f].second;
      if (past >= 0) {
        const int64_t padding = tensor.size(past) - wanted[f].second.size(past);
        RC_ASSERT(!tensor.narrow(past, 0, padding).to(at::kBool).any().item<bool>());
        tensor = tensor.narrow(past, padding, wanted[f].second.size(past));
      }
      RC_ASSERT(at::equal(tensor, wanted[f].second));
    }
  }
}

RC_GTEST_PROP(StateProperty, SavingAndLoadingGivesTheSameState, ()) {
  const Any any = any_state();
  std::map<std::string, at::Tensor> file;
  for (const auto& [name, tensor] : core::save(any.state)) {
    RC_ASSERT(tensor.is_contiguous());
    RC_ASSERT(file.emplace(name, tensor).second);
  }
  const auto find = [&](const std::string& name) {
    const auto found = file.find(name);
    return found == file.end() ? at::Tensor() : found->second;
  };
  // The pattern may have a different batch and a different past.
  Numbers numbers(3);
  const State like = fill(any.shape, between<int64_t>(1, 4), between<int64_t>(0, 4), numbers);
  RC_ASSERT(same(core::load(like, find), any.state));
  if (!file.empty()) {
    file.erase(file.begin());
    RC_ASSERT_THROWS(core::load(like, find));
  }
}

RC_GTEST_PROP(StateProperty, CopiesAreCopiesAndBytesAreCounted, ()) {
  const Any any = any_state();
  const State copy = core::clone(any.state), cut = core::detach(any.state);
  RC_ASSERT(same(copy, any.state));
  RC_ASSERT(same(cut, any.state));
  int64_t sequence = 0, model = 0;
  for (const auto& [field, tensor] : any.state.fields()) {
    (field.per_sequence() ? sequence : model) += tensor.numel() * static_cast<int64_t>(tensor.element_size());
  }
  RC_ASSERT(core::num_bytes(any.state, core::Lifetime::sequence) == sequence);
  RC_ASSERT(core::num_bytes(any.state, core::Lifetime::model) == model);
  RC_ASSERT(core::num_bytes(any.state) == sequence + model);
  const State three = core::select_batch(any.state, at::arange(any.batch).repeat_interleave(3));
  RC_ASSERT(core::num_bytes(three, core::Lifetime::sequence) == 3 * sequence);
  // A clone shares nothing: changing it does not affect the original.
  for (const auto& [field, tensor] : copy.fields()) tensor.zero_();
  for (const auto& [field, tensor] : any.state.fields()) {
    RC_ASSERT(field.per_sequence() || tensor.sum().item<double>() == 4.0);
  }
  RC_ASSERT(same(cut, any.state));
  for (const auto& [field, tensor] : core::to(any.state, at::kFloat, at::kCPU).fields()) {
    RC_ASSERT(tensor.scalar_type() == (field.path.ends_with("valid") ? at::kBool : at::kFloat));
  }
}

RC_GTEST_PROP(StateProperty, DetachingCutsTheGraphAndSelectingKeepsIt, ()) {
  const Any any = any_state();
  const State leaves = any.state.map([](const core::Field&, const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.clone().set_requires_grad(true) : tensor;
  });
  for (const auto& [field, tensor] : core::detach(leaves).fields()) RC_ASSERT(!tensor.requires_grad());
  const State kept = core::select_batch(leaves, at::arange(any.batch).repeat_interleave(2));
  for (const auto& [field, tensor] : kept.fields()) RC_ASSERT(tensor.requires_grad() == tensor.is_floating_point());
}

}  // namespace
}  // namespace mnemo::test
