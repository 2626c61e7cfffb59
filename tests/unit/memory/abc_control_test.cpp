// Every control of ABC: outputs, padding, splits, limits and errors. The conformance suite checks the laws on
// whole models.
#include "memory/abc_control/control.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <ostream>

#include "base/error.h"
#include "memory/abc.h"
#include "memory/abc_control/sums.h"
#include "ops/abc/abc_slots.h"
#include "ops/attention/attention.h"
#include "ops/naive/abc.h"
#include "ops/naive/attention.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::memory::abc_control_test {
namespace {

using core::AttendTable;
using core::SpanKind;
using test::difference;
using test::Numbers;

constexpr int64_t kDim = 8, kHeads = 2, kWidth = 4;

struct Control {
  std::string name, toml;  ///< the options of an ABC
};
std::ostream& operator<<(std::ostream& stream, const Control& control) { return stream << control.name; }

AbcOptions options_of(const std::string& toml) {
  return base::read_options<AbcOptions>(base::parse_toml(toml, "test"));
}

struct Subject {
  explicit Subject(const std::string& toml, bool causal = true, int64_t layer = 0) : parameters(1, at::kDouble) {
    const layers::Scope root = parameters.root();
    abc = std::make_unique<Abc>(options_of(toml),
                                core::AttentionBuild{root, root, root, kDim, kHeads, kWidth, causal, 0.3, layer});
    const at::NoGradGuard no_grad;
    Numbers numbers(4);
    for (const auto& [name, tensor] : parameters.named())
      at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.5);
  }
  core::AttentionResult run(const at::Tensor& x, const core::State& state, const at::Tensor& valid = {},
                            const at::Tensor& slot_index = {}) const {
    AttendTable table({SpanKind::tokens, x.size(1)}, causal() ? core::Rule::causal() : core::Rule::all());
    if (valid.defined()) table.set_valid(valid);
    const core::AttentionInput input{x, {}, table};
    return slot_index.defined() ? abc->forward_assigned(input, state, slot_index) : abc->forward(input, state);
  }
  core::AttentionResult run(const at::Tensor& x) const { return run(x, abc->initial_state(x.size(0))); }
  at::Tensor heads(const std::string& name, const at::Tensor& rows) const {
    const at::Tensor out = at::linear(rows, parameters.find(name + ".weight"), parameters.find(name + ".bias"));
    return out.view({rows.size(0), rows.size(1), kHeads, kWidth}).transpose(1, 2);
  }
  /// Softmax attention with the same projections under a mask [T,T].
  at::Tensor softmax(const at::Tensor& x, const at::Tensor& mask) const {
    const at::Tensor o = ops::attention_naive(heads("q", x), heads("k", x), heads("v", x), {}, ops::RelShift::none,
                                              mask, 0.5);
    return at::linear(o.transpose(1, 2).flatten(2), parameters.find("o.weight"), parameters.find("o.bias"));
  }
  bool causal() const { return abc->support().keeps_state; }
  layers::ParameterSet parameters;
  std::unique_ptr<Abc> abc;
};

/// Each control with unmasked and with masked empty slots.
std::vector<Control> causal_controls() {
  const std::vector<std::pair<std::string, std::string>> plain = {
      {"mlp_exp", "num_slots = 3\ncontrol = { type = \"mlp\" }"},
      {"mlp_relu", "num_slots = 3\ncontrol = { type = \"mlp\", activation = \"relu\" }"},
      {"mlp_sigmoid_shared",
       "num_slots = 3\ncontrol = { type = \"mlp\", activation = \"sigmoid\", shared_across_heads = true }"},
      {"random", "num_slots = 4\ncontrol = { type = \"random\", seed = 5 }"},
      {"identity", "num_slots = 80\ncontrol = \"identity\""},
      {"linformer", "num_slots = 3\ncontrol = { type = \"linformer\", max_len = 80 }"},
      {"clustering", "num_slots = 3\ncontrol = \"clustering\""},
      {"window", "num_slots = 4\ncontrol = \"window\""},
      {"dilated", "num_slots = 3\ncontrol = \"dilated\""},
      {"local_to_global", "num_slots = 3\ncontrol = { type = \"local_to_global\", global_positions = [1, 4, 5] }"},
      {"compressive", "num_slots = 30\ncontrol = { type = \"compressive\", compression = 3 }"}};
  std::vector<Control> all;
  for (const auto& [name, toml] : plain) {
    all.push_back({name, toml});
    all.push_back({name + "_masked", "mask_empty_slots = true\n" + toml});
  }
  return all;
}

void expect_same_state(const core::State& found, const core::State& expected, double tolerance,
                       const std::string& what) {
  const auto a = found.fields(), b = expected.fields();
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].first.path, b[i].first.path) << what;
    EXPECT_LE(difference(a[i].second, b[i].second), tolerance) << what << " " << a[i].first.path;
  }
}

class CausalControl : public testing::TestWithParam<Control> {};
INSTANTIATE_TEST_SUITE_P(All, CausalControl, testing::ValuesIn(causal_controls()),
                         [](const auto& info) { return info.param.name; });

TEST_P(CausalControl, AnySplitIsTheWhole) {
  const Subject s(GetParam().toml);
  const at::NoGradGuard no_grad;
  const int64_t tokens = 70;
  const at::Tensor x = Numbers(2).normal({2, tokens, kDim});
  const auto whole = s.run(x);
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{1, 69}, {3, 5, 62}, {64, 6}, std::vector<int64_t>(70, 1)}) {
    core::State state = s.abc->initial_state(2);
    std::vector<at::Tensor> y;
    int64_t done = 0;
    for (const int64_t length : lengths) {
      auto part = s.run(x.narrow(1, done, length), state);
      y.push_back(part.y);
      state = part.state;
      done += length;
    }
    EXPECT_LE(difference(at::cat(y, 1), whole.y), 1e-12);
    expect_same_state(state, whole.state, 1e-12, "split");
  }
}

// On the left, in the middle, on the right, and only padding.
TEST_P(CausalControl, PaddingIsAsGoodAsNone) {
  const Subject s(GetParam().toml);
  const at::NoGradGuard no_grad;
  Numbers numbers(2);
  const at::Tensor x = numbers.normal({5, 9, kDim}), before = numbers.normal({5, 3, kDim});
  const at::Tensor valid = at::tensor({1, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                       0, 0, 0, 1, 1, 1, 1, 1, 1,  //
                                       1, 1, 0, 0, 1, 0, 1, 1, 1,  //
                                       1, 1, 1, 1, 0, 0, 0, 0, 0,  //
                                       0, 0, 0, 0, 0, 0, 0, 0, 0})
                               .view({5, 9})
                               .to(at::kBool);
  for (const core::State& start : {s.abc->initial_state(5), s.run(before).state}) {
    const auto found = s.run(x, start, valid);
    for (int64_t row = 0; row < 5; ++row) {
      const at::Tensor only = at::tensor({row}, at::kLong), real = valid[row].nonzero().squeeze(-1);
      const core::State own = core::select_batch(start, only);
      if (real.numel() == 0) {
        expect_same_state(core::select_batch(found.state, only), own, 0.0, "padding alone");
        continue;
      }
      const auto alone = s.run(x.narrow(0, row, 1).index_select(1, real), own);
      EXPECT_LE(difference(found.y.narrow(0, row, 1).index_select(1, real), alone.y), 1e-13) << row;
      expect_same_state(core::select_batch(found.state, only), alone.state, 1e-13, fmt::format("row {}", row));
      // A padding query reads the memory as it is: like the same row after the tokens before it.
      for (int64_t t = 0; t < 9; ++t) {
        if (valid[row][t].item<bool>()) continue;
        const at::Tensor upto = valid.narrow(0, row, 1).narrow(1, 0, t + 1);
        EXPECT_LE(difference(found.y[row][t], s.run(x.narrow(0, row, 1).narrow(1, 0, t + 1), own, upto).y[0][t]), 1e-13)
            << row << "," << t;
      }
    }
  }
}

TEST_P(CausalControl, NothingDependsOnLaterTokensNotEvenInItsLastBit) {
  const Subject s(GetParam().toml);
  const at::NoGradGuard no_grad;
  const at::Tensor x = Numbers(2).normal({1, 70, kDim});
  const at::Tensor expected = s.run(x).y;
  for (const int64_t changed : {1, 3, 63, 64, 69}) {
    at::Tensor other = x.clone();
    other.narrow(1, changed, 70 - changed) += 0.5;
    EXPECT_EQ(difference(s.run(other).y.narrow(1, 0, changed), expected.narrow(1, 0, changed)), 0.0) << changed;
  }
}

TEST_P(CausalControl, AStateOfAnotherShapeIsRefused) {
  const Subject s(GetParam().toml), more("num_slots = 7");
  const at::Tensor x = Numbers(2).normal({2, 4, kDim});
  test::expect_error<base::ShapeError>([&] { s.run(x, s.abc->initial_state(3)); }, {"state"});
  test::expect_error<base::InputError>([&] { s.run(x, more.abc->initial_state(2)); }, {"state"});
}

/// mask [T,T], true = may attend, from a rule of query and key.
at::Tensor mask_of(int64_t tokens, const std::function<bool(int64_t, int64_t)>& sees) {
  at::Tensor mask = at::zeros({tokens, tokens}, at::kBool);
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t j = 0; j < tokens; ++j) mask[i][j].fill_(sees(i, j));
  }
  return mask;
}

// Law 3: with empty slots masked, these are softmax attention under a mask; the literal formula is not.
TEST(AbcControl, MaskedControlsAreSoftmaxAttention) {
  struct Case {
    std::string toml;
    std::function<bool(int64_t, int64_t)> sees;
  };
  for (const Case& one : std::vector<Case>{
           {"num_slots = 9\ncontrol = \"identity\"", [](int64_t i, int64_t j) { return j <= i; }},
           {"num_slots = 9\ncontrol = { type = \"compressive\", compression = 1 }",
            [](int64_t i, int64_t j) { return j <= i; }},
           {"num_slots = 4\ncontrol = \"window\"", [](int64_t i, int64_t j) { return j <= i && j > i - 4; }},
           {"num_slots = 3\ncontrol = \"dilated\"",
            [](int64_t i, int64_t j) { return j <= i && j > i - 6 && (i - j) % 2 == 0; }},
           {"num_slots = 3\ncontrol = { type = \"local_to_global\", global_positions = [4, 0, 5] }",
            [](int64_t i, int64_t j) { return j <= i && (j == 0 || j == 4 || j == 5); }}}) {
    const at::Tensor x = Numbers(2).normal({2, 9, kDim});
    const Subject masked("mask_empty_slots = true\n" + one.toml), literal(one.toml);
    const at::Tensor expected = masked.softmax(x, mask_of(9, one.sees));
    EXPECT_LE(difference(masked.run(x).y, expected), 1e-13) << one.toml;
    EXPECT_GT(difference(literal.run(x).y, expected), 1e-3) << one.toml;
  }
  const Subject both_ways("num_slots = 9\ncontrol = \"identity\"", false);
  const at::Tensor x = Numbers(2).normal({2, 9, kDim});
  EXPECT_LE(difference(both_ways.run(x).y, both_ways.softmax(x, at::ones({9, 9}, at::kBool))), 1e-13);
}

TEST(AbcControl, RandomAndClusteringAssignByTheirStatedRules) {
  const at::Tensor x = Numbers(2).normal({2, 9, kDim});
  const Subject drawn("num_slots = 4\ncontrol = { type = \"random\", seed = 5 }", true, 3);
  const at::Tensor slots = ops::random_slots(at::arange(9, at::kLong), 4, 5, 3).expand({2, 9});
  EXPECT_EQ(difference(drawn.run(x, drawn.abc->initial_state(2), {}, slots).y, drawn.run(x).y), 0.0);
  EXPECT_GT(difference(drawn.run(x, drawn.abc->initial_state(2), {}, at::zeros_like(slots)).y, drawn.run(x).y), 1e-3);

  for (const bool causal : {true, false}) {
    const Subject clusters("num_slots = 3\ncontrol = \"clustering\"", causal);
    const at::Tensor keys = clusters.heads("k", x).transpose(1, 2).flatten(2);
    const at::Tensor found = ops::nearest_means_naive(keys, at::zeros({2, 3, kDim}, at::kDouble),
                                                      at::zeros({2, 3}, at::kDouble), {});
    EXPECT_EQ(difference(clusters.run(x, clusters.abc->initial_state(2), {}, found).y, clusters.run(x).y), 0.0);
    EXPECT_GT(
        difference(clusters.run(x, clusters.abc->initial_state(2), {}, at::zeros_like(found)).y, clusters.run(x).y),
        1e-3);
  }
  // A state continues with its clusters.
  const Subject clusters("num_slots = 3\ncontrol = \"clustering\"");
  const core::State state = clusters.run(x.narrow(1, 0, 5)).state;
  EXPECT_EQ(state.as<AbcSlots>().z.sum().item<double>(), 10.0);
}

// Bidirectional: the memory after all tokens, without padding, and no state.
TEST(AbcControl, LookingBothWaysPaddingIsAsGoodAsNone) {
  for (const Control& control : causal_controls()) {
    if (control.name.starts_with("dilated")) continue;
    const Subject s(control.toml, false);
    const at::Tensor x = Numbers(2).normal({2, 9, kDim});
    const at::Tensor
        valid = at::tensor({1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0}).view({2, 9}).to(at::kBool);
    const at::Tensor real = valid[1].nonzero().squeeze(-1);
    const auto found = s.run(x, s.abc->initial_state(2), valid);
    EXPECT_LE(difference(found.y.narrow(0, 0, 1), s.run(x.narrow(0, 0, 1)).y), 1e-13) << control.name;
    EXPECT_LE(
        difference(found.y.narrow(0, 1, 1).index_select(1, real), s.run(x.narrow(0, 1, 1).index_select(1, real)).y),
        1e-13)
        << control.name;
    EXPECT_TRUE(found.state.fields().empty()) << control.name;
    // Only padding: the bias of o. For a literal formula too, since V is zero.
    const auto nothing = s.run(x, s.abc->initial_state(2), at::zeros({2, 9}, at::kBool));
    EXPECT_LE(difference(nothing.y, s.parameters.find("o.bias").expand({2, 9, kDim})), 1e-15) << control.name;
  }
}

TEST(AbcControl, LunaHandsItsSlotsOn) {
  const at::Tensor x = Numbers(2).normal({2, 6, kDim});
  const Subject lowest("num_slots = 3\ncontrol = \"luna\"", false),
      above("num_slots = 3\ncontrol = \"luna\"", false, 1);
  for (const Subject* one : {&lowest, &above}) EXPECT_TRUE(one->parameters.find("control.slots").defined());
  const auto first = lowest.run(x);
  ASSERT_EQ(first.to_above.sizes(), at::IntArrayRef({2, 3, kDim}));
  const AttendTable table({SpanKind::tokens, 6}, core::Rule::all());
  const auto second = above.abc->forward({x, {}, table, core::Mode::evaluate, true, first.to_above}, {});
  second.y.sum().backward();
  EXPECT_GT(test::largest(lowest.parameters.find("control.slots").grad()), 0.0);
  EXPECT_FALSE(above.parameters.find("control.slots").grad().defined());
  // If layer drop skips the layers below, a higher one starts from the learned slots too.
  EXPECT_LE(difference(above.run(x).y, lowest.run(x).y), 0.0);
  test::expect_error<base::InputError>(
      [&] {
        above.abc->forward({x, {}, table, core::Mode::evaluate, true, first.to_above.narrow(1, 0, 2)}, {});
      },
      {"luna", "[2,3,8]"});
}

TEST(AbcControl, LayersShareWhatIsTied) {
  for (const char* control : {"\"mlp\"", "{ type = \"linformer\", max_len = 9 }"}) {
    for (const bool tied : {false, true}) {
      layers::ParameterSet parameters(1, at::kDouble);
      const layers::Scope root = parameters.root();
      const AbcOptions options = options_of(
          fmt::format("num_slots = 3\ntied_across_layers = {}\ncontrol = {}", tied, control));
      for (const int64_t layer : {0, 1}) {
        for (const char* attention : {"attn", "cross"}) {
          const Abc made(options, {root / "layers" / layer / attention, root / "layers" / layer, root, kDim, kHeads,
                                   kWidth, true, 0.3, layer});
        }
      }
      for (const char* name : {"attn_control.weight", "cross_control.weight"})
        EXPECT_EQ(parameters.find(name).defined(), tied) << name;
      for (const char* name : {"layers.0.attn.control.weight", "layers.1.cross.control.weight"})
        EXPECT_NE(parameters.find(name).defined(), tied) << name;
    }
  }
}

TEST(AbcControl, LimitsAreNamed) {
  const at::Tensor x = Numbers(2).normal({1, 7, kDim});
  const Subject linformer("control = { type = \"linformer\", max_len = 6 }");
  test::expect_error<base::InputError>([&] { linformer.run(x); },
                                       {"linformer", "at most 6 tokens", "control.max_len", "number 7"});
  const core::State five = linformer.run(x.narrow(1, 0, 5)).state;
  EXPECT_NO_THROW(linformer.run(x.narrow(1, 0, 1), five));
  test::expect_error<base::InputError>([&] { linformer.run(x.narrow(1, 0, 2), five); },
                                       {"linformer", "at most 6 tokens", "number 7"});
  // Padding does not count.
  const at::Tensor valid = at::tensor({1, 1, 1, 1, 1, 1, 0}).view({1, 7}).to(at::kBool);
  EXPECT_NO_THROW(linformer.run(x, linformer.abc->initial_state(1), valid));
  const Subject both_ways("control = { type = \"linformer\", max_len = 6 }", false);
  test::expect_error<base::InputError>([&] { both_ways.run(x); }, {"at most 6 tokens"});
  test::expect_error<base::InputError>([&] { Subject("num_slots = 6\ncontrol = \"identity\"").run(x); },
                                       {"identity", "at most 6 tokens", "num_slots"});
  test::expect_error<base::InputError>(
      [&] { Subject("num_slots = 3\ncontrol = { type = \"compressive\", compression = 2 }").run(x); },
      {"compressive", "at most 6 tokens", "num_slots * control.compression"});
}

TEST(AbcControl, OptionsThatCannotBeHonouredAreRefused) {
  const auto refuse = [](const std::string& toml, bool causal, std::initializer_list<std::string> parts) {
    test::expect_error<base::InputError>([&] { Subject(toml, causal); }, parts);
  };
  refuse("num_slots = 0", true, {"num_slots", "1 to 65536", "0"});
  refuse("control = \"luna\"", true, {"luna", "causal", "mlp"});
  refuse("control = \"dilated\"", false, {"dilated", "causal"});
  refuse("num_slots = 3\ncontrol = { type = \"local_to_global\", global_positions = [1, 2] }", true,
         {"global_positions", "num_slots = 3", "2"});
  refuse("tied_across_layers = true\ncontrol = \"window\"", true, {"tied_across_layers", "window", "no parameters"});
  refuse("control = { type = \"random\", activation = \"exp\" }", true, {"unknown key", "control.activation"});
  refuse("control = { type = \"linformer\", max_length = 6 }", true, {"max_length", "max_len"});
  refuse("control = \"windows\"", true, {"windows", "window"});
  refuse("control = { type = \"compressive\", compression = 0 }", true, {"compression", "0"});

  const at::Tensor x = Numbers(2).normal({2, 4, kDim}),
                   slots = at::tensor(std::vector<int64_t>{0, 1, 2, 3, 3, 2, 1, 0}, at::kLong).view({2, 4});
  const Subject window("num_slots = 4\ncontrol = \"window\""), random("num_slots = 4\ncontrol = \"random\""),
      few("num_slots = 3\ncontrol = \"clustering\"");
  test::expect_error<base::InputError>([&] { window.run(x, window.abc->initial_state(2), {}, slots); },
                                       {"window", "slot_index"});
  test::expect_error<base::InputError>([&] { random.run(x, random.abc->initial_state(2), {}, slots.narrow(1, 0, 3)); },
                                       {"slot_index", "[2,4]"});
  test::expect_error<base::InputError>([&] { few.run(x, few.abc->initial_state(2), {}, slots); },
                                       {"clustering", "0 to 2", "3"});
}

// Bounded: none of the states grows, and the number of bytes is as declared.
TEST_P(CausalControl, TheStateDoesNotGrow) {
  const Subject s(GetParam().toml);
  const at::NoGradGuard no_grad;
  const core::State start = s.abc->initial_state(2);
  EXPECT_EQ(core::num_bytes(s.run(Numbers(2).normal({2, 40, kDim}), start).state), core::num_bytes(start));
}

}  // namespace
}  // namespace mnemo::memory::abc_control_test
