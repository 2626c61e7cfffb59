#include "memory/abc.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "memory/abc_control/mlp.h"
#include "ops/naive/abc.h"
#include "tests/support/attention_subject.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::memory::abc_test {
namespace {

using core::AttendTable;
using core::SpanKind;
using test::difference;
using test::Numbers;

using Subject = test::AttentionSubject<Abc>;
constexpr int64_t kDim = 8, kHeads = 2, kWidth = 4;

AbcOptions small() {
  AbcOptions options;
  options.num_slots = 3;
  return options;
}

/// Logits [B,H,T,n] by the rows of W: row h*n + j is slot j of head h.
at::Tensor logits(const Subject& s, const at::Tensor& rows, bool shared) {
  const at::Tensor all = at::matmul(rows, s.of("control.weight").t());
  std::vector<at::Tensor> heads;
  for (int64_t h = 0; h < kHeads; ++h) heads.push_back(all.narrow(-1, shared ? 0 : h * 3, 3));
  return at::stack(heads, 1);
}

TEST(Abc, IsTheRecurrenceOfItsProjections) {
  for (const bool shared : {false, true}) {
    for (const auto scale : {AbcOptions::Scale::sqrt_d, AbcOptions::Scale::none}) {
      AbcOptions options = small();
      options.control.set("shared_across_heads", shared);
      options.scale = scale;
      const Subject s(options, true);
      const at::Tensor x = Numbers(2).normal({2, 5, kDim});
      const AttendTable table({SpanKind::tokens, 5});
      const auto found = s.step({x, {}, table});
      const auto expected = ops::abc_causal_naive(
          s.heads("q", x), s.heads("k", x), s.heads("v", x), logits(s, x, shared),
          ops::abc_empty(2, kHeads, 3, kWidth, ops::AbcActivation::exp, x.options()), {}, ops::AbcActivation::exp, 1e-6,
          options.scale == AbcOptions::Scale::none ? 1.0 : 0.5);
      const at::Tensor y = s.project(expected.o);
      EXPECT_LE(difference(found.y, y), 1e-13);
      EXPECT_LE(difference(found.state.as<AbcState>().k, expected.memory.k), 1e-14);
      EXPECT_LE(difference(found.state.as<AbcState>().z, expected.memory.z), 1e-14);
    }
  }
}

TEST(Abc, LookingBothWaysAndAcrossItHasNoState) {
  const Subject s(small(), false);
  const at::Tensor x = Numbers(2).normal({2, 4, kDim}), encoder = Numbers(3).normal({2, 6, kDim});
  AttendTable table = AttendTable::cross({SpanKind::tokens, 4}, {SpanKind::tokens, 6});
  const at::Tensor valid = at::arange(6).unsqueeze(0) < at::tensor({6, 3}, at::kLong).unsqueeze(1);
  table.set_valid(valid);
  const auto found = s.step({x, encoder, table});
  const at::Tensor o = ops::abc_full(s.heads("q", x), s.heads("k", encoder), s.heads("v", encoder),
                                     logits(s, encoder, false), valid, ops::AbcActivation::exp, 1e-6, 0.5)
                           .o;
  EXPECT_LE(difference(found.y, at::linear(o.transpose(1, 2).flatten(2), s.of("o.weight"), s.of("o.bias"))), 1e-13);
  EXPECT_TRUE(found.state.fields().empty());
  // Nothing written: the bias of o.
  table.set_valid(at::zeros({2, 6}, at::kBool));
  EXPECT_LE(difference(s.attention->forward({x, encoder, table}, {}).y, s.of("o.bias").expand({2, 4, kDim})), 1e-15);
}

TEST(Abc, RefusesWhatItCannotHonour) {
  AbcOptions untied = small();
  untied.control.set("tied_kv", false);
  test::expect_error<base::InputError>([&] { Subject(untied, true); }, {"tied_kv"});
  const Subject s(small(), true);
  const at::Tensor x = Numbers(2).normal({2, 4, kDim});
  test::expect_error<base::InternalError>(
      [&] {
        s.attention->forward({x, {}, AttendTable({SpanKind::tokens, 4}, core::Rule::band(2))},
                             s.attention->initial_state(2));
      },
      {"causal throughout"});
  test::expect_error<base::ShapeError>(
      [&] {
        s.attention->forward({x, {}, AttendTable({SpanKind::tokens, 4})}, s.attention->initial_state(3));
      },
      {"state", "[2,2,3,4]", "[3,2,3,4]"});
}

TEST(Abc, DepthIsThatOfItsOptions) {
  AbcOptions options = small();
  EXPECT_EQ(Subject(options, true).attention->bptt_depth("k"), -1);
  options.bptt_depth = base::Depth{2};
  EXPECT_EQ(Subject(options, true).attention->bptt_depth("k"), 2);
}

}  // namespace
}  // namespace mnemo::memory::abc_test
