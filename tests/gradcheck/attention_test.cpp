// Gradients of the attention operation, against differences and against its naive twin.
#include "ops/attention.h"

#include "tests/gradcheck/check.h"

namespace mnemo::test {
namespace {

using ops::RelShift;

struct Case {
  std::string name;
  int64_t queries, keys, columns;
  RelShift shift;
  int mask;  ///< 0 none, 1 [Q,K], 2 [B,Q,K], 3 [B,Q,K] with queries that have no key
};
std::ostream& operator<<(std::ostream& stream, const Case& one) { return stream << one.name; }

std::vector<Case> cases() {
  std::vector<Case> list;
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{1, 1}, {3, 3}, {3, 5}, {1, 4}, {5, 2}};
  for (const auto& [queries, keys] : sizes) {
    for (int mask = 0; mask < 4; ++mask) {
      const std::string tail = fmt::format("{}_{}_mask{}", queries, keys, mask);
      list.push_back({"none_" + tail, queries, keys, 0, RelShift::none, mask});
      list.push_back({"signed_" + tail, queries, keys, keys + queries - 1, RelShift::signed_, mask});
      if (queries > keys) continue;  // relative attention has every query among its keys
      list.push_back({"signed_left_" + tail, queries, keys, keys, RelShift::signed_, mask});
      list.push_back({"faithful_" + tail, queries, keys, keys, RelShift::faithful, mask});
    }
  }
  return list;
}

class AttentionGradient : public testing::TestWithParam<Case> {};

TEST_P(AttentionGradient, IsThatOfDifferencesAndOfTheNaiveTwin) {
  const Case& one = GetParam();
  Numbers numbers(7);
  const int64_t batch = 2, heads = 2, width = 3;
  at::Tensor q = leaf(numbers, {batch, heads, one.queries, width}), k = leaf(numbers, {batch, heads, one.keys, width}),
             v = leaf(numbers, {batch, heads, one.keys, width}), position, mask;
  Inputs inputs = {{"q", q}, {"k", k}, {"v", v}};
  if (one.columns > 0) {
    position = leaf(numbers, {batch, heads, one.queries, one.columns});
    inputs.emplace_back("position", position);
  }
  if (one.mask == 1) mask = numbers.flags({one.queries, one.keys}, 0.6).index_fill(1, at::tensor({0}, at::kLong), 1);
  if (one.mask == 2) mask = numbers.flags({batch, one.queries, one.keys}, 0.6).index_fill(2, at::tensor({one.keys - 1}, at::kLong), 1);
  if (one.mask == 3) mask = numbers.flags({batch, one.queries, one.keys}, 0.6).index_fill(1, at::tensor({one.queries - 1}, at::kLong), 0);
  const at::Tensor weights = numbers.normal({batch, heads, one.queries, width});
  const auto scalar = [&](auto&& attention) { return (attention(q, k, v, position, one.shift, mask, 0.7) * weights).sum(); };
  expect_gradients([&] { return scalar(ops::attention); }, inputs);
  std::vector<at::Tensor> fast;
  for (const auto& [name, input] : inputs) fast.push_back(input.grad().clone());
  for (auto& [name, input] : inputs) input.mutable_grad() = at::Tensor();
  scalar(ops::attention_naive).backward();
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_LE(difference(fast[i], inputs[i].second.grad()), 1e-13) << inputs[i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionGradient, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mnemo::test
