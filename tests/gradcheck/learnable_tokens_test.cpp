// Gradients of everything that learnable memory adds to a ViT, including tasks seen by others, and of the backbone
// below it.
#include "models/image_model.h"
#include "tests/gradcheck/check.h"

namespace mnemo::test {
namespace {

void check(const std::string& memory, const std::string& more = "") {
  SCOPED_TRACE(memory);
  const auto options = base::read_options<models::ModelOptions>(base::parse_json(
      R"({"backbone": {"type": "vit", "image_size": [8, 8], "patch_size": 4, "dim": 8, "num_layers": 2, "num_heads": 2, "mlp_ratio": 2.0},
          "head": {"type": "classification", "num_classes": 3}, "memory": [{"type": "learnable_tokens", )" +
          memory + "}]" + more + "}",
      "test"));
  const models::ImageModel model(options, 0, at::kDouble);
  Numbers numbers(5);
  Inputs inputs;
  for (const layers::Parameter& one : model.parameters().all()) {
    const at::NoGradGuard no_grad;
    at::Tensor(one.tensor)
        .copy_(numbers.normal(one.tensor.sizes()) * 0.3 + (one.kind == layers::ParameterKind::norm ? 1.0 : 0.0));
    if (one.name.starts_with("task.") || one.name.find("adapter") != std::string::npos ||
        one.name.find("attn.k") != std::string::npos || one.name == "backbone.class_token" ||
        one.name.find("norm1") != std::string::npos) {
      inputs.emplace_back(one.name, one.tensor);
    }
  }
  const at::Tensor pixels = leaf(numbers, {2, 3, 8, 8});
  inputs.emplace_back("pixels", pixels);
  std::vector<at::Tensor> weights;
  for (const auto& task : model.task_logits({.tokens = {}, .rows = {}, .pixels = pixels}))
    weights.push_back(numbers.normal(task.logits.sizes()));
  expect_gradients(
      [&] {
        at::Tensor sum = at::zeros({}, at::kDouble);
        const auto all = model.task_logits({.tokens = {}, .rows = {}, .pixels = pixels});
        for (size_t k = 0; k < all.size(); ++k) sum = sum + (weights[k] * all[k].logits.tanh()).sum();
        return sum;
      },
      inputs, {.most_elements = 6, .directions = 1});
}

TEST(LearnableTokensGradient, Masked) {
  check(
      R"("tasks": [{"name": "a", "num_classes": 2, "num_mem_tokens": 2}, {"name": "b", "num_classes": 3, "num_mem_tokens": 1, "sees": ["a"], "memory_norm": "after"}])");
}

TEST(LearnableTokensGradient, Full) {
  check(
      R"("attention": "full", "tasks": [{"name": "a", "num_classes": 2, "num_mem_tokens": 2, "new_class_token": false, "own_class_token": true}])",
      R"(, "adapters": {"bottleneck": 2})");
}

TEST(LearnableTokensGradient, Propagated) {
  for (const char* how : {"first", "added", "appended"}) {
    check(std::string(R"("attention": "full", "memory_norm": "before", "propagation": ")") + how +
          R"(", "tasks": [{"name": "a", "num_classes": 2, "num_mem_tokens": 2, "new_class_token": false}])");
  }
}

}  // namespace
}  // namespace mnemo::test
