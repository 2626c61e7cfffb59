#include "experiment/finetune_model.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "models/image_model.h"
#include "tests/support/numbers.h"

namespace mnemo::experiment {
namespace {

// The running statistics of a ResNet and the cache of GRC are state of the model, not parameters.
TEST(FinetuneModel, TheWholeModelKeepsItsOwnState) {
  for (const char* model :
       {"backbone = { type = \"resnet\", image_size = [32, 32], dim = 4, depths = [1, 1], batch_norms = \"running\" }\n"
        "head = { type = \"classification\", num_classes = 3, pool = \"mean\" }\n",
        "backbone = { type = \"vit\", image_size = [8, 8], patch_size = 4, dim = 8, num_layers = 1, num_heads = 2 }\n"
        "memory = [{ type = \"grc\" }]\nhead = { type = \"classification\", num_classes = 3 }\n"}) {
    models::ImageModel stored(base::read_options<models::ModelOptions>(base::parse_toml(model, "test")), 1, at::kFloat);
    test::Numbers numbers(3);
    stored.commit(stored.initial_state(1).map(
        [&](const core::Field&, const at::Tensor& tensor) { return numbers.normal(tensor.sizes()).abs() + 0.5; }));
    models::FinetuneOptions options;
    options.model = "somewhere";
    options.regime = models::FinetuneOptions::Regime::full;
    const FinetuneModel made = finetune_model(stored, "somewhere", options, {"a", "b"}, 1);
    const auto own = stored.initial_state(1).fields(), found = made.model->initial_state(1).fields();
    ASSERT_FALSE(own.empty()) << model;
    ASSERT_EQ(found.size(), own.size()) << model;
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(found[i].first.path, own[i].first.path);
      EXPECT_EQ(test::difference(found[i].second, own[i].second), 0) << own[i].first.path;
    }
  }
}

}  // namespace
}  // namespace mnemo::experiment
