// The gradient of the attention-reconstruction loss, which only reaches the compression.
#include "tests/conformance/suite.h"
#include "tests/gradcheck/check.h"

namespace mnemo::test {
namespace {

TEST(CompressiveGradient, OfTheReconstructionLossIsThatOfDifferences) {
  for (const std::string function : {"conv", "dilated_conv"}) {
    for (const std::string attention : {"relative", "softmax"}) {
      const auto model = make_model(
          configuration("compressive",
                        {"kind=layer_stack", "backbone.attention.type=" + attention, "backbone.norm=pre",
                         "memory[0].type=compressive", "memory[0].mem_len=2", "memory[0].compressed_len=3",
                         "memory[0].compression_rate=2", "memory[0].compression=" + function})
              .options);
      Numbers numbers(5);
      const at::Tensor rows = numbers.normal({2, 7, 8}),
                       valid = at::tensor({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}).view({2, 7}).to(at::kBool);
      Inputs inputs;
      for (const auto& [name, tensor] : model->parameters().named()) {
        if (name.starts_with("memory.compression.")) inputs.emplace_back(name, tensor);
      }
      ASSERT_EQ(inputs.size(), 4U);
      core::Segment segment;
      segment.rows = rows;
      segment.valid = valid;
      segment.mode = core::Mode::train;
      const at::Tensor weights = at::tensor({0.7, 1.9}, at::kDouble);
      expect_gradients(
          [&] {
            return (model->auxiliary_losses(model->forward(segment, model->initial_state(2))).at(0).values * weights)
                .sum();
          },
          inputs);
    }
  }
}

}  // namespace
}  // namespace mnemo::test
