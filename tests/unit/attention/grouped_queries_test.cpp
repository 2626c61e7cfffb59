// Grouped queries and rotary positions of softmax attention, by definition.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "attention/softmax.h"
#include "base/error.h"
#include "core/kv_state.h"
#include "ops/attention/attention.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::attention {
namespace {

using core::AttendTable;
using core::SpanKind;
using test::difference;
using test::Numbers;

constexpr int64_t kModelWidth = 10, kQueryHeads = 4, kGroups = 2, kHeadWidth = 6;

struct GroupedSubject {
  explicit GroupedSubject(const Softmax::Options& options)
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
  layers::ParameterSet set;
  Softmax attention;
};

// Query head a reads key head a div (H/G); each row is turned by its number.
TEST(GroupedQueries, AreTheFormulaHeadByHead) {
  for (const bool rotary : {false, true}) {
    Softmax::Options options;
    options.num_kv_heads = kGroups;
    if (rotary) options.rotary = RotaryOptions{.dims = 4, .base = 50.0};
    const GroupedSubject subject(options);
    const int64_t rows = 7;
    const at::Tensor x = Numbers(1).normal({2, rows, kModelWidth});
    const AttendTable table({SpanKind::tokens, rows});
    const at::Tensor found = subject.attention.forward({x, {}, table}, subject.attention.initial_state(2)).y;
    const std::vector<double> frequencies = ops::rotary_frequencies(4, 50.0, {});
    const auto heads = [&](const char* name, int64_t count) {
      return subject.map(name, x).view({2, rows, count, kHeadWidth}).transpose(1, 2);
    };
    at::Tensor q = heads("q", kQueryHeads), k = heads("k", kGroups);
    const at::Tensor v = heads("v", kGroups);
    if (rotary) q = ops::rotate_naive(q, 0, frequencies), k = ops::rotate_naive(k, 0, frequencies);
    std::vector<at::Tensor> out;
    for (int64_t head = 0; head < kQueryHeads; ++head) {
      const int64_t group = head / (kQueryHeads / kGroups);
      out.push_back(ops::attention_naive(q.narrow(1, head, 1), k.narrow(1, group, 1), v.narrow(1, group, 1), {},
                                         ops::RelShift::none, table.expand(), 1.0 / std::sqrt(1.0 * kHeadWidth)));
    }
    const at::Tensor expected = subject.map("o", at::cat(out, 1).transpose(1, 2).flatten(2));
    EXPECT_LE(difference(found, expected), 1e-12) << rotary;
  }
}

TEST(GroupedQueries, HaveSmallerMaps) {
  Softmax::Options options;
  options.num_kv_heads = 1;
  const GroupedSubject subject(options);
  EXPECT_EQ(subject.set.find("attn.q.weight").size(0), kQueryHeads * kHeadWidth);
  EXPECT_EQ(subject.set.find("attn.k.weight").size(0), kHeadWidth);
  EXPECT_EQ(subject.attention.projections()->num_kv_heads, 1);
}

TEST(GroupedQueries, RefuseWhatDoesNotFit) {
  Softmax::Options options;
  options.num_kv_heads = 3;
  test::expect_error<base::InputError>([&] { GroupedSubject{options}; }, {"num_kv_heads", "divisor", "4", "3"});
  options.num_kv_heads.reset();
  options.rotary = RotaryOptions{.dims = 8};
  test::expect_error<base::InputError>([&] { GroupedSubject{options}; }, {"rotary.dims", "6", "8"});
}

}  // namespace
}  // namespace mnemo::attention
