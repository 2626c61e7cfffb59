// Gradients of the attention operation against differences; tests/unit/ops compares with its naive reference.
#include "ops/attention/attention.h"

#include "tests/gradcheck/check.h"

namespace mnemo::test {
namespace {

struct Case {
  std::string name;
  int64_t queries, keys;
  int terms;  ///< 0 none, 1 distances, 2 only distances to the left, 3 position scores
  int mask;   ///< 0 all, 1 some, 2 padding, 3 queries without keys
};
std::ostream& operator<<(std::ostream& stream, const Case& one) { return stream << one.name; }

std::vector<Case> cases() {
  std::vector<Case> list;
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{1, 1}, {3, 3}, {3, 5}, {1, 4}, {5, 2}};
  for (const auto& [queries, keys] : sizes) {
    for (int terms = 0; terms < 4; ++terms) {
      if (terms > 0 && queries > keys) continue;  // in relative attention, every query is among its keys
      for (int mask = 0; mask < 4; ++mask)
        list.push_back({fmt::format("terms{}_{}_{}_mask{}", terms, queries, keys, mask), queries, keys, terms, mask});
    }
  }
  return list;
}

class AttentionGradient : public testing::TestWithParam<Case> {};

TEST_P(AttentionGradient, IsThatOfDifferences) {
  const Case& one = GetParam();
  Numbers numbers(7);
  const int64_t batch = 2, heads = 2, width = 3, columns = one.terms == 2 ? one.keys : one.keys + one.queries - 1;
  at::Tensor q = leaf(numbers, {batch, heads, one.queries, width}), k = leaf(numbers, {batch, heads, one.keys, width}),
             v = leaf(numbers, {batch, heads, one.keys, width});
  Inputs inputs = {{"q", q}, {"k", k}, {"v", v}};
  ops::Positions positions;
  auto term = [&](const char* name, at::IntArrayRef shape) {
    inputs.emplace_back(name, leaf(numbers, shape));
    return inputs.back().second;
  };
  if (one.terms > 0) positions.u = term("u", {heads, width});
  if (one.terms == 1 || one.terms == 2) {
    positions.v = term("v bias", {heads, width});
    positions.r = term("r", {columns, heads, width});
  }
  if (one.terms == 3) positions.scores = term("scores", {batch, heads, one.queries, columns});
  ops::KeyRanges ranges = one.terms == 2 ? ops::KeyRanges::causal(one.queries, one.keys)
                                         : ops::KeyRanges::all(one.queries, one.keys);
  if (one.mask == 1)
    ranges = ops::KeyRanges::from_mask(
        numbers.flags({one.queries, one.keys}, 0.6).index_fill(1, at::tensor({0}, at::kLong), 1));
  if (one.mask == 2) ranges.valid = numbers.flags({batch, one.keys}, 0.6);
  if (one.mask == 3)
    ranges = ops::KeyRanges::from_mask(
        numbers.flags({one.queries, one.keys}, 0.6).index_fill(0, at::tensor({one.queries - 1}, at::kLong), 0));
  const at::Tensor weights = numbers.normal({batch, heads, one.queries, width});
  expect_gradients([&] { return (ops::attention(q, k, v, positions, ranges, 0.7) * weights).sum(); }, inputs);
}

INSTANTIATE_TEST_SUITE_P(All, AttentionGradient, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mnemo::test
