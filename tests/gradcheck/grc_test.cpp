// Gradients of the gated recurrent cache's operations.
#include "ops/grc/grc.h"

#include "tests/conformance/suite.h"
#include "tests/gradcheck/check.h"
#include "train/segment_bptt.h"

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

// Over the segments of a text, with a cache for each text. By definition the loss of segment t is a function of
// segments t - depth to t alone: the state before them is a number.
TEST(GrcGradient, OfATextReachesThroughTheCacheAsFarAsItsDepth) {
  constexpr int64_t kTokens[] = {3, 2, 3, 3};
  for (const std::string depth : {"0", "1", "2", "full"}) {
    SCOPED_TRACE("bptt_depth " + depth);
    const auto model = make_model(
        configuration("grc", {"kind=layer_stack", "backbone.attention.type=softmax", "memory[0].type=grc",
                              "memory[0].cache_len=3", "memory[0].lifetime=sequence", "memory[0].bptt_depth=" + depth})
            .options);
    const size_t back = depth == "full" ? std::size(kTokens) : std::stoul(depth);
    Numbers numbers(7);
    Inputs inputs;
    const core::State start = model->initial_state(2).map([&](const core::Field& field, const at::Tensor& tensor) {
      if (!field.path.ends_with("grc.cache")) return tensor;
      const at::Tensor cache = leaf(numbers, tensor.sizes());
      if (depth != "full") return cache.detach();
      inputs.emplace_back(field.path, cache);
      return cache;
    });
    ASSERT_EQ(inputs.size(), depth == "full" ? 2u : 0u) << "a cache in each of two layers";
    std::vector<train::BpttSegment> segments(std::size(kTokens));
    std::vector<at::Tensor> weights;
    for (size_t t = 0; t < segments.size(); ++t) {
      segments[t].input.rows = leaf(numbers, {2, kTokens[t], 8});
      segments[t].input.mode = core::Mode::train;
      weights.push_back(numbers.normal({2, kTokens[t], 8}));
      inputs.emplace_back(fmt::format("rows {}", t), segments[t].input.rows);
    }
    for (const auto& [name, tensor] : model->parameters().named()) inputs.emplace_back(name, tensor);
    const auto loss = [&](const core::StepResult& step, size_t t) { return (step.hidden * weights[t]).sum(); };

    std::vector<core::State> before = {start};  // every segment
    for (const train::BpttSegment& segment : segments) {
      const at::NoGradGuard no_grad;
      before.push_back(model->forward(segment.input, before.back()).state);
    }
    expect_gradients(
        [&] {
          at::Tensor sum = at::zeros({}, at::kDouble);
          for (size_t t = 0; t < segments.size(); ++t) {
            size_t s = t < back ? 0 : t - back;
            core::State state = before[s];
            for (; s < t; ++s) state = model->forward(segments[s].input, state).state;
            sum = sum + loss(model->forward(segments[t].input, state), t);
          }
          return sum;
        },
        inputs, {.most_elements = 2, .directions = 1, .tolerance = 2e-8});

    std::vector<at::Tensor> expected;
    for (const auto& [name, input] : inputs) {
      expected.push_back(input.grad().defined() ? input.grad().clone() : at::zeros_like(input));
      at::Tensor(input).mutable_grad() = at::Tensor();
    }
    train::backward_segments(*model, segments, start, loss);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const at::Tensor& found = inputs[i].second.grad();
      EXPECT_LE(found.defined() ? difference(found, expected[i]) : largest(expected[i]), 1e-11) << inputs[i].first;
    }
  }
}

}  // namespace
}  // namespace mnemo::test
