// Encoders, classification heads, and memories around them.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::models {
namespace {

using core::Mode;
using test::difference;
using test::expect_error;
using test::Numbers;

const std::vector<std::string> kBlock = {"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=2",
                                         "memory[0].layout=encoder",        "memory[0].cls_token=1",
                                         "memory[0].sep_token=2",           "memory[0].pad_token=0"};
const std::vector<std::string> kClasses = {"head.type=classification", "head.num_classes=3"};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

ModelOptions encoder_options(const std::vector<std::string>& assignments) {
  base::Node node = base::parse_toml(
      "segment_size = 4\n[embedding]\nvocab_size = 7\n[backbone]\ntype = \"encoder\"\nnum_layers = 2\ndim = 4\n"
      "num_heads = 2\nffn_dim = 6\nattention = \"softmax\"\ninit_std = 0.3\n",
      "test.toml");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return base::read_options<ModelOptions>(node);
}

std::unique_ptr<Model> encoder_of(const std::vector<std::string>& assignments) {
  return build(encoder_options(assignments), 1, at::kDouble);
}

void refuse(const std::vector<std::string>& assignments, std::initializer_list<std::string> parts) {
  expect_error<base::InputError>([&] { encoder_of(assignments); }, parts);
}

core::Segment tokens_of(const at::Tensor& tokens, const at::Tensor& valid = {}) {
  core::Segment segment;
  segment.tokens = tokens;
  segment.valid = valid;
  return segment;
}

TEST(Encoder, ParametersHaveTheNamesOfTheGoldenFiles) {
  const auto model = encoder_of(kBlock + kClasses +
                                std::vector<std::string>{"backbone.token_types=2", "backbone.embed_norm=true",
                                                         "backbone.position.type=learned", "head.pooler=tanh"});
  for (const char* name :
       {"backbone.token_types.weight", "backbone.embed_norm.weight", "backbone.positions.weight", "memory.tokens",
        "head.pooler.weight", "head.classifier.bias", "backbone.layers.1.attn.q.weight"}) {
    EXPECT_TRUE(model->parameters().find(name).defined()) << name;
  }
  EXPECT_EQ(model->parameters().find("backbone.token_types.weight").sizes(), at::IntArrayRef({2, 4}));
  EXPECT_FALSE(model->parameters().find("head.cls").defined()) << "the memory's [CLS] is read";
  EXPECT_FALSE(model->parameters().find("head.weight").defined());
}

TEST(Encoder, AddsPositionTypeAndNormBeforeTheFirstLayer) {
  const auto model = encoder_of({"backbone.token_types=2", "backbone.embed_norm=true", "backbone.position.type=learned",
                                 "embedding.scale=false"});
  const at::NoGradGuard no_grad;
  const auto parameter = [&](const char* name) { return model->parameters().find(name); };
  parameter("backbone.embed_norm.bias").copy_(Numbers(2).normal({4}));
  const at::Tensor tokens = Numbers(1).tokens({2, 3}, 7);
  const at::Tensor rows = at::embedding(parameter("embed.weight"), tokens) +
                          parameter("backbone.positions.weight").narrow(0, 0, 3) +
                          parameter("backbone.token_types.weight")[0];
  const at::Tensor expected = at::layer_norm(rows, {4}, parameter("backbone.embed_norm.weight"),
                                             parameter("backbone.embed_norm.bias"), 1e-5);
  // Layers that add nothing, and norms that change nothing.
  for (const auto& [name, tensor] : model->parameters().named()) {
    if (name.find(".o.") != std::string::npos || name.find("ffn.1") != std::string::npos) at::Tensor(tensor).zero_();
  }
  const at::Tensor hidden = model->forward(tokens_of(tokens), model->initial_state(2)).hidden;
  const at::Tensor once = at::layer_norm(expected, {4}, {}, {}, 1e-5);
  at::Tensor found = once;
  for (int i = 0; i < 3; ++i) found = at::layer_norm(found, {4}, {}, {}, 1e-5);
  EXPECT_LE(difference(hidden, found), 1e-12);
}

TEST(Classification, ReadsALearnedRowOrTheMeanOfTheRealOnes) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(1).tokens({2, 4}, 7),
                   valid = at::arange(4).unsqueeze(0) < at::tensor({2, 4}, at::kLong).unsqueeze(1);
  const auto plain = encoder_of({}), mean = encoder_of(kClasses + std::vector<std::string>{"head.pool=mean"}),
             cls = encoder_of(kClasses);
  const auto copy = [&](const Model& to) {
    for (const auto& [name, tensor] : to.parameters().named()) {
      if (const at::Tensor source = plain->parameters().find(name); source.defined()) at::Tensor(tensor).copy_(source);
    }
  };
  copy(*mean);
  copy(*cls);
  const at::Tensor rows = plain->forward(tokens_of(tokens, valid), plain->initial_state(2)).hidden;
  const at::Tensor found = mean->forward(tokens_of(tokens, valid), mean->initial_state(2)).hidden;
  ASSERT_EQ(found.sizes(), at::IntArrayRef({2, 1, 4}));
  EXPECT_LE(difference(found[0][0], (rows[0][0] + rows[0][1]) / 2), 1e-14);
  EXPECT_LE(difference(found[1][0], rows[1].mean(0)), 1e-14);
  EXPECT_FALSE(mean->parameters().find("head.cls").defined());

  const at::Tensor row = cls->parameters().find("head.cls");
  ASSERT_EQ(row.sizes(), at::IntArrayRef({4}));
  EXPECT_EQ(test::largest(row), 0.0) << "it starts as zero";
  // Equals putting a token with that row first.
  row.copy_(plain->parameters().find("embed.weight")[3] * 2.0);  // scaled by sqrt(4)
  const at::Tensor longer = at::cat({at::full({2, 1}, 3, at::kLong), tokens}, 1);
  const at::Tensor all = plain->forward(tokens_of(longer), plain->initial_state(2)).hidden;
  EXPECT_LE(difference(cls->forward(tokens_of(tokens), cls->initial_state(2)).hidden, all.narrow(1, 0, 1)), 1e-14);
}

TEST(Classification, LogitsAreThoseOfTheFormula) {
  const at::NoGradGuard no_grad;
  const auto model = encoder_of(kClasses + std::vector<std::string>{"head.pooler=tanh", "head.hidden_dim=5"});
  const auto map = [&](const std::string& name, const at::Tensor& x) {
    const at::Tensor bias = model->parameters().find("head." + name + ".bias");
    bias.copy_(Numbers(4).normal(bias.sizes()));
    return at::matmul(x, model->parameters().find("head." + name + ".weight").t()) + bias;
  };
  const at::Tensor hidden = Numbers(3).normal({2, 1, 4});
  const at::Tensor expected = map("classifier", at::relu(map("hidden", at::tanh(map("pooler", hidden)))));
  EXPECT_LE(difference(model->logits(hidden), expected), 1e-14);
}

TEST(Classification, WhatCannotBeReadIsRefused) {
  refuse({"head.type=classification", "head.num_classes=1"}, {"head.num_classes", "2", "1"});
  refuse(kClasses + std::vector<std::string>{"backbone.type=decoder"},
         {"--set head.type", "classification", "backbone.type = \"encoder\""});
  refuse(kClasses + kBlock + std::vector<std::string>{"head.pool=mean"}, {"pool", "recurrent_tokens", "\"cls\""});
  refuse(kClasses + std::vector<std::string>{"kind=layer_stack"}, {"layer_stack", "head"});
  refuse({"head.type=clasification"}, {"clasification", "classification"});
  refuse(kClasses + std::vector<std::string>{"head.tied=false"}, {"tied"});
}

TEST(Encoder, MemoriesOfCausalLayersAreRefused) {
  refuse({"memory[0].type=segment_cache", "memory[0].same_length=true"}, {"segment_cache", "same_length", "encoder"});
  refuse({"memory[0].type=memory_tokens", "memory[0].read_mem_from_cache=true"},
         {"memory_tokens", "read_mem_from_cache", "encoder"});
  refuse({"memory[0].type=recurrent_tokens"}, {"recurrent_tokens", "layout = \"encoder\""});
  refuse(kBlock + std::vector<std::string>{"backbone.type=decoder"}, {"layout = \"encoder\"", "backbone.type"});
  refuse({"backbone.type=decoder", "backbone.token_types=2"}, {"token_types", "encoder"});
  refuse({"backbone.type=decoder", "backbone.embed_norm=true"}, {"embed_norm", "encoder"});
  refuse({"memory[0].type=grc", "memory[0].cache_len=2", "memory[0].bptt_depth=1"}, {"grc", "bptt_depth = 0", "1"});
}

TEST(RecurrentBlock, NeedsItsTokensAndNothingElse) {
  refuse({kBlock[0], kBlock[2], kBlock[3], kBlock[4]}, {"memory[0].pad_token", "layout"});
  refuse(kBlock + std::vector<std::string>{"memory[0].sep_token=7"}, {"sep_token", "vocab_size = 7", "7"});
  refuse(kBlock + std::vector<std::string>{"memory[0].block_mask=causal"}, {"block_mask", "open"});
  refuse(kBlock + std::vector<std::string>{"memory[0].read_mem_from_cache=true"}, {"read_mem_from_cache"});
  refuse(kBlock + std::vector<std::string>{"memory[0].aux_loss.token=3"}, {"aux_loss", "write rows"});
  refuse(kBlock + std::vector<std::string>{"kind=layer_stack"}, {"layer_stack", "special tokens"});
  refuse({"backbone.type=decoder", kBlock[0], "memory[0].memory_position=authors"}, {"memory_position", "encoder"});
  refuse({"backbone.type=decoder", kBlock[0], "memory[0].cls_token=1"}, {"cls_token", "encoder"});
}

TEST(RecurrentBlock, MoreMemoryThanASegmentHasRoomForIsRefused) {
  const std::vector<std::string> nine = {"backbone.position.type=learned", "backbone.position.max_len=9"};
  EXPECT_NO_THROW(encoder_of(kBlock + nine));  // [CLS] 2 [SEP] 4 [SEP]
  refuse(kBlock + nine + std::vector<std::string>{"memory[0].num_mem_tokens=3"},
         {"num_mem_tokens = 3", "segment_size = 4", "10 rows", "max_len is 9"});
  // The error names the place in the file.
  const base::Node file = base::parse_toml(
      "segment_size = 4\nbackbone = { position = { type = \"learned\", max_len = 9 } }\n[[memory]]\n"
      "type = \"recurrent_tokens\"\nnum_mem_tokens = 3\n",
      "long.toml");
  expect_error<base::InputError>([&] { base::read_options<ModelOptions>(file); },
                                 {"long.toml:3", "num_mem_tokens = 3", "max_len is 9"});
  // A decoder has two blocks of memory: 3 + 4 + 3.
  refuse(nine + std::vector<std::string>{"backbone.type=decoder", "memory[0].type=recurrent_tokens",
                                         "memory[0].num_mem_tokens=3"},
         {"num_mem_tokens = 3", "10 rows"});
  refuse(nine + std::vector<std::string>{"backbone.type=decoder", "memory[0].type=memory_tokens",
                                         "memory[0].num_mem_tokens=6"},
         {"num_mem_tokens = 6", "10 rows"});
}

TEST(RecurrentBlock, IsTheModelOfItsRows) {
  // Rows by hand through the same layers: [CLS] mem [SEP] x [SEP], one sequence at a time, without padding.
  const at::NoGradGuard no_grad;
  for (const bool authors : {false, true}) {
    auto options = kBlock + kClasses +
                   std::vector<std::string>{"backbone.position.type=learned", "backbone.position.max_len=16"};
    if (authors) options.emplace_back("memory[0].memory_position=authors");
    const auto model = encoder_of(options);
    const auto stack = encoder_of(
        {"kind=layer_stack", "backbone.position.type=learned", "backbone.position.max_len=16"});
    for (const auto& [name, tensor] : stack->parameters().named())
      at::Tensor(tensor).copy_(model->parameters().find(name));
    const at::Tensor tokens = Numbers(1).tokens({2, 4}, 7), lengths = at::tensor({2, 4}, at::kLong);
    const auto step = model->forward(tokens_of(tokens, at::arange(4).unsqueeze(0) < lengths.unsqueeze(1)),
                                     model->initial_state(2));
    const at::Tensor memory = step.state.fields().front().second;
    for (int64_t row = 0; row < 2; ++row) {
      const at::Tensor table = model->parameters().find("embed.weight") * 2.0;
      const at::Tensor own = at::embedding(table, tokens[row].narrow(0, 0, lengths[row].item<int64_t>()));
      core::Segment by_hand;
      by_hand.rows = at::cat({table.narrow(0, 1, 1), model->parameters().find("memory.tokens"), table.narrow(0, 2, 1),
                              own, table.narrow(0, 2, 1)})
                         .unsqueeze(0);
      const at::Tensor hidden = stack->forward(by_hand, stack->initial_state(1)).hidden[0];
      EXPECT_LE(difference(step.hidden[row][0], hidden[0]), 1e-14);
      EXPECT_LE(difference(memory[row], hidden.narrow(0, authors ? 0 : 1, 2)), 1e-14);
    }
  }
}

TEST(Encoder, WhatNeedsTheNextTokenRefusesIt) {
  const auto refused = [](const std::vector<std::string>& assignments, std::initializer_list<std::string> parts) {
    const auto model = encoder_of(assignments);
    expect_error<base::InputError>([&] { require_next_token_model(*model, "somebody"); }, parts);
  };
  refused(kClasses, {"somebody", "head.type = \"classification\""});
  refused({}, {"somebody", "backbone.type = \"encoder\""});
  EXPECT_NO_THROW(require_next_token_model(*encoder_of({"backbone.type=decoder"}), "somebody"));
}

// The arena's encoders at a smaller size, on a batch with padding, with and without the gated recurrent cache.
TEST(Encoder, PresetsOfTheArenaRun) {
  const at::NoGradGuard no_grad;
  for (const char* preset : {"lra_transformer", "lra_bigbird", "lra_reformer"}) {
    for (const char* grc : {"", "[[memory]]\ntype = \"grc\"\ncache_len = 5\n",
                            "[[memory]]\ntype = \"grc\"\nvariant = \"authors\"\ncache_len = 21\n"}) {
      SCOPED_TRACE(std::string(preset) + grc);
      const std::string
          small = "preset = \"" + std::string(preset) +
                  "\"\nsegment_size = 20\nembedding = { vocab_size = 16 }\nbackbone = { num_layers = 2, dim = 32, "
                  "num_heads = 4, ffn_dim = 12 }\n";
      const auto model = build(read_model_options(base::parse_toml(small + grc, "small.toml")), 3);
      const at::Tensor tokens = Numbers(1).tokens({3, 20}, 16),
                       valid = at::arange(20).unsqueeze(0) < at::tensor({20, 7, 13}, at::kLong).unsqueeze(1);
      const core::StepResult step = model->forward(tokens_of(tokens, valid), model->initial_state(3));
      const at::Tensor logits = model->logits(step.hidden);
      EXPECT_EQ(logits.sizes(), at::IntArrayRef({3, 1, 10}));
      EXPECT_TRUE(logits.isfinite().all().item<bool>());
      EXPECT_GT(difference(logits[0], logits[1]), 1e-6);
    }
  }
}

TEST(Encoder, DrawsTheTableOfItsBlock) {
  const auto model = encoder_of(kBlock);
  const core::AttendTable table = model->attend_tables(4, model->initial_state(1), Mode::evaluate).at(0).table;
  EXPECT_EQ(table.num_rows(), 9);
  EXPECT_TRUE(table.open());
  EXPECT_NE(table.draw().find("read 2"), std::string::npos) << table.draw();
}

}  // namespace
}  // namespace mnemo::models
