#include "inspect/draw/attention_view.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "models/text_model.h"
#include "tests/support/numbers.h"

namespace mnemo::inspect {
namespace {

InputAttention look(const char* memory) {
  base::Node node = base::parse_toml(
      "segment_size = 4\n[embedding]\nvocab_size = 7\n[backbone]\nnum_layers = 2\ndim = 8\nnum_heads = 2\nffn_dim = "
      "8\n",
      "test");
  base::set_value(node, memory);
  const auto model = models::build_as<models::TextModel>(base::read_options<models::ModelOptions>(node), 1,
                                                         at::kDouble);
  std::vector<data::Batch> segments(2);
  test::Numbers numbers(2);
  for (data::Batch& segment : segments) segment.input.tokens = numbers.tokens({1, 4}, 7);
  return look_at_input(*model, segments, {{"a", "b", "c", "d"}, {"e", "f", "g", "h"}}, {}, 1000);
}

/// The float16 numbers of base64 text, decoded here anew.
std::vector<double> halves(const std::string& text) {
  std::string bytes;
  uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    group = group << 6 | static_cast<uint32_t>(std::string(digits).find(c));
    if ((bits += 6) >= 8) bytes += static_cast<char>(group >> (bits -= 8) & 255);
  }
  const at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size() / 2)}, at::kHalf);
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(tensor.mutable_data_ptr()));
  const at::Tensor wide = tensor.to(at::kDouble);
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

TEST(AttentionView, HoldsEveryWeightUnderItsLabels) {
  const InputAttention input = look("memory=[{type=\"recurrent_tokens\",num_mem_tokens=2}]");
  const base::Node view = attention_view(input);
  const AttentionSummary& facts = input.shown();
  EXPECT_EQ(view.at("segment").as_int(), 2);
  EXPECT_EQ(view.at("num_segments").as_int(), 2);
  ASSERT_EQ(view.at("maps").size(), 2 * facts.maps.size());
  for (size_t m = 0; m < facts.maps.size(); ++m) {
    const base::Node& map = view.at("maps").items()[m];
    const std::vector<double> weights = halves(map.at("weights").as_string());
    ASSERT_EQ(static_cast<int64_t>(weights.size()), facts.maps[m].weights.numel());
    for (size_t i = 0; i < weights.size(); ++i)
      EXPECT_NEAR(weights[i], facts.maps[m].weights.const_data_ptr<double>()[i], 1e-3);
    EXPECT_EQ(map.at("segment").as_int(), 2);
    EXPECT_EQ(map.at("layer").as_int(), facts.maps[m].layer);
    EXPECT_EQ(map.at("head").as_int(), facts.maps[m].head);
    const base::Node& rows = view.at("axes").items()[static_cast<size_t>(map.at("rows").as_int())];
    ASSERT_EQ(rows.at("labels").size(), 8u);
    EXPECT_EQ(rows.at("labels").items()[0].as_string(), "read 0");
    EXPECT_EQ(rows.at("labels").items()[2].as_string(), "e");
    EXPECT_EQ(rows.at("labels").items()[7].as_string(), "write 1");
    EXPECT_EQ(rows.at("spans").items()[1].at("kind").as_string(), "tokens");
    EXPECT_EQ(rows.at("spans").items()[1].at("length").as_int(), 4);
  }
  EXPECT_EQ(view.at("axes").size(), 2u) << "rows and keys are the same here, in every layer of a segment";
  const base::Node& earlier = view.at("maps").items()[facts.maps.size()];
  EXPECT_EQ(earlier.at("segment").as_int(), 1);
  EXPECT_EQ(earlier.at("rows").as_int(), 1);
  EXPECT_EQ(view.at("axes").items()[1].at("labels").items()[2].as_string(), "a");
}

TEST(AttentionView, NamesThePastAndTheSlots) {
  base::Node node = attention_view(look("backbone.attention={type=\"abc\",num_slots=3}"));
  bool past = false, slots = false;
  for (const base::Node& map : node.at("maps").items()) {
    past = past || map.contains("past");
    const base::Node& columns = node.at("axes").items()[static_cast<size_t>(map.at("columns").as_int())];
    if (map.at("name").as_string() != "held") continue;
    slots = true;
    EXPECT_EQ(columns.at("labels").items()[2].as_string(), "slot 2");
    EXPECT_EQ(columns.at("spans").items()[0].at("kind").as_string(), "slots");
  }
  EXPECT_TRUE(past);
  EXPECT_TRUE(slots);
}

TEST(AttentionView, HeadsBeyondTheLimitAreCounted) {
  const InputAttention input = look("memory=[]");
  const std::vector<HeadMap>& maps = input.shown().maps;
  const size_t one = 200 + static_cast<size_t>(maps[0].weights.numel()) * 8 / 3;
  const base::Node view = attention_view(input, 2 * one);
  EXPECT_EQ(view.at("maps").size(), 2u);
  EXPECT_EQ(view.at("maps").items()[1].at("segment").as_int(), 2) << "those of the chosen segment come first";
  EXPECT_EQ(view.at("left_out").as_int(), 2 * static_cast<int64_t>(maps.size()) - 2);
}

}  // namespace
}  // namespace mnemo::inspect
