// Gradients of the gated recurrent cache's operations.
#include "ops/grc/grc.h"

#include "tests/gradcheck/check.h"

namespace mnemo::test {
namespace {

TEST(GrcGradient, OfOneStepInBothReadings) {
  for (const bool authors : {false, true}) {
    Numbers numbers(5);
    const auto weight = [&] { return leaf(numbers, {4, 8}, 0.5); };
    const auto bias = [&] { return leaf(numbers, {4}); };
    ops::GrcGates gates{weight(), bias(), weight(), bias(), weight(), bias(), {}, {}};
    const at::Tensor cache = leaf(numbers, {2, 3, 4}), input = leaf(numbers, {2, 3, 4}),
                     out = numbers.normal({2, 3, 4});
    Inputs inputs = {{"cache", cache},
                     {"input", input},
                     {"reset weight", gates.reset_weight},
                     {"reset bias", gates.reset_bias},
                     {"update weight", gates.update_weight},
                     {"update bias", gates.update_bias},
                     {"candidate weight", gates.candidate_weight},
                     {"candidate bias", gates.candidate_bias}};
    if (authors) {
      gates.norm_weight = bias();
      gates.norm_bias = bias();
      inputs.emplace_back("norm weight", gates.norm_weight);
      inputs.emplace_back("norm bias", gates.norm_bias);
    }
    expect_gradients([&] { return (ops::grc_step(cache, input, gates, authors) * out).sum(); }, inputs);
  }
}

TEST(GrcGradient, OfMixingAndResampling) {
  Numbers numbers(6);
  const at::Tensor m = leaf(numbers, {2, 3, 4}), o = leaf(numbers, {2, 3, 6}), lambda = leaf(numbers, {2}),
                   out = numbers.normal({2, 3, 6});
  expect_gradients([&] { return (ops::grc_mix(m, o, lambda) * out).sum(); }, {{"m", m}, {"o", o}, {"lambda", lambda}});
  const at::Tensor rows = leaf(numbers, {2, 5, 2}), resampled = numbers.normal({2, 7, 2});
  const at::Tensor valid = at::tensor({0, 1, 1, 0, 1, 1, 1, 1, 1, 1}).view({2, 5}).to(at::kBool);
  for (const at::Tensor& mask : {at::Tensor(), valid}) {
    expect_gradients([&] { return (ops::resample_nearest(rows, 7, mask) * resampled).sum(); }, {{"rows", rows}});
  }
}

}  // namespace
}  // namespace mnemo::test
