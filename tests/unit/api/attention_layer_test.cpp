#include "api/attention_layer.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "layers/register_parameters.h"
#include "tests/support/expect_error.h"

namespace mnemo {
namespace {

using test::expect_error;

/// The interface of torch::nn::Module that register_parameters needs.
struct Module {
  std::map<std::string, at::Tensor> parameters;
  at::Tensor& register_parameter(std::string name, at::Tensor tensor, bool requires_grad) {
    EXPECT_EQ(name.find('.'), std::string::npos) << name;
    EXPECT_TRUE(requires_grad) << name;
    return parameters[name] = std::move(tensor);
  }
};

TEST(AttentionLayer, IsTheAttentionOfAStackOfOneLayer) {
  const base::Node grc = base::Node::table({{"type", "grc"}, {"cache_len", 4}, {"lifetime", "sequence"}});
  const AttentionLayer layer({.attention = "relative", .memory = {grc}, .dim = 16, .num_heads = 2, .seed = 3});
  at::manual_seed(1);
  core::State state = layer.initial_state(2);
  at::Tensor first, second;
  for (at::Tensor* y : {&first, &second}) {
    auto step = layer.forward(at::randn({2, 5, 16}), state);
    *y = step.y;
    state = step.state;
  }
  EXPECT_EQ(first.sizes(), at::IntArrayRef({2, 5, 16}));
  // Causal: later rows do not affect earlier outputs.
  at::Tensor x = at::randn({1, 5, 16}), changed = x.clone();
  changed.select(1, 4).fill_(1);
  const at::Tensor a = layer.forward(x, layer.initial_state(1)).y, b = layer.forward(changed, layer.initial_state(1)).y;
  EXPECT_TRUE(at::equal(a.narrow(1, 0, 4), b.narrow(1, 0, 4)));
  EXPECT_FALSE(at::equal(a.select(1, 4), b.select(1, 4)));
  // The second segment reads the first one through the state.
  const at::Tensor fresh = layer.forward(x, layer.initial_state(1)).y;
  const at::Tensor after = layer.forward(x, layer.forward(changed, layer.initial_state(1)).state).y;
  EXPECT_FALSE(at::allclose(fresh, after));
}

// Sequences of 3 and 5 rows in one batch are as each by itself, on whichever side the padding is and whatever it holds.
TEST(AttentionLayer, DoesNotKnowPadding) {
  for (const char* type : {"softmax", "linear", "linformer"}) {
    AttentionLayerOptions options{.attention = type, .dim = 16, .num_heads = 2, .seed = 3};
    options.causal = std::string_view(type) != "linformer";
    const AttentionLayer layer(options);
    at::manual_seed(1);
    const at::Tensor alone = at::randn({1, 3, 16}), whole = at::randn({1, 5, 16});
    const at::Tensor nan = at::full({1, 2, 16}, std::numeric_limits<float>::quiet_NaN());
    const auto expected = layer.forward(alone, layer.initial_state(1));
    for (const bool left : {false, true}) {
      const at::Tensor padded = left ? at::cat({nan, alone}, 1) : at::cat({alone, nan}, 1);
      at::Tensor valid = at::ones({2, 5}, at::kBool);
      valid[0].narrow(0, left ? 0 : 3, 2).fill_(false);
      const auto step = layer.forward(at::cat({padded, whole}, 0), layer.initial_state(2), core::Mode::evaluate, valid);
      EXPECT_TRUE(at::allclose(step.y.narrow(0, 0, 1).narrow(1, left ? 2 : 0, 3), expected.y, 1e-4, 1e-5))
          << type << left;
      for (const auto& [field, tensor] : step.state.fields()) EXPECT_TRUE(at::isfinite(tensor).all().item<bool>());
    }
  }
}

TEST(AttentionLayer, SeesEverythingWhereItIsNotCausal) {
  const AttentionLayer layer({.dim = 8, .num_heads = 2, .causal = false});
  const at::Tensor x = at::randn({1, 4, 8});
  at::Tensor changed = x.clone();
  changed.select(1, 3).fill_(1);
  const core::State state = layer.initial_state(1);
  EXPECT_FALSE(at::equal(layer.forward(x, state).y.select(1, 0), layer.forward(changed, state).y.select(1, 0)));
  const at::Tensor valid = at::arange(4).lt(3).view({1, 4});
  EXPECT_TRUE(at::equal(layer.forward(x, state, core::Mode::train, valid).y.narrow(1, 0, 3),
                        layer.forward(changed, state, core::Mode::train, valid).y.narrow(1, 0, 3)));
}

TEST(AttentionLayer, RegistersItsParametersWithAModule) {
  const AttentionLayer layer({.dim = 8, .num_heads = 2});
  Module module;
  layers::register_parameters(module, layer.parameters(), "memory.");
  ASSERT_EQ(module.parameters.size(), layer.parameters().all().size());
  for (const layers::Parameter& parameter : layer.parameters().all()) {
    std::string name = "memory." + parameter.name;
    std::replace(name.begin(), name.end(), '.', '/');
    EXPECT_TRUE(module.parameters.at(name).is_same(parameter.tensor)) << name;
  }
  layer.forward(at::randn({1, 3, 8}), layer.initial_state(1)).y.sum().backward();
  for (const auto& [name, tensor] : module.parameters) EXPECT_TRUE(tensor.grad().defined()) << name;
}

TEST(AttentionLayer, TakesAtLeastOneRow) {
  for (const char* attention : {"softmax", "linear", "lsh", "abc"}) {
    const AttentionLayer layer({.attention = attention, .dim = 8, .num_heads = 2});
    for (const auto& [batch, rows] : {std::pair<int64_t, int64_t>{2, 0}, {0, 3}})
      expect_error<base::ShapeError>(
          [&, batch = batch, rows = rows] {
            layer.forward(at::zeros({batch, rows, 8}), layer.initial_state(batch));
          },
          {"at least one row"});
  }
}

TEST(AttentionLayer, RefusesWhatItIsNot) {
  const base::Node cache = base::Node::table({{"type", "segment_cache"}, {"mem_len", 4}});
  expect_error<base::InputError>([&] { AttentionLayer({.memory = {cache}}); }, {"segment_cache", "layer_stack"});
  expect_error<base::InputError>([&] { AttentionLayer({.attention = "softmaxx"}); }, {"softmax"});
  const AttentionLayer layer({.dim = 8, .num_heads = 2});
  expect_error<base::ShapeError>(
      [&] {
        layer.forward(at::zeros({1, 3, 6}), layer.initial_state(1));
      },
      {"[B,T,8]", "[1,3,6]"});
}

}  // namespace
}  // namespace mnemo
