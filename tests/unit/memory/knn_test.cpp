// A kNN memory in models: where it is allowed, and its behaviour that no golden file covers.
#include "memory/knn.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "models/model.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/run.h"

namespace mnemo::memory {
namespace {

std::unique_ptr<models::Model> model_with(const std::string& memory, const std::string& attention = "softmax") {
  const base::Node node = base::parse_toml(
      fmt::format("segment_size = 4\nmemory = {}\n[embedding]\nvocab_size = 13\n[backbone]\nnum_layers = 3\ndim = 8\n"
                  "num_heads = 2\nffn_dim = 12\nattention.type = \"{}\"\n",
                  memory, attention),
      "test");
  return models::build(base::read_options<models::ModelOptions>(node), 1, at::kDouble);
}

core::Segment segment(uint64_t seed) {
  core::Segment made;
  made.tokens = test::Numbers(seed).tokens({2, 4}, 13);
  return made;
}

TEST(KnnMemory, StandsInTheLayersThatAreNamed) {
  const auto model = model_with("[{type = \"knn\", layers = [2, 0]}]");
  for (int64_t layer = 0; layer < 3; ++layer) {
    const std::string name = fmt::format("backbone.layers.{}.attn.knn.gate", layer);
    EXPECT_EQ(model->parameters().find(name).defined(), layer != 1) << name;
  }
  test::expect_error<base::InputError>([] { model_with("[{type = \"knn\", layers = [3]}]"); },
                                       {"layers", "0 to 2, found 3"});
  test::expect_error<base::InputError>([] { model_with("[{type = \"knn\", layers = []}]"); }, {"at least one layer"});
  test::expect_error<base::InputError>([] { model_with("[{type = \"knn\", layers = [1, 2, 1]}]"); },
                                       {"layers", "each number once, found 1 again"});
}

TEST(KnnMemory, StandsInsideAGatedCacheAndNotAroundIt) {
  const at::NoGradGuard no_grad;
  const auto model = model_with("[{type = \"knn\", memory_len = 8, top_k = 2}, {type = \"grc\", cache_len = 3}]",
                                "relative");
  core::State state = model->initial_state(2);
  for (uint64_t n = 1; n <= 3; ++n) state = model->forward(segment(n), state).state;
  int64_t fields = 0;
  for (const auto& [field, tensor] : state.fields()) fields += field.path.ends_with("core.knn.keys") ? 1 : 0;
  EXPECT_EQ(fields, 3);
  test::expect_error<base::InputError>(
      [] { model_with("[{type = \"grc\", cache_len = 3}, {type = \"knn\"}]", "relative"); },
      {"'knn' needs the heads before their output projection, which 'grc'"});
}

TEST(KnnMemory, NeedsQueriesAndKeysOfSingleRows) {
  test::expect_error<base::InputError>([] { model_with("[{type = \"knn\"}]", "abc"); },
                                       {"knn", "does not say how it makes them"});
}

TEST(KnnMemory, AnEmptyMemoryChangesNothing) {
  const at::NoGradGuard no_grad;
  const auto with = model_with("[{type = \"knn\"}]"), without = model_with("[]");
  for (const auto& [name, tensor] : without->parameters().named())
    at::Tensor(with->parameters().find(name)).copy_(tensor);
  const core::Segment first = segment(1), second = segment(2);
  const core::StepResult a = with->forward(first, with->initial_state(2)),
                         b = without->forward(first, without->initial_state(2));
  EXPECT_TRUE(at::equal(a.hidden, b.hidden));
  EXPECT_FALSE(at::allclose(with->forward(second, a.state).hidden, without->forward(second, b.state).hidden));
}

TEST(KnnMemory, TellsWhichRowsAQueryTook) {
  const at::NoGradGuard no_grad;
  const auto model = model_with("[{type = \"knn\", memory_len = 6, top_k = 2, layers = [1]}]");
  core::State state = model->forward(segment(1), model->initial_state(2)).state;
  int64_t maps = 0;
  model->forward(
      segment(2), state,
      [&](int64_t layer, const core::Attention& attention, const core::AttentionInput& input, const core::State& own) {
        for (const core::WeightMap& map : attention.inspect(input, own, {}).maps) {
          if (map.name != "knn") continue;
          ++maps;
          EXPECT_EQ(layer, 1);
          EXPECT_EQ(map.weights.sizes(), at::IntArrayRef({2, 2, 4, 4}));
          EXPECT_TRUE(at::equal((map.weights > 0).sum(-1), at::full({2, 2, 4}, 2, at::kLong)));
          EXPECT_TRUE(at::allclose(map.weights.sum(-1), at::ones({2, 2, 4}, at::kDouble)));
        }
      });
  EXPECT_EQ(maps, 1);
}

}  // namespace
}  // namespace mnemo::memory
