// Gradients of attention over an image's reduced rows and inside its windows, against differences: rows and every
// parameter.
#include "attention/shifted_window.h"
#include "attention/spatial_reduction.h"
#include "tests/gradcheck/check.h"

namespace mnemo::test::image_attention_test {
namespace {

constexpr int64_t kDim = 4, kHeads = 2;

template <class A>
void check(const typename A::Options& options, int64_t batch, core::Grid grid, const at::Tensor& window_bias = {}) {
  layers::ParameterSet parameters(1, at::kDouble);
  const layers::Scope root = parameters.root();
  const A attention(options, core::AttentionBuild{root, root, root, kDim, kHeads, kDim / kHeads, false, 0.3});
  Numbers numbers(4);
  Inputs inputs = {{"x", leaf(numbers, {batch, grid.size(), kDim})}};
  for (const auto& [name, tensor] : parameters.named()) {
    const at::NoGradGuard no_grad;
    at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.5);
    inputs.emplace_back(name, tensor);
  }
  const at::Tensor weights = numbers.normal({batch, grid.size(), kDim});
  const core::AttendTable table({core::SpanKind::tokens, grid.size()}, core::Rule::all());
  expect_gradients(
      [&] {
        core::AttentionInput input{inputs[0].second, {}, table};
        const core::ImageRows image{grid, nullptr, window_bias};
        input.image = &image;
        return (attention.forward(input, {}).y * weights).sum();
      },
      inputs, {.most_elements = 12, .step = 1e-4});
}

TEST(ImageAttentionGradient, OfSpatialReductionIsThatOfDifferences) {
  attention::SpatialReductionOptions options;
  check<attention::SpatialReduction>(options, 2, {2, 3});
  options.sr_ratio = 2;
  check<attention::SpatialReduction>(options, 2, {4, 5});
  options.reduction = attention::SpatialReductionOptions::Reduction::pool;
  options.pool_size = 2;
  check<attention::SpatialReduction>(options, 2, {3, 4});
}

TEST(ImageAttentionGradient, OfWindowsIsThatOfDifferences) {
  attention::ShiftedWindowOptions options;
  options.window_size = {2, 3};
  check<attention::ShiftedWindow>(options, 4, {2, 3});
  check<attention::ShiftedWindow>(options, 4, {2, 3}, Numbers(9).normal({2, 6, 6}));
  check<attention::ShiftedWindow>(options, 2, {2, 2});
}

}  // namespace
}  // namespace mnemo::test::image_attention_test
