#include "models/presets.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "models/model.h"
#include "tests/support/expect_error.h"

namespace mnemo::models {
namespace {

using test::expect_error;

base::Node table(const std::string& toml) { return base::parse_toml(toml, "recipe.toml"); }

ModelOptions published(const Preset& preset) {
  base::Node named = base::Node::table({{"preset", preset.name}});
  if (preset.vocab_size > 0) named.set("embedding", base::Node::table({{"vocab_size", preset.vocab_size}}));
  return read_model_options(named);
}

TEST(Presets, HaveTheParametersOfTheirPapers) {
  // The arena's encoders: words, [CLS], layers of four projections (Reformer: two), feed-forward and norms, the last
  // norm, the head.
  const auto arena = [](int64_t layers, int64_t maps) {
    return 16 * 512 + 512 + layers * (maps * 512 * 512 + 2 * 512 * 1024 + 1024 + 512 + 4 * 512) + 2 * 512 +
           (512 * 1024 + 1024) + (1024 * 10 + 10);
  };
  const std::map<std::string_view, int64_t> counts = {
      {"lra_transformer", arena(4, 4)},
      {"lra_bigbird", arena(4, 4)},
      {"lra_reformer", arena(4, 2)},
      {"lra_transformer_6_layers", arena(6, 4)},
      {"lra_bigbird_6_layers", arena(6, 4)},
      {"lra_reformer_6_layers", arena(6, 2)},
      // #params as printed by the authors' program
      {"transformer_xl_wt103_base", 151'107'538},
      {"transformer_xl_wt103_large", 285'170'506},
      {"enwik8_12_layers", 41'055'436},
      {"transformer_xl_enwik8", 41'055'436},
      {"rmt_wt103", 151'107'538 + 10 * 410},
      // 246,933,504 with fairseq's 267,744 words
      {"baevski_auli", 246'933'504 - (267'744 - 267'735) * 64},
      // from timm and torchvision, with heads of 1000 classes
      {"vit_small_patch16", 22'050'664},
      {"vit_small_patch32", 22'878'952},
      {"vit_base_patch16", 86'567'656},
      {"vit_base_patch32", 88'224'232},
      {"vit_large_patch16", 304'326'632},
      {"vit_large_patch32", 306'535'400},
      // from timm
      {"pvt_v2_b2", 25'362'856},
      {"swin_tiny", 28'288'354},
      {"kasai_32_layers", 246'933'504 - (267'744 - 267'735) * 64 + 16 * 12'596'224},
  };
  for (const Preset& preset : presets()) {
    const int64_t found = count_parameters(published(preset));
    const auto expected = counts.find(preset.name);
    if (expected != counts.end()) {
      EXPECT_EQ(found, expected->second) << preset.name;
    }
    if (preset.published == 0) continue;
    // Within one unit of the published figure's last digit, unless the preset explains the difference.
    const bool same = std::abs(static_cast<double>(found) / 1e6 - preset.published) < 1.0;
    EXPECT_TRUE(same || preset.figure.find(';') != std::string_view::npos) << preset.name << ": " << found;
  }
}

// Vaswani et al. 2017, section 3, with fairseq's biases: maps D x D with bias in each attention, a feed-forward of
// width F, a norm (weight and bias) after each branch; an encoder layer has one attention, a decoder layer two. No
// positions.
TEST(Presets, TranslationModelsHaveExactlyTheParametersOfTheFormula) {
  const auto layers = [](int64_t d, int64_t f) {
    const int64_t attention = 4 * (d * d + d), feed_forward = 2 * d * f + f + d, norm = 2 * d;
    const int64_t encoder = attention + feed_forward + 2 * norm, decoder = 2 * attention + feed_forward + 3 * norm;
    return 6 * (encoder + decoder);
  };
  const auto count = [](const char* preset, const char* embedding) {
    return count_parameters(
        read_model_options(table(fmt::format("preset = \"{}\"\nembedding = {{ {} }}\n", preset, embedding))));
  };
  // One table of 37,000 tokens for source, target and output.
  EXPECT_EQ(count("transformer_base", "vocab_size = 37000"), 37'000 * 512 + layers(512, 2048));
  EXPECT_EQ(count("transformer_base", "vocab_size = 37000"), 63'082'496);
  EXPECT_EQ(count("transformer_big", "vocab_size = 37000"), 37'000 * 1024 + layers(1024, 4096));
  EXPECT_EQ(count("transformer_big", "vocab_size = 37000"), 214'245'376);
  // fairseq prints this number for its IWSLT14 vocabularies; target and output share a table.
  EXPECT_EQ(count("transformer_iwslt_de_en", "vocab_size = 6632, source_vocab_size = 8848"),
            (8848 + 6632) * 512 + layers(512, 1024));
  EXPECT_EQ(count("transformer_iwslt_de_en", "vocab_size = 6632, source_vocab_size = 8848"), 39'469'056);
}

TEST(Presets, AreDeclaredAsTheyAreBuilt) {
  const ModelOptions small = read_model_options(
      table("preset = \"transformer_xl_wt103_large\"\nembedding = {vocab_size = 41, cutoffs = [9, "
            "20], dim = 16}\nhead.adaptive.cutoffs = [9, 20]\n"
            "head.adaptive.tie_projections = [false, true, true]\nbackbone = {num_layers = 2, dim = "
            "8, num_heads = 2, head_dim = 4, ffn_dim = 12}\n"));
  const auto built = build(small);
  int64_t count = 0;
  for (const auto& [name, tensor] : built->parameters().named()) count += tensor.numel();
  EXPECT_EQ(count_parameters(small), count);
}

TEST(Presets, KeysBesideThemWin) {
  const ModelOptions options = read_model_options(
      table("preset = \"transformer_xl_wt103_base\"\nsegment_size = 64\n[backbone]\nnum_layers = "
            "2\n[backbone.attention]\nclamp_len = 7\n"
            "[head.adaptive]\ndropout = 0.25\n"));
  EXPECT_EQ(options.segment_size, 64);
  EXPECT_EQ(options.backbone.stack().num_layers, 2);
  EXPECT_EQ(options.backbone.stack().dim, 410);
  EXPECT_EQ(options.backbone.stack().attention.table().at("clamp_len").as_int(), 7);
  EXPECT_EQ(options.backbone.stack().attention.table().at("eval_clamp_len").as_int(), 400);
  EXPECT_EQ(options.head.table().at("adaptive").at("dropout").as_double(), 0.25);
  EXPECT_EQ(options.head.table().at("adaptive").at("cutoffs").size(), 3U);
  EXPECT_EQ(options.memory.size(), 1U);
  EXPECT_FALSE(options.preset);
  // A list, or a table of another type, replaces that of the preset.
  const ModelOptions other = read_model_options(
      table("preset = \"transformer_xl_enwik8\"\nmemory = []\n[backbone]\nattention = \"softmax\"\n"));
  EXPECT_TRUE(other.memory.empty());
  EXPECT_EQ(other.backbone.stack().attention.type(), "softmax");
  EXPECT_FALSE(other.backbone.stack().attention.table().contains("clamp_len"));
}

TEST(Presets, AreWrittenOutInFull) {
  const ModelOptions options = read_model_options(table("preset = \"transformer_xl_enwik8\"\n"));
  const base::Node written = base::write_options(options);
  EXPECT_TRUE(written.at("preset").is_null());
  EXPECT_EQ(base::write_options(read_model_options(written)), written);
}

TEST(Presets, UnknownNamesSuggestTheNearest) {
  expect_error<base::InputError>([] { read_model_options(table("\npreset = \"transformer_xl_enwik\"\n")); },
                                 {"recipe.toml:2", "'model.preset'", "did you mean 'transformer_xl_enwik8'"});
  expect_error<base::InputError>([] { read_model_options(table("preset = 3\n")); },
                                 {"recipe.toml:1", "expected string", "3"});
  expect_error<base::InputError>([] { read_model_options(table("presett = \"x\"\n")); },
                                 {"presett", "did you mean 'preset'"});
  // A preset that is read but not applied is an error.
  expect_error<base::InputError>(
      [] { base::read_options<ModelOptions>(table("preset = \"transformer_xl_enwik8\"\n")); },
      {"preset", "has not been expanded"});
  // An error about a key that the preset's options do not have names its own place.
  expect_error<base::InputError>(
      [] { read_model_options(table("preset = \"transformer_xl_enwik8\"\n[backbone]\nnum_layer = 3\n")); },
      {"recipe.toml:3", "backbone.num_layer", "num_layers"});
}

}  // namespace
}  // namespace mnemo::models
