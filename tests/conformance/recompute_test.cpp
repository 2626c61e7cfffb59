// Layers whose graphs are made again in the backward pass: the same bits as with stored ones.
#include "tests/conformance/suite.h"
#include "tests/support/pair_models.h"
#include "train/segment_bptt.h"

namespace mnemo::test {
namespace {

/// Everything that two segments of training leave behind; the second one has padding.
std::vector<at::Tensor> traces(const models::Model& model, const std::vector<core::Segment>& segments,
                               bool recompute_layers) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(17);
  model.parameters().zero_grad();
  const core::State given = model.initial_state(2).map([&](const core::Field&, const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.detach().clone().set_requires_grad(true) : tensor;
  });
  std::vector<train::BpttSegment> inputs;
  for (core::Segment segment : segments) {
    segment.mode = core::Mode::train;
    segment.recompute_layers = recompute_layers;
    inputs.push_back({segment});
  }
  const train::BpttResult result = train::backward_segments(
      model, inputs, given, [&](const core::StepResult& step, size_t index) {
        at::Tensor loss = (step.hidden * Numbers(index).normal(step.hidden.sizes())).sum();
        for (const core::AuxiliaryLoss& own : model.auxiliary_losses(step)) loss = loss + own.values.sum() * own.weight;
        // Tensors of the state have a gradient where stored graphs give them one.
        for (const auto& [field, tensor] : step.state.fields())
          if (tensor.requires_grad()) loss = loss + at::where(at::isfinite(tensor), tensor, 0.0).sum();
        return loss;
      });
  std::vector<at::Tensor> all = result.losses;
  for (const auto& [field, tensor] : result.state.fields()) all.push_back(tensor);
  all.push_back(generator.get_state());
  for (const auto& [name, tensor] : model.parameters().named()) all.push_back(tensor.grad());
  for (const auto& [field, tensor] : given.fields()) all.push_back(tensor.grad());
  return all;
}

void expect_same_bits(const models::Model& model, const std::vector<core::Segment>& segments) {
  const std::vector<at::Tensor> expected = traces(model, segments, false), found = traces(model, segments, true);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << i;
    EXPECT_TRUE(!found[i].defined() || same_bits(found[i], expected[i])) << i << " of " << found.size();
  }
}

class RecomputedLayers : public Conformance {};

TEST_P(RecomputedLayers, HaveTheBitsOfStoredOnes) {
  auto model = make_model(config().options);
  std::vector<core::Segment> segments(2);
  for (core::Segment& segment : segments) segment.tokens = Numbers(3).tokens({2, 5}, kVocab);
  if (masks_padding(config())) {
    segments[1].valid = at::ones({2, 5}, at::kBool);
    segments[1].valid[0].narrow(0, 3, 2).fill_(false);
  }
  expect_same_bits(*model, segments);
}

INSTANTIATE_TEST_SUITE_P(All, RecomputedLayers, testing::ValuesIn(decoders_and_encoders()), name_of);

// The encoder's layers too, and rows of padding that are left out.
TEST(RecomputedPairs, HaveTheBitsOfStoredOnes) {
  for (const bool memory : {false, true}) {
    for (const char* cross : {"softmax", "abc"}) {
      models::ModelOptions options = pair_options("softmax", cross, "abc");
      options.backbone.pairs().dropout = 0.2;
      if (memory)
        options.backbone.pairs().encoder.memory = {
            models::ModelOptions::memory_types().read(base::Node::table({{"type", "recurrent_tokens"},
                                                                         {"layout", "encoder"},
                                                                         {"num_mem_tokens", 2},
                                                                         {"pad_token", 1},
                                                                         {"eos_token", 2},
                                                                         {"memory_position", "front"}}))};
      const auto model = models::build(options, 3, at::kDouble);
      core::Segment segment = pair_segment(pair_source(2, 9), Numbers(4).tokens({2, 6}, 19));
      segment.valid = at::ones({2, 6}, at::kBool);
      segment.valid[1].narrow(0, 2, 4).fill_(false);
      expect_same_bits(*model, {segment});
    }
  }
}

}  // namespace
}  // namespace mnemo::test
