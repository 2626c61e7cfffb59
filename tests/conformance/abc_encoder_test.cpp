// ABC in an encoder: every bidirectional control, in a whole model.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "tests/support/configurations.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/run.h"

namespace mnemo::test::abc_encoder_test {
namespace {

const std::string kControl = "backbone.attention.control.";

Configuration encoder(const std::string& control, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"kind=layer_stack", "backbone.type=encoder", "backbone.attention.type=abc",
                             "backbone.attention.num_slots=5", kControl + "type=" + control});
  return configuration(control, more);
}

std::vector<Configuration> encoders() {
  return {encoder("mlp"),
          encoder("mlp", {kControl + "activation=relu", "backbone.attention.tied_across_layers=true"}),
          encoder("random"),
          encoder("linformer", {kControl + "max_len=9"}),
          encoder("clustering"),
          encoder("window"),
          encoder("local_to_global", {kControl + "global_positions=[0,2,3,4,8]"}),
          encoder("compressive", {kControl + "compression=2"}),
          encoder("luna"),
          encoder("luna", {"backbone.attention.tied_across_layers=true"}),
          encoder("identity", {"backbone.attention.num_slots=9", "backbone.attention.mask_empty_slots=true"})};
}

TEST(AbcEncoder, PaddingIsAsGoodAsNoneAndEveryTokenSeesLaterOnes) {
  for (const Configuration& one : encoders()) {
    SCOPED_TRACE(one.name);
    const auto model = make_model(one.options);
    const at::NoGradGuard no_grad;
    const at::Tensor rows = Numbers(3).normal({3, 9, 8});
    const at::Tensor lengths = at::tensor(std::vector<int64_t>{9, 5, 1}, at::kLong),
                     valid = at::arange(9).unsqueeze(0) < lengths.unsqueeze(1);
    const Outcome found = run(*model, rows, whole(9), model->initial_state(3), core::Mode::evaluate, valid);
    for (int64_t row = 0; row < 3; ++row) {
      const int64_t real = lengths[row].item<int64_t>();
      const Outcome alone = run(*model, rows.narrow(0, row, 1).narrow(1, 0, real), whole(real),
                                model->initial_state(1));
      EXPECT_LE(difference(found.hidden.narrow(0, row, 1).narrow(1, 0, real), alone.hidden), 1e-12) << row;
    }
    at::Tensor other = rows.clone();
    other.select(1, 8) += 1.0;
    EXPECT_GT(difference(run(*model, other, whole(9), model->initial_state(3)).hidden.select(1, 4),
                         run(*model, rows, whole(9), model->initial_state(3)).hidden.select(1, 4)),
              1e-6);
  }
}

TEST(AbcEncoder, LunaStartsFromLearnedSlotsThatEveryLayerMoves) {
  const auto model = make_model(encoder("luna").options);
  const layers::ParameterSet& parameters = model->parameters();
  ASSERT_EQ(parameters.find("backbone.attn_control.slots").sizes(), at::IntArrayRef({5, 8}));
  const at::Tensor rows = Numbers(3).normal({2, 9, 8});
  run(*model, rows, whole(9), model->initial_state(2)).hidden.square().sum().backward();
  for (const char* name : {"attn_control.slots", "layers.0.attn.control.q.weight", "layers.1.attn.control.q.weight",
                           "layers.1.attn.control.k.weight"}) {
    EXPECT_GT(largest(parameters.find(std::string("backbone.") + name).grad()), 1e-6) << name;
  }
  const auto wide = encoder("luna", {"backbone.head_dim=3"});
  expect_error<base::InputError>([&] { make_model(wide.options); }, {"luna", "num_heads * head_dim", "6"});
}

TEST(AbcEncoder, LunaStartsFromTheLowestLayerThatIsNotPassedBy) {
  const auto model = make_model(encoder("luna", {"backbone.layer_drop=0.5"}).options);
  ASSERT_EQ(model->parameters().find("backbone.attn_control.slots").sizes(), at::IntArrayRef({5, 8}));
  const at::Tensor rows = Numbers(3).normal({2, 9, 8});
  at::manual_seed(1);
  int64_t without_the_lowest = 0;
  for (int i = 0; i < 20; ++i) {
    model->parameters().zero_grad();
    const at::Tensor hidden = run(*model, rows, whole(9), model->initial_state(2), core::Mode::train).hidden;
    if (!hidden.requires_grad()) continue;  // both layers were dropped
    hidden.square().sum().backward();
    EXPECT_GT(largest(model->parameters().find("backbone.attn_control.slots").grad()), 1e-6);
    without_the_lowest += model->parameters().find("backbone.layers.0.attn.q.weight").grad().defined() ? 0 : 1;
  }
  EXPECT_GT(without_the_lowest, 0);
}

TEST(AbcEncoder, ADecoderRefusesWhatSeesTheFutureAndAnEncoderWhatNeedsAPlace) {
  expect_error<base::InputError>(
      [] {
        make_model(configuration("luna", {"backbone.attention.type=abc", kControl + "type=luna"}).options);
      },
      {"luna", "causal"});
  expect_error<base::InputError>([] { make_model(encoder("dilated").options); }, {"dilated", "causal"});
}

}  // namespace
}  // namespace mnemo::test::abc_encoder_test
