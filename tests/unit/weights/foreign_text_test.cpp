// Keys of a published text model's config.json that change what it computes, as transformers reads them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file_io.h"
#include "models/presets.h"
#include "ops/activation.h"
#include "tests/support/expect_error.h"
#include "tests/support/text_folders.h"
#include "weights/foreign.h"

namespace mnemo::weights {
namespace {

using base::Node;
using test::expect_error;

using Keys = std::initializer_list<std::pair<std::string_view, Node>>;

/// The options of a golden folder's config.json with other keys.
models::ModelOptions with_keys(const std::string& folder, const Keys& keys,
                               std::initializer_list<std::string_view> without = {}) {
  const std::string path = test::kTexts + folder + "/config.json";
  Node config = parse_model_config(base::read_file(path, 1 << 22), path);
  for (const std::string_view key : without) config.erase(key);
  for (const auto& [key, value] : keys) config.set(key, value);
  return models::read_model_options(foreign_format_of(config)->options(config));
}

void refused_with_keys(const std::string& folder, const Keys& keys, std::initializer_list<std::string> parts) {
  expect_error<base::InputError>([&] { with_keys(folder, keys); }, parts);
}

Node rotary_of(const models::ModelOptions& options) { return options.backbone.stack().attention.table().at("rotary"); }

// The golden Llama says rope_parameters, of type default.
TEST(ForeignText, RopeScalingCountsBeforeRopeParameters) {
  const Node plain = rotary_of(with_keys("llama", {}));
  const Node linear = Node::table({{"type", "linear"}, {"factor", 4.0}});
  const models::ModelOptions scaled = with_keys("llama", {{"rope_scaling", linear}});
  EXPECT_EQ(rotary_of(scaled).at("scaling").at("type").as_string(), "interpolation");
  EXPECT_EQ(rotary_of(scaled).at("scaling").at("factor").as_double(), 4.0);
  for (const Node& nothing : {Node(), Node::table()})
    EXPECT_EQ(rotary_of(with_keys("llama", {{"rope_scaling", nothing}})), plain);
  // Only one of the two is read, rope_theta included.
  const Node turned = Node::table({{"rope_type", "default"}, {"rope_theta", 500.0}});
  EXPECT_EQ(rotary_of(with_keys("llama", {{"rope_parameters", turned}})).at("base").as_double(), 500.0);
  EXPECT_EQ(
      rotary_of(with_keys("llama", {{"rope_parameters", turned}, {"rope_scaling", linear}})).at("base").as_double(),
      10000.0);
  EXPECT_EQ(rotary_of(with_keys("llama", {{"rope_scaling", turned}})).at("base").as_double(), 500.0);
  refused_with_keys("llama", {{"rope_scaling", Node::table({{"type", "yarn"}, {"factor", 4.0}})}},
                    {"'rope_scaling'", "\"yarn\""});
  refused_with_keys("llama", {{"rope_scaling", "linear"}}, {"'rope_scaling'", "expected an object or null"});
}

TEST(ForeignText, RotarySettingsNameATypeAndAFactor) {
  const auto refused = [](const Node& settings, std::initializer_list<std::string> parts) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) refused_with_keys("llama", {{key, settings}}, parts);
  };
  refused(Node::table({{"rope_type", Node()}, {"type", "yarn"}, {"factor", 4.0}}), {"rope type", "\"yarn\""});
  refused(Node::table({{"factor", 4.0}}), {"expected a rope_type beside factor"});
  refused(Node::table({{"rope_type", Node()}, {"type", Node()}, {"factor", 4.0}}), {"expected a rope_type"});
  refused(Node::table({{"type", "linear"}}), {"expected a factor", "\"linear\""});
  refused(Node::table({{"rope_type", "llama3"}, {"original_max_position_embeddings", 16}}),
          {"expected a factor", "\"llama3\""});
  const Node turned = Node::table({{"rope_type", "default"}, {"rope_theta", 500.0}});
  refused(Node::table({{"full_attention", turned}, {"sliding_attention", turned}}),
          {"expected the same for all layers", "\"full_attention\""});
  const Node old = Node::table({{"rope_type", Node()}, {"type", "linear"}, {"factor", 2.0}});
  EXPECT_EQ(rotary_of(with_keys("llama", {{"rope_scaling", old}})).at("scaling").at("factor").as_double(), 2.0);
}

// Only a head for masked tokens has an activation of its own.
TEST(ForeignText, AClassifierMayHaveSilu) {
  EXPECT_EQ(with_keys("bert_cls", {{"hidden_act", "silu"}}).backbone.stack().activation, ops::Activation::silu);
  refused_with_keys("bert_mlm", {{"hidden_act", "silu"}}, {"'hidden_act'", "masked tokens"});
  refused_with_keys("deberta_v3_cls", {{"pos_att_type", -3}}, {"'pos_att_type'", "c2p"});
}

TEST(ForeignText, WholeHeadsAreTurnedWhereAnArchitectureHasNoShare) {
  const auto settings = [](double share) {
    return Node::table({{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", share}});
  };
  const Node plain = rotary_of(with_keys("llama", {}));
  EXPECT_EQ(rotary_of(with_keys("llama", {{"rope_parameters", settings(1.0)}})), plain);
  for (const char* folder : {"llama", "mistral", "qwen2"}) {
    refused_with_keys(folder, {{"rope_parameters", settings(0.7)}}, {"'rope_parameters'", "whole heads", "0.7"});
    refused_with_keys(folder, {{"partial_rotary_factor", 0.5}}, {"'partial_rotary_factor'", "whole heads", "0.5"});
  }
  // GPT-NeoX has it.
  const models::ModelOptions half = with_keys("gpt_neox", {{"rope_parameters", settings(0.5)}});
  EXPECT_EQ(rotary_of(half).at("dims").as_int(), half.backbone.stack().head_width() / 2);
}

// transformers' Mistral has a window of 4,096 unless the key is null.
TEST(ForeignText, AMistralHasAWindowUnlessTheKeyIsNull) {
  const models::ModelOptions silent = with_keys("mistral", {}, {"sliding_window"});
  ASSERT_TRUE(silent.backbone.stack().attention.table().contains("window_size"));
  EXPECT_EQ(silent.backbone.stack().attention.table().at("window_size").as_int(), 4096);
  EXPECT_FALSE(
      with_keys("mistral", {{"sliding_window", Node()}}).backbone.stack().attention.table().contains("window_size"));
  EXPECT_EQ(with_keys("mistral", {{"sliding_window", 7}}).backbone.stack().attention.table().at("window_size").as_int(),
            7);
}

// transformers turns that many dimensions where the key is there.
TEST(ForeignText, AGptNeoxHasHeadsOfItsWidth) {
  const models::ModelOptions plain = with_keys("gpt_neox", {});
  const int64_t width = plain.backbone.stack().head_width();
  EXPECT_EQ(base::write_options(with_keys("gpt_neox", {{"head_dim", width}})), base::write_options(plain));
  EXPECT_EQ(base::write_options(with_keys("gpt_neox", {{"head_dim", Node()}})), base::write_options(plain));
  refused_with_keys("gpt_neox", {{"head_dim", width / 2}}, {"'head_dim'", "num_attention_heads"});
}

TEST(ForeignText, T5SaysItsFeedForwardOnce) {
  refused_with_keys("t5_v11", {{"dense_act_fn", "relu"}}, {"'dense_act_fn'", "\"gelu_new\"", "gated-gelu", "\"relu\""});
  refused_with_keys("t5_v10", {{"dense_act_fn", "silu"}}, {"'dense_act_fn'", "\"relu\"", "\"silu\""});
  refused_with_keys("t5_v11", {{"is_gated_act", false}}, {"'is_gated_act'", "expected true", "found false"});
  refused_with_keys("t5_v10", {{"is_gated_act", true}}, {"'is_gated_act'", "expected false", "found true"});
  for (const char* folder : {"t5_v10", "t5_v11"}) {
    const Node said = base::write_options(with_keys(folder, {}));
    EXPECT_EQ(base::write_options(with_keys(folder, {}, {"dense_act_fn", "is_gated_act"})), said) << folder;
    EXPECT_EQ(base::write_options(with_keys(folder, {{"dense_act_fn", Node()}, {"is_gated_act", Node()}})), said);
  }
}

}  // namespace
}  // namespace mnemo::weights
