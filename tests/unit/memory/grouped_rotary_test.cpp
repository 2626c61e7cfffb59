// Memories that read keys of their own through the attention's maps, with rotary positions and grouped queries.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "attention/linear.h"
#include "attention/softmax.h"
#include "memory/knn.h"
#include "models/model.h"
#include "ops/attention/knn.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::memory::grouped_rotary_test {
namespace {

using test::difference;
using test::Numbers;

constexpr int64_t kWidth = 10, kHeads = 4, kHeadWidth = 6;

/// kNN around softmax attention with rotary positions, or that attention alone; equal weights.
struct Subject {
  explicit Subject(const std::optional<KnnOptions>& knn) : set(1, at::kDouble) {
    const core::AttentionBuild build{
        set.root() / "attn", set.root() / "layer", set.root(), kWidth, kHeads, kHeadWidth, true, 0.1};
    attention::SoftmaxOptions options;
    options.rotary = core::RotaryOptions{.dims = 4, .base = 50.0};
    core = std::make_unique<attention::Softmax>(options, build);
    if (knn) core = std::make_unique<Knn>(*knn, build, std::move(core));
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : set.named()) {
      Numbers numbers(name.size() * 31 + static_cast<uint64_t>(name[5]));
      at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.5);
    }
  }
  /// [B,H,T,d] of a map.
  at::Tensor map(const std::string& name, const at::Tensor& rows) const {
    const at::Tensor all = at::matmul(rows, set.find("attn." + name + ".weight").t()) +
                           set.find("attn." + name + ".bias");
    return all.view({rows.size(0), rows.size(1), kHeads, kHeadWidth}).transpose(1, 2);
  }
  layers::ParameterSet set;
  std::unique_ptr<core::CoreAttention> core;
};

// A memory's keys have no place: neither they nor the queries that look for them are turned.
TEST(GroupedRotary, KnnComparesByContentAlone) {
  const at::NoGradGuard no_grad;
  for (const bool normalize : {true, false}) {
    const Subject with(KnnOptions{.memory_len = 9, .top_k = 32, .normalize = normalize}), without(std::nullopt);
    const at::Tensor first = Numbers(1).normal({2, 5, kWidth}), second = Numbers(2).normal({2, 5, kWidth});
    const core::AttendTable table({core::SpanKind::tokens, 5});
    const core::State state = with.core->heads({first, {}, table}, with.core->initial_state(2)).state;
    const at::Tensor found = with.core->heads({second, {}, table}, state).heads;
    at::Tensor q = with.map("q", second), k = with.map("k", first);
    if (normalize) {
      q = q / q.norm(2, {-1}, true) * with.set.find("attn.knn.scale").view({kHeads, 1, 1});
      k = k / k.norm(2, {-1}, true);
    } else {
      q = q / std::sqrt(1.0 * kHeadWidth);
    }
    const at::Tensor far = at::matmul(at::softmax(at::matmul(q, k.transpose(2, 3)), -1), with.map("v", first)),
                     near = without.core->heads({second, {}, table}, without.core->initial_state(2)).heads,
                     share = at::sigmoid(with.set.find("attn.knn.gate")).view({kHeads, 1, 1});
    const at::Tensor near_heads = near.view({2, 5, kHeads, kHeadWidth}).transpose(1, 2);
    const at::Tensor expected = (share * far + (1.0 - share) * near_heads).transpose(1, 2).flatten(2);
    EXPECT_LE(difference(found, expected), 1e-9) << normalize;
  }
}

std::unique_ptr<models::Model> model_with(const std::string& memory, const std::string& attention) {
  const base::Node node = base::parse_toml(
      fmt::format("segment_size = 4\nmemory = [{}]\n[embedding]\nvocab_size = 13\n[backbone]\nnum_layers = 2\n"
                  "dim = 8\nnum_heads = 4\nffn_dim = 12\nnorm = \"pre\"\nattention = {}\n",
                  memory, attention),
      "test");
  return models::build(base::read_options<models::ModelOptions>(node), 1, at::kDouble);
}

// With the maps of a key head repeated for each query head that reads it, a model without groups is the same model.
TEST(GroupedRotary, GroupsAreRepeatedKeyHeads) {
  const std::string rotary = "rotary = { base = 50.0 }";
  for (const char* memory : {"{ type = \"knn\", memory_len = 7, top_k = 3 }",
                             "{ type = \"knn\", memory_len = 7, top_k = 3, normalize = false }",
                             "{ type = \"compressive\", mem_len = 3, compressed_len = 4, compression_rate = 2 }",
                             "{ type = \"compressive\", mem_len = 3, compressed_len = 4, compression_rate = 2, "
                             "compression = \"most_used\" }"}) {
    const auto grouped = model_with(memory, "{ type = \"softmax\", num_kv_heads = 2, " + rotary + " }"),
               wide = model_with(memory, "{ type = \"softmax\", " + rotary + " }");
    {
      const at::NoGradGuard no_grad;
      Numbers numbers(7);
      for (const auto& [name, tensor] : grouped->parameters().named()) {
        at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.3);
        const at::Tensor target = wide->parameters().find(name);
        // [G*d,..] -> [G,H/G*d,..] -> [H*d,..]
        at::Tensor(target).copy_(
            target.sizes() == tensor.sizes()
                ? tensor
                : at::cat({tensor.unflatten(0, {2, -1}), tensor.unflatten(0, {2, -1})}, 1).flatten(0, 1));
      }
    }
    core::State a = grouped->initial_state(2), b = wide->initial_state(2);
    for (uint64_t number = 1; number <= 4; ++number) {
      core::Segment segment;
      segment.tokens = Numbers(number).tokens({2, 4}, 13);
      segment.mode = core::Mode::train;
      const core::StepResult one = grouped->forward(segment, a), other = wide->forward(segment, b);
      EXPECT_LE(difference(one.hidden, other.hidden), 1e-12) << memory << number;
      const auto losses = grouped->auxiliary_losses(one), others = wide->auxiliary_losses(other);
      ASSERT_EQ(losses.size(), others.size());
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_LE(difference(losses[i].values, others[i].values), 1e-12) << memory << number;
      a = one.state, b = other.state;
    }
  }
}

core::Segment segment_of(const at::Tensor& tokens, int64_t first, int64_t count) {
  core::Segment segment;
  segment.tokens = tokens.narrow(1, first, count);
  return segment;
}

// A slot for each token, and empty slots excluded: bounded memory is softmax, rotary positions and groups of queries
// included. Its slots go on where a segment ends, so softmax reads the same text as one segment.
TEST(GroupedRotary, BoundedMemoryWithASlotPerTokenIsSoftmax) {
  const at::NoGradGuard no_grad;
  const std::string shared = "num_kv_heads = 2, rotary = { base = 50.0, dims = 2 }";
  const auto softmax = model_with("", "{ type = \"softmax\", " + shared + " }"),
             abc = model_with("",
                              "{ type = \"abc\", num_slots = 12, mask_empty_slots = true, control = { type = "
                              "\"identity\" }, " +
                                  shared + " }");
  Numbers numbers(5);
  for (const auto& [name, tensor] : abc->parameters().named()) {
    at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.4);
    at::Tensor(softmax->parameters().find(name)).copy_(tensor);
  }
  const at::Tensor tokens = Numbers(6).tokens({2, 12}, 13);
  const at::Tensor expected = softmax->forward(segment_of(tokens, 0, 12), softmax->initial_state(2)).hidden;
  core::State state = abc->initial_state(2);
  for (int64_t first = 0; first < 12; first += 4) {
    core::StepResult step = abc->forward(segment_of(tokens, first, 4), state);
    EXPECT_LE(difference(step.hidden, expected.narrow(1, first, 4)), 1e-12) << first;
    state = std::move(step.state);
  }
}

// RoFormer's eq. 19 written out: pairs of features turned by the difference of their rows, in the numerator alone.
TEST(GroupedRotary, LinearAttentionTurnsFeaturesInTheNumerator) {
  const at::NoGradGuard no_grad;
  constexpr int64_t kTokens = 7, kWide = 4;
  layers::ParameterSet set(1, at::kDouble);
  const core::AttentionBuild build{set.root() / "attn", set.root() / "layer", set.root(), kWidth, 2, kWide, true, 0.5};
  attention::LinearOptions options;
  options.num_kv_heads = 1;
  options.rotary = core::RotaryOptions{.dims = 2, .base = 50.0};
  const attention::Linear linear(options, build);
  const at::Tensor x = Numbers(1).normal({1, kTokens, kWidth});
  const auto map = [&](const char* name, int64_t heads) {
    return at::matmul(x, set.find(fmt::format("attn.{}.weight", name)).t()).view({kTokens, heads, kWide});
  };
  const at::Tensor q = map("q", 2), k = map("k", 1), v = map("v", 1);
  at::Tensor expected = at::zeros({kTokens, 2, kWide}, at::kDouble);
  const auto feature = [](const at::Tensor& row, int64_t c) {
    const double value = row[c].item<double>();
    return value > 0 ? value + 1 : std::exp(value);
  };
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t t = 0; t < kTokens; ++t) {
      double below = 1e-6;
      at::Tensor above = at::zeros({kWide}, at::kDouble);
      for (int64_t s = 0; s <= t; ++s) {
        double plain = 0.0, turned = 0.0;
        for (int64_t c = 0; c < kWide; ++c) plain += feature(q[t][head], c) * feature(k[s][0], c);
        for (int64_t c = 2; c < kWide; ++c) turned += feature(q[t][head], c) * feature(k[s][0], c);
        const double a = feature(q[t][head], 0), b = feature(q[t][head], 1), u = feature(k[s][0], 0),
                     w = feature(k[s][0], 1), angle = static_cast<double>(t - s);
        turned += std::cos(angle) * (a * u + b * w) + std::sin(angle) * (a * w - b * u);
        below += plain;
        above = above + turned * v[s][0];
      }
      expected[t][head].copy_(above / below);
    }
  }
  // In one segment, and in three.
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{7}, {3, 1, 3}}) {
    core::State state = linear.initial_state(1);
    int64_t done = 0;
    for (const int64_t length : lengths) {
      const core::AttendTable table({core::SpanKind::tokens, length});
      const auto found = linear.heads({x.narrow(1, done, length), {}, table}, state);
      EXPECT_LE(difference(found.heads.view({length, 2, kWide}), expected.narrow(0, done, length)), 1e-12);
      state = found.state;
      done += length;
    }
  }
}

// The turn needs pairs of features.
TEST(GroupedRotary, TooFewFeaturesAreRefused) {
  const std::string map = "{ type = \"linear\", feature_map = \"t2r\", num_features = 3, rotary = { base = 50.0";
  test::expect_error<base::InputError>([&] { model_with("", map + " } }"); },
                                       {"rotary.dims", "even", "the number of features 3"});
  test::expect_error<base::InputError>([&] { model_with("", map + ", dims = 4 } }"); },
                                       {"rotary.dims", "3", "found 4"});
  model_with("", map + ", dims = 2 } }");
}

}  // namespace
}  // namespace mnemo::memory::grouped_rotary_test
