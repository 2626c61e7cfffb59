// Layers of published decoders written out with plain operations: norms, grouped queries, rotary positions, gated
// feed-forward, and both ways to add the branches. Outputs and gradients.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "base/node.h"
#include "models/text_model.h"
#include "ops/attention/rotary.h"
#include "tests/support/numbers.h"

namespace mnemo::models::layer_formula_test {
namespace {

using test::difference;
using test::Numbers;

constexpr int64_t kLayers = 2, kDim = 8, kHeads = 4, kGroups = 2, kWidth = 2, kRows = 5;

struct Case {
  bool parallel, gated, rms;
};

std::unique_ptr<TextModel> model_of(const Case& c) {
  const base::Node node = base::parse_toml(
      fmt::format(
          "segment_size = {}\n[embedding]\nvocab_size = 13\n[backbone]\nnum_layers = {}\ndim = {}\nnum_heads = "
          "{}\nffn_dim = 12\nnorm = \"pre\"\nactivation = \"silu\"\nparallel_residual = {}\nffn_gated = {}\n"
          "norm_type = \"{}\"\nattention = {{ type = \"softmax\", num_kv_heads = {}, rotary = {{ base = 50.0 }} "
          "}}\n",
          kRows, kLayers, kDim, kHeads, c.parallel, c.gated, c.rms ? "rms" : "layer", kGroups),
      "test");
  auto model = build_as<TextModel>(base::read_options<ModelOptions>(node), 1, at::kDouble);
  const at::NoGradGuard no_grad;
  Numbers numbers(5);
  for (const auto& [name, tensor] : model->parameters().named())
    at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.4);
  return model;
}

/// The layer's maps by name.
struct Layer {
  const layers::ParameterSet& set;
  std::string prefix;

  at::Tensor find(const std::string& name) const { return set.find(prefix + name); }
  at::Tensor map(const std::string& name, const at::Tensor& x) const {
    const at::Tensor y = at::matmul(x, find(name + ".weight").t()), bias = find(name + ".bias");
    return bias.defined() ? y + bias : y;
  }
  at::Tensor norm(const std::string& name, const at::Tensor& x, bool rms) const {
    if (rms) return x / (x.square().mean(-1, true) + 1e-5).sqrt() * find(name + ".weight");
    const at::Tensor mean = x.mean(-1, true), variance = (x - mean).square().mean(-1, true);
    return (x - mean) / (variance + 1e-5).sqrt() * find(name + ".weight") + find(name + ".bias");
  }
  /// Query head a reads key head a div (H/G); rows are turned by their number.
  at::Tensor attend(const at::Tensor& x) const {
    const std::vector<double> frequencies = ops::rotary_frequencies(kWidth, 50.0, {});
    const auto heads = [&](const char* name, int64_t count) {
      return map(name, x).view({x.size(0), kRows, count, kWidth}).transpose(1, 2);
    };
    const at::Tensor v = heads("attn.v", kGroups);
    // Each pair (u, w) of row n becomes (u cos - w sin, w cos + u sin).
    const auto turned = [&](const at::Tensor& rows) {
      const at::Tensor angle = at::arange(kRows, at::kDouble) * frequencies[0];
      const at::Tensor u = rows.select(3, 0), w = rows.select(3, 1);
      return at::stack({u * angle.cos() - w * angle.sin(), w * angle.cos() + u * angle.sin()}, 3);
    };
    const at::Tensor q = turned(heads("attn.q", kHeads)), k = turned(heads("attn.k", kGroups));
    std::vector<at::Tensor> out;
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t group = head / (kHeads / kGroups);
      const at::Tensor scores = at::matmul(q.select(1, head), k.select(1, group).transpose(1, 2)) / std::sqrt(kWidth);
      const at::Tensor later = at::ones({kRows, kRows}, at::kBool).triu(1);
      out.push_back(at::matmul(at::softmax(scores.masked_fill(later, -INFINITY), -1), v.select(1, group)));
    }
    return map("attn.o", at::cat(out, 2));
  }
  at::Tensor feed_forward(const at::Tensor& x, bool gated) const {
    const auto silu = [](const at::Tensor& y) { return y / (1.0 + (-y).exp()); };
    return map("ffn.1", gated ? silu(map("ffn.gate", x)) * map("ffn.0", x) : silu(map("ffn.0", x)));
  }
};

class LayerFormula : public testing::TestWithParam<Case> {};

TEST_P(LayerFormula, ALayerIsWhatItSays) {
  const Case& c = GetParam();
  const auto model = model_of(c);
  const auto& set = model->parameters();
  const at::Tensor tokens = Numbers(3).tokens({2, kRows}, 13), weights = Numbers(4).normal({2, kRows, kDim});
  const auto gradients = [&](const at::Tensor& hidden) {
    set.zero_grad();
    (hidden * weights).sum().backward();
    std::vector<std::pair<std::string, at::Tensor>> all;
    for (const auto& [name, tensor] : set.named())
      if (tensor.grad().defined()) all.emplace_back(name, tensor.grad().clone());
    return all;
  };
  core::Segment segment;
  segment.tokens = tokens;
  segment.mode = core::Mode::train;
  const at::Tensor found = model->forward(segment, model->initial_state(2)).hidden;
  const auto found_gradients = gradients(found);

  at::Tensor h = at::embedding(set.find("embed.weight"), tokens) * model->tokens().embedding().plain->factor;
  for (int64_t n = 0; n < kLayers; ++n) {
    const Layer layer{set, fmt::format("backbone.layers.{}.", n)};
    const at::Tensor attended = layer.attend(layer.norm("norm1", h, c.rms));
    if (c.parallel) {
      h = h + attended + layer.feed_forward(layer.norm("norm2", h, c.rms), c.gated);
    } else {
      h = h + attended;
      h = h + layer.feed_forward(layer.norm("norm2", h, c.rms), c.gated);
    }
  }
  EXPECT_LE(difference(found, h), 1e-12);
  const auto expected_gradients = gradients(h);
  ASSERT_EQ(found_gradients.size(), expected_gradients.size());
  for (size_t i = 0; i < found_gradients.size(); ++i) {
    ASSERT_EQ(found_gradients[i].first, expected_gradients[i].first);
    EXPECT_LE(difference(found_gradients[i].second, expected_gradients[i].second),
              1e-11 * (1.0 + test::largest(expected_gradients[i].second)))
        << found_gradients[i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LayerFormula,
                         testing::Values(Case{false, false, false}, Case{true, false, false}, Case{false, true, true},
                                         Case{true, true, true}),
                         [](const auto& info) {
                           return std::string(info.param.parallel ? "parallel" : "sequential") +
                                  (info.param.gated ? "_gated_rms" : "_plain_layer_norm");
                         });

}  // namespace
}  // namespace mnemo::models::layer_formula_test
