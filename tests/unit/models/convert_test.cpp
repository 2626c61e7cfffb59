#include "models/convert.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "models/registry.h"
#include "models/text_model.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::models::convert_test {
namespace {

using test::expect_error;

std::unique_ptr<TextModel> model_with(const std::vector<std::string>& assignments) {
  base::Node node = base::parse_toml(
      "segment_size = 4\n[embedding]\nvocab_size = 13\n[backbone]\nnum_layers = 2\ndim = 8\nnum_heads = 2\nffn_dim = "
      "12\n",
      "test");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return build_as<TextModel>(base::read_options<ModelOptions>(node), 3);
}

TEST(ToT2r, KeepsEveryParameterAndAddsFeatureMaps) {
  const auto softmax = model_with({"backbone.attention.type=softmax", "backbone.attention.qkv_bias=false",
                                   "memory[0].type=grc", "memory[0].cache_len=3"});
  core::Segment segment;
  segment.tokens = test::Numbers(3).tokens({2, 4}, 13);
  segment.mode = core::Mode::train;
  const at::NoGradGuard no_grad;
  softmax->commit(softmax->forward(segment, softmax->initial_state(2)).state);
  const auto t2r = to_t2r(*softmax, 5, 7);
  EXPECT_EQ(t2r->options().backbone.stack().attention.type(), "linear");
  EXPECT_EQ(t2r->options().backbone.stack().attention.table().at("feature_map").as_string(), "t2r");
  EXPECT_EQ(t2r->parameters().count(), softmax->parameters().count() + 2 * (2 * 5 * 4 + 2 * 5));
  for (const auto& [name, tensor] : softmax->parameters().named()) {
    EXPECT_TRUE(test::same_bits(t2r->parameters().find(name), tensor)) << name;
  }
  const at::Tensor fresh = t2r->parameters().find("backbone.layers.1.attn.feature.weight");
  EXPECT_EQ(fresh.sizes(), at::IntArrayRef({2, 5, 4}));
  EXPECT_GT(test::largest(fresh), 0.0);
  EXPECT_TRUE(
      test::same_bits(fresh, to_t2r(*softmax, 5, 7)->parameters().find("backbone.layers.1.attn.feature.weight")));
  EXPECT_FALSE(
      test::same_bits(fresh, to_t2r(*softmax, 5, 8)->parameters().find("backbone.layers.1.attn.feature.weight")));
  // The model's cache is converted too.
  size_t caches = 0;
  const auto state = t2r->initial_state(1).fields(), from = softmax->initial_state(1).fields();
  for (const auto& [field, tensor] : state) {
    for (const auto& [other, source] : from) {
      if (field.path != other.path) continue;
      EXPECT_TRUE(test::same_bits(tensor, source)) << field.path;
      EXPECT_GT(test::largest(source), 0.0);
      ++caches;
    }
  }
  EXPECT_EQ(caches, 2U);
  segment.mode = core::Mode::evaluate;
  EXPECT_TRUE(at::isfinite(t2r->forward(segment, t2r->initial_state(2)).hidden).all().item<bool>());
}

TEST(ToT2r, KeepsRotaryPositionsAndGroupsOfQueries) {
  const auto softmax = model_with(
      {"backbone.attention.type=softmax", "backbone.attention.num_kv_heads=1", "backbone.attention.rotary.base=50.0"});
  const auto t2r = to_t2r(*softmax, 4, 7);
  for (const char* key : {"num_kv_heads", "rotary"})
    EXPECT_EQ(t2r->options().backbone.stack().attention.table().at(key),
              softmax->options().backbone.stack().attention.table().at(key))
        << key;
}

TEST(ToT2r, RefusesWhatIsNoSoftmaxModel) {
  const auto relative = model_with({});
  expect_error<base::InputError>([&] { to_t2r(*relative, {}, 0); }, {"t2r", "softmax", "relative"});
  const auto cached = model_with({"backbone.attention.type=softmax", "memory[0].type=segment_cache"});
  expect_error<base::InputError>([&] { to_t2r(*cached, {}, 0); }, {"linear", "segment_cache"});
}

}  // namespace
}  // namespace mnemo::models::convert_test
