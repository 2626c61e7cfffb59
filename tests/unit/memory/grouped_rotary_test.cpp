// Memories that read keys of their own through the attention's maps, with rotary positions and grouped queries.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "attention/softmax.h"
#include "memory/knn.h"
#include "models/model.h"
#include "ops/attention/knn.h"
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
    options.rotary = attention::RotaryOptions{.dims = 4, .base = 50.0};
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

}  // namespace
}  // namespace mnemo::memory::grouped_rotary_test
