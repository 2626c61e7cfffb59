#include "infer/engine_cache.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "models/model.h"
#include "tests/unit/infer/decoding_cases.h"

namespace mnemo::infer {
namespace {

TEST(EngineCache, PacksAgainOnlyForOtherWeightsOrAnotherPrecision) {
  for (const Case& of : cases()) {
    const std::shared_ptr<models::Model> model = build(of, 4);
    EngineCache cache;
    auto kept = cache.get(model, {}, "test");
    EXPECT_EQ(cache.get(model, {}, "test"), kept) << of.name;
    EXPECT_NE(cache.get(model, "int8", "test"), kept) << of.name;
    if (unsupported_reason(*model, {.int8_keys = true}).empty()) {
      const auto int8_keys = cache.get(model, {}, "test", "int8");
      EXPECT_TRUE(int8_keys->options().int8_keys) << of.name;
    }
    kept = cache.get(model, {}, "test");
    EXPECT_FALSE(kept->options().int8_keys) << of.name;
    const auto expect_new = [&](const char* why) {
      const auto next = cache.get(model, {}, "test");
      EXPECT_NE(next, kept) << of.name << ": " << why;
      kept = next;
      EXPECT_EQ(cache.get(model, {}, "test"), kept) << of.name;
    };
    {
      const at::NoGradGuard no_grad;
      at::Tensor weight = model->parameters().all().back().tensor;
      weight.mul_(0.5);
      expect_new("written in place");
      weight.set_data(weight.clone());
      expect_new("replaced");
      const core::State state = core::clone(model->initial_state(1));
      bool has_memory = false;
      for (auto [field, tensor] : state.fields()) {
        if (field.per_sequence() || tensor.numel() == 0) continue;
        tensor.add_(1);
        has_memory = true;
      }
      model->commit(state);
      if (has_memory) expect_new("a memory of the model was committed");
    }
    EXPECT_NE(cache.get(build(of, 4), {}, "test"), kept) << of.name << ": another model";
  }
}

}  // namespace
}  // namespace mnemo::infer
