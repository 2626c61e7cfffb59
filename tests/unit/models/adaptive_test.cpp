// Adaptive input and softmax, layer drop and the dropouts of a whole model.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/ignore_target.h"
#include "heads/adaptive_softmax.h"
#include "layers/adaptive_embedding.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::models::adaptive_test {
namespace {

using test::difference;
using test::expect_error;
using test::Numbers;

constexpr int64_t kVocab = 23;

std::unique_ptr<Model> build_of(const std::vector<std::string>& assignments, uint64_t seed = 1) {
  base::Node node = base::parse_toml(
      "[embedding]\nvocab_size = 23\n[backbone]\nnum_layers = 3\ndim = 8\nnum_heads = 2\nffn_dim = 6\ninit_std = 0.5\n",
      "test");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return build(read_model_options(node), seed, at::kDouble);
}

const std::vector<std::string> kDivided = {"embedding.type=adaptive", "embedding.cutoffs=[5,11]", "embedding.div_val=2",
                                           "head.adaptive.cutoffs=[5,11]", "head.adaptive.div_val=2"};
const std::vector<std::string> kNarrow = {"embedding.type=adaptive", "embedding.cutoffs=[5,11]", "embedding.dim=6",
                                          "head.adaptive.cutoffs=[5,11]"};

std::vector<std::string> with(std::vector<std::string> list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

core::Segment segment_of(const at::Tensor& tokens, core::Mode mode = core::Mode::evaluate) {
  core::Segment segment;
  segment.tokens = tokens;
  segment.mode = mode;
  return segment;
}

TEST(AdaptiveEmbedding, IsTheFormula) {
  for (const bool divided : {true, false}) {
    layers::ParameterSet set(1, at::kDouble);
    const layers::WordClusters clusters(kVocab, {5, 11});
    const layers::AdaptiveEmbedding embedding(set.root(), clusters, 6, divided ? 2 : 1, 8, true, 1.0);
    const at::Tensor found = embedding(at::arange(kVocab).unsqueeze(0));
    for (int64_t word = 0; word < kVocab; ++word) {
      const int64_t cluster = word < 5    ? 0
                              : word < 11 ? 1
                                          : 2,
                    first = std::vector<int64_t>{0, 5, 11}[static_cast<size_t>(cluster)];
      const std::string which = "." + std::to_string(cluster) + ".weight";
      const at::Tensor row = divided ? set.find("tables" + which)[word - first] : set.find("weight")[word];
      const at::Tensor projection = set.find(divided ? "projections" + which : "projection.weight");
      EXPECT_LE(difference(found[0][word], at::matmul(projection, row) * std::sqrt(8.0)), 1e-14) << word;
    }
    for (const int64_t wrong : {int64_t{-1}, kVocab}) {
      expect_error<base::InputError>(
          [&] {
            embedding(at::tensor({wrong}, at::kLong).view({1, 1}));
          },
          {"tokens 0 to 22", std::to_string(wrong)});
    }
  }
}

TEST(AdaptiveSoftmax, LossesAreTheLogProbabilitiesInTokenOrder) {
  for (const auto& kind : {kDivided, kNarrow}) {
    for (const char* order : {"head.adaptive.cluster_order=natural", "head.adaptive.cluster_order=reversed"}) {
      for (const char* tied : {"head.tied=true", "head.tied=false"}) {
        for (const char* bias : {"head.bias=true", "head.bias=false"}) {
          const auto model = build_of(with(kind, {order, tied, bias}));
          const at::NoGradGuard no_grad;
          if (std::string(bias) == "head.bias=true") {
            for (const auto& [name, tensor] : model->parameters().named()) {
              if (name.starts_with("head") && name.ends_with("bias"))
                at::Tensor(tensor).copy_(Numbers(7).normal(tensor.sizes()));
            }
          }
          const at::Tensor hidden = Numbers(2).normal({3, 9, 8});
          at::Tensor targets = Numbers(3).tokens({3, 9}, kVocab);
          targets[1][4] = base::kIgnoreTarget;
          const at::Tensor log_probs = model->logits(hidden);
          EXPECT_EQ(log_probs.sizes(), at::IntArrayRef({3, 9, kVocab}));
          EXPECT_LE(difference(log_probs.exp().sum(-1), at::ones({3, 9}, at::kDouble)), 1e-14)
              << "a distribution over all words";
          const at::Tensor picked = -log_probs.gather(-1, targets.clamp_min(0).unsqueeze(-1)).squeeze(-1);
          EXPECT_LE(difference(model->nll(hidden, targets), picked.masked_fill(targets == base::kIgnoreTarget, 0.0)),
                    1e-13);
        }
      }
    }
  }
}

TEST(AdaptiveSoftmax, HasTheGradientOfItsLogProbabilities) {
  const auto model = build_of(kDivided);
  const at::Tensor targets = at::tensor({3, 12, 7, 0, 22, 12}, at::kLong).view({2, 3});
  const at::Tensor hidden = Numbers(2).normal({2, 3, 8}).set_requires_grad(true), weights = Numbers(4).normal({2, 3});
  const auto gradients = [&](const at::Tensor& nll) {
    model->parameters().zero_grad();
    hidden.mutable_grad() = at::Tensor();
    (nll * weights).sum().backward();
    std::vector<at::Tensor> all = {hidden.grad().clone()};
    for (const auto& [name, tensor] : model->parameters().named()) {
      if (name.starts_with("head") || name.starts_with("embed")) all.push_back(tensor.grad().clone());
    }
    return all;
  };
  const auto found = gradients(model->nll(hidden, targets));
  const auto expected = gradients(-model->logits(hidden).gather(-1, targets.unsqueeze(-1)).squeeze(-1));
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(difference(found[i], expected[i]), 1e-13) << i;
}

TEST(AdaptiveSoftmax, ClustersWithoutATargetAreNotComputed) {
  const auto model = build_of(kDivided);
  const at::Tensor hidden = Numbers(2).normal({2, 3, 8}),
                   targets = at::tensor({3, 1, 7, 0, 5, 8}, at::kLong).view({2, 3});
  model->nll(hidden, targets).sum().backward();
  EXPECT_TRUE(model->parameters().find("head.tables.1.bias").grad().defined());
  EXPECT_FALSE(model->parameters().find("head.tables.2.bias").grad().defined());
}

TEST(AdaptiveSoftmax, TheShortlistMayStandWithoutAProjection) {
  const auto plain = build_of(kDivided), bare = build_of(with(kDivided, {"head.adaptive.shortlist_projection=false"}));
  EXPECT_EQ(plain->parameters().count(), bare->parameters().count());
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = Numbers(2).normal({4, 8}), words = bare->logits(hidden);
  const at::Tensor table = bare->parameters().find("embed.tables.0.weight"),
                   clusters = bare->parameters().find("head.clusters.weight");
  const at::Tensor head = at::log_softmax(at::matmul(hidden, at::cat({table, clusters}).t()), -1);
  EXPECT_LE(difference(words.narrow(-1, 0, 5), head.narrow(-1, 0, 5)), 1e-14);
  EXPECT_GT(difference(plain->logits(hidden), words), 1e-3);
}

TEST(AdaptiveEmbedding, OneTableMayBeThatOfAFullSoftmax) {
  for (const std::vector<std::string>& cutoffs : {std::vector<std::string>{}, {"embedding.cutoffs=[5,11]"}}) {
    const auto model = build_of(with({"embedding.type=adaptive"}, cutoffs));
    const at::Tensor hidden = Numbers(2).normal({1, 4, 8}), table = model->parameters().find("embed.weight");
    ASSERT_EQ(table.sizes(), at::IntArrayRef({kVocab, 8}));
    EXPECT_LE(difference(model->logits(hidden), at::matmul(hidden, table.t())), 1e-13);
    EXPECT_TRUE(
        at::isfinite(model->nll(hidden, at::tensor({0, 6, 12, 22}, at::kLong).view({1, 4}))).all().item<bool>());
    // The table and not what it was when the head was made.
    model->parameters().to(at::kFloat, at::kCPU);
    EXPECT_EQ(model->logits(hidden.to(at::kFloat)).scalar_type(), at::kFloat);
  }
}

TEST(Adaptive, WrongOptionsAreNamed) {
  const auto refused = [](const std::vector<std::string>& assignments, std::initializer_list<std::string> parts) {
    expect_error<base::InputError>([&] { build_of(assignments); }, parts);
  };
  refused(with(kDivided, {"head.adaptive.cutoffs=[5,12]"}), {"'head'", "same cutoffs and div_val"});
  refused(with(kDivided, {"head.adaptive.div_val=1"}), {"'head'", "same cutoffs and div_val"});
  refused(with(kDivided, {"head.adaptive.tie_projections=[true]"}),
          {"head.adaptive.tie_projections", "3 booleans", "found 1"});
  refused(with(kDivided, {"head.adaptive.tie_projections=[1,0,1]"}),
          {"head.adaptive.tie_projections", "expected booleans"});
  refused({"embedding.type=adaptive", "embedding.cutoffs=[11,5]", "head.tied=false"},
          {"model.embedding", "cutoffs", "increasing", "found 5 after 11"});
  refused({"embedding.type=adaptive", "embedding.cutoffs=[5,23]", "head.tied=false"},
          {"model.embedding", "below vocab_size = 23", "found 23"});
  refused({"embedding.type=adaptive", "embedding.cutoffs=[5,11]", "embedding.div_val=9", "head.tied=false"},
          {"div_val", "gives cluster 1 no width"});
  refused({"embedding.type=adaptive", "embedding.div_val=2"}, {"'embedding'", "no cutoffs"});
  refused({"embedding.cutoffs=[5,11]"}, {"'embedding'", "type = \"adaptive\""});
  refused({"embedding.type=adaptive", "embedding.cutoffs=[5]", "embedding.dim=6"},
          {"'head'", "head.adaptive or head.tied = false"});
  refused({"head.adaptive.cutoffs=[]", "head.tied=false"}, {"head.adaptive.cutoffs", "at least one"});
  refused({"head.adaptive.cutoffs=[5,30]", "head.tied=false"}, {"model.head.adaptive", "below vocab_size = 23"});
  refused({"head.adaptive.cutoffs=[5]", "head.tied=false", "head.adaptive.tie_projections=[true,false]",
           "head.adaptive.div_val=2"},
          {"tie_projections[0]", "embedding.type = \"adaptive\""});
  // An adaptive softmax over plain rows, with its own tables.
  EXPECT_TRUE(
      build_of({"head.adaptive.cutoffs=[5]", "head.tied=false"})->parameters().find("head.clusters.weight").defined());
}

TEST(LayerDrop, PassesLayersByInTrainingAlone) {
  const auto model = build_of({"backbone.layer_drop=0.5", "backbone.attention.type=softmax"}),
             all = build_of({"backbone.attention.type=softmax"});
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(1).tokens({2, 5}, kVocab);
  const auto hidden = [&](const Model& of, core::Mode mode) {
    return of.forward(segment_of(tokens, mode), of.initial_state(2)).hidden;
  };
  EXPECT_TRUE(at::equal(hidden(*model, core::Mode::evaluate), hidden(*all, core::Mode::evaluate)));
  // In training: one of the 8 subsets of layers, all about equally often.
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(3);
  std::vector<at::Tensor> seen;
  int64_t whole = 0, empty = 0;
  const at::Tensor rows = at::embedding(model->parameters().find("embed.weight"), tokens) * std::sqrt(8.0);
  for (int i = 0; i < 200; ++i) {
    const at::Tensor found = hidden(*model, core::Mode::train);
    whole += at::equal(found, hidden(*all, core::Mode::train)) ? 1 : 0;
    empty += at::equal(found, rows) ? 1 : 0;
    if (std::none_of(seen.begin(), seen.end(), [&](const at::Tensor& other) { return at::equal(other, found); }))
      seen.push_back(found);
  }
  EXPECT_EQ(seen.size(), 8U);
  EXPECT_GT(whole, 10);
  EXPECT_LT(whole, 50);
  EXPECT_GT(empty, 10);
  EXPECT_LT(empty, 50);
}

TEST(LayerDrop, IsForWholeSegments) {
  const auto model = build_of({"backbone.layer_drop=0.5"});
  const at::NoGradGuard no_grad;
  core::Segment part = segment_of(Numbers(1).tokens({1, 3}, kVocab), core::Mode::train);
  part.part = {true, false};
  expect_error<base::InputError>([&] { model->forward(part, model->initial_state(1)); },
                                 {"layer_drop", "whole segments"});
  part.mode = core::Mode::evaluate;
  model->forward(part, model->initial_state(1));
}

TEST(Dropout, OfAttentionActivationAndHeadActInTrainingAlone) {
  const std::vector<std::vector<std::string>> cases = {
      {"backbone.attention.type=softmax", "backbone.attention.dropout=0.4"},
      {"backbone.attention.type=relative", "backbone.attention.dropout=0.4"},
      {"backbone.attention.type=relative", "backbone.attention.position_dropout=0.4"},
      {"backbone.activation_dropout=0.4"},
      {"backbone.output_dropout=0.4"},
      with(kDivided, {"head.adaptive.dropout=0.4"})};
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(1).tokens({2, 5}, kVocab);
  for (const auto& assignments : cases) {
    const auto model = build_of(assignments);
    const auto hidden = [&](core::Mode mode) {
      return model->forward(segment_of(tokens, mode), model->initial_state(2)).hidden;
    };
    EXPECT_TRUE(at::equal(hidden(core::Mode::evaluate), hidden(core::Mode::evaluate)));
    EXPECT_GT(difference(hidden(core::Mode::train), hidden(core::Mode::evaluate)), 1e-6);
    EXPECT_GT(difference(hidden(core::Mode::train), hidden(core::Mode::train)), 1e-6);
  }
}

TEST(Dropout, OfTheOutputIsOfRowsWrittenToMemoryToo) {
  const auto model = build_of(
      {"backbone.output_dropout=0.5", "memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=4"});
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(1).tokens({2, 5}, kVocab);
  const auto step = [&](core::Mode mode) { return model->forward(segment_of(tokens, mode), model->initial_state(2)); };
  const core::StepResult evaluated = step(core::Mode::evaluate), trained = step(core::Mode::train);
  for (const auto& [found, expected] :
       {std::pair(trained.hidden, evaluated.hidden), std::pair(trained.write_hidden, evaluated.write_hidden)}) {
    const at::Tensor dropped = found == 0.0;
    EXPECT_GT(dropped.sum().item<int64_t>(), found.numel() / 5);
    EXPECT_LT(dropped.sum().item<int64_t>(), found.numel() * 4 / 5);
    EXPECT_LE(difference(found, at::where(dropped, 0.0, 2 * expected)), 1e-14);
  }
  const auto fields = trained.state.child("recurrent_tokens").fields();
  ASSERT_EQ(fields.size(), 1U);
  EXPECT_TRUE(at::equal(fields.front().second, trained.write_hidden)) << "the next segment reads what the dropout left";
}

}  // namespace
}  // namespace mnemo::models::adaptive_test
