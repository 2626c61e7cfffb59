#include "weights/foreign.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>

#include "base/error.h"
#include "base/file_io.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::weights {
namespace {

using test::expect_error;

const std::string kFolder = MNEMO_SOURCE_DIR "/tests/golden/data/vision_import/";

base::Node config_of(const std::string& folder) {
  const std::string path = kFolder + folder + "/config.json";
  return parse_model_config(base::read_file(path, 1 << 22), path);
}

models::ModelOptions options_of(const base::Node& config) {
  const ForeignFormat* format = foreign_format_of(config);
  base::require(format != nullptr, "the config is ours");
  return models::read_model_options(format->options(config));
}

TEST(Foreign, NamesAreTranslatedByPattern) {
  const NameRule rule{"backbone.stages.#.layers.#.attn.*", "block@.#.attn.*"};
  EXPECT_EQ(theirs_by(rule, "backbone.stages.0.layers.11.attn.q.weight"), "block1.11.attn.q.weight");
  EXPECT_EQ(theirs_by(rule, "backbone.stages.9.layers.0.attn."), "block10.0.attn.");
  EXPECT_EQ(theirs_by(rule, "backbone.stages.x.layers.0.attn.q"), "");
  EXPECT_EQ(theirs_by(rule, "backbone.stages.0.layers.0.ffn.q"), "");
  EXPECT_EQ(theirs_by({"norm", "n"}, "norm.weight"), "");
  EXPECT_EQ(theirs_by({"norm", "n"}, "nor"), "");
  EXPECT_EQ(theirs_by({"norm", "n"}, "norm"), "n");
}

// Published models at full size: the name and shape of every tensor, and the total.
TEST(Foreign, ModelsOfOtherLibrariesHaveTheirNamesAndShapes) {
  for (const char* folder : {"shapes_timm_vit_small_patch16_224", "shapes_hf_vit_base_patch16_224"}) {
    const base::Node config = config_of(folder);
    const models::ModelOptions options = options_of(config);
    const models::ImageModel model(options, 0, at::kFloat, {}, at::kMeta);
    const std::string path = kFolder + folder + "/shapes.json";
    const base::Node shapes = parse_model_config(base::read_file(path, 1 << 22), path);
    EXPECT_EQ(model.parameters().count(), shapes.at("total_parameters").as_int()) << folder;
    std::map<std::string, std::vector<int64_t>> expected, found;
    for (const base::Node::Member& member : shapes.at("tensors").members()) {
      for (const base::Node& size : member.value.at("shape").items()) expected[member.key].push_back(size.as_int());
    }
    for (const auto& [name, tensor] : to_theirs(*foreign_format_of(config), model.parameters().named()))
      found[name] = tensor.sizes().vec();
    EXPECT_EQ(found, expected) << folder;
  }
}

TEST(Foreign, LoadingAndWritingAreEachOthersInverse) {
  for (const char* folder : {"timm_vit", "hf_vit"}) {
    const base::Node config = config_of(folder);
    const ForeignFormat& format = *foreign_format_of(config);
    const models::ModelOptions options = options_of(config);
    const models::ImageModel model(options, 0, at::kFloat);
    const TensorFile file = read_safetensors(kFolder + folder + "/model.safetensors");
    load_theirs(format, file, model.parameters().named(), "m");
    const NamedTensors back = to_theirs(format, model.parameters().named());
    EXPECT_EQ(back.size(), file.tensors.size());
    for (const auto& [name, tensor] : back) EXPECT_TRUE(test::same_bits(tensor, file.at(name, "m"))) << name;
    // A newly written config means the same.
    EXPECT_EQ(base::write_options(models::read_model_options(format.options(format.config(options)))),
              base::write_options(options))
        << folder;
  }
}

TEST(Foreign, ConfigsHaveTheFactorysOwnValues) {
  const auto read = [](const std::string& text) { return options_of(parse_model_config(text, "m/config.json")); };
  const auto vit = [](const models::ModelOptions& options) {
    return std::get<backbones::VitOptions>(options.backbone.vision());
  };
  const auto large = vit(read(R"({"architecture": "vit_large_patch32_384"})"));
  EXPECT_EQ(large.image_size, (std::vector<int64_t>{384, 384}));
  EXPECT_EQ(large.patch_size, 32);
  EXPECT_EQ(large.dim, 1024);
  EXPECT_EQ(large.num_layers, 24);
  EXPECT_EQ(large.num_heads, 16);
  EXPECT_EQ(large.norm_eps, 1e-6);
  EXPECT_EQ(
      read(R"({"architecture": "deit_tiny_patch16_224", "num_classes": 7})").head.table().at("num_classes").as_int(),
      7);
  EXPECT_EQ(
      vit(read(
              R"({"architecture": "vit_base_patch16_224", "model_args": {"img_size": 32, "patch_size": [4, 4], "init_values": 0.1}})"))
          .image_size,
      (std::vector<int64_t>{32, 32}));
  EXPECT_EQ(read(R"({"architecture": "vit_base_patch16_224", "model_args": {"global_pool": "avg", "fc_norm": false}})")
                .head.table()
                .at("pool")
                .as_string(),
            "mean");
  const auto hf = vit(read(R"({"architectures": ["ViTForImageClassification"]})"));
  EXPECT_EQ(hf.dim, 768);
  EXPECT_EQ(hf.norm_eps, 1e-12);
  EXPECT_EQ(hf.ffn_dim(), 3072);
  EXPECT_EQ(foreign_format_of(parse_model_config(R"({"kind": "model"})", "m")), nullptr);
}

// Like DINO's: num_classes 0, no head tensors, and back again.
TEST(Foreign, ABackboneWithoutAHeadIsRead) {
  const std::string path = kFolder + "timm_vit/config.json";
  std::string text = base::read_file(path, 1 << 22);
  for (size_t at = 0; (at = text.find("\"num_classes\": 10", at)) != std::string::npos;)
    text.replace(at, 17, "\"num_classes\": 0");
  const base::Node config = parse_model_config(text, path);
  const ForeignFormat& format = *foreign_format_of(config);
  const models::ImageModel model(options_of(config), 1, at::kFloat);
  TensorFile file = read_safetensors(kFolder + "timm_vit/model.safetensors");
  ASSERT_EQ(std::erase_if(file.tensors, [](const auto& one) { return one.first.starts_with("head."); }), 2U);
  load_theirs(format, file, model.parameters().named(), "m");
  EXPECT_EQ(to_theirs(format, model.parameters().named()).size(), file.tensors.size());
  EXPECT_EQ(format.config(model.options()).at("num_classes").as_int(), 0);
}

TEST(Foreign, WhatCannotBeHonouredIsNamed) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> parts) {
    expect_error<base::InputError>([&] { options_of(parse_model_config(text, "m/config.json")); }, parts);
  };
  refused(R"({"architecture": "convnext_tiny"})", {"m/config.json", "architecture", "\"convnext_tiny\"", "timm_vit"});
  refused(R"({"architecture": "vit_base_patch16_clip_224"})", {"vit_base_patch16_clip_224"});
  refused(R"({"architectures": ["MambaModel"]})", {"architectures", "\"MambaModel\"", "huggingface_vit"});
  refused(R"({"model_type": "mamba"})", {"model_type", "\"mamba\""});
  refused(R"({"architecture": "vit_base_patch16_224", "model_args": {"pre_norm": true}})", {"model_args.pre_norm"});
  refused(R"({"architecture": "vit_base_patch16_224", "model_args": {"global_pool": "avg"}})",
          {"model_args.global_pool", "fc_norm"});
  refused(R"({"architecture": "vit_base_patch16_224", "model_args": {"patch_size": [16, 8]}})",
          {"equal sides", "16 x 8"});
  refused(R"({"architecture": "vit_base_patch16_224", "model_args": {"img_size": "big"}})",
          {"[height, width]", "\"big\""});
  refused(R"({"architecture": "vit_base_patch16_224", "model_args": {"num_heads": 7}})",
          {"num_heads", "divisor of dim = 768"});
  refused(R"({"architecture": "vit_base_patch16_224", "model_args": 3})", {"model_args", "table"});
  refused(R"({"architectures": ["ViTForImageClassification"], "hidden_act": "relu"})", {"hidden_act", "gelu", "relu"});
  refused(R"({"architectures": ["ViTForImageClassification"], "hidden_size": 0})", {"hidden_size", "0"});
  refused(R"({"architectures": ["ViTForImageClassification"], "is_causal": true})",
          {"is_causal", "expected boolean false"});
  refused(R"({"architectures": ["ViTForImageClassification"], "hidden_size": "x"})", {"'hidden_size'", "string"});
  refused(R"({"architectures": ["ViTForImageClassification"], "attention_probs_dropout_prob": 0.1})",
          {"attention_probs_dropout_prob", "0.1"});
  refused(R"({"architectures": ["ViTForImageClassification"], "problem_type": "multi_label_classification"})",
          {"problem_type", "multi_label_classification"});
  expect_error<base::InputError>([] { foreign_format("timm_vitt"); }, {"timm_vitt", "timm_vit"});
}

TEST(Foreign, WrongTensorsAreListedByTheirNamesAndNothingIsLoaded) {
  const base::Node config = config_of("timm_vit");
  const ForeignFormat& format = *foreign_format_of(config);
  const models::ImageModel model(options_of(config), 0, at::kFloat);
  const at::Tensor before = model.parameters().all().front().tensor.detach().clone();
  const TensorFile good = read_safetensors(kFolder + "timm_vit/model.safetensors");
  const auto refused = [&](const std::function<void(NamedTensors&)>& spoil, std::initializer_list<std::string> parts) {
    TensorFile file = good;
    spoil(file.tensors);
    expect_error<base::InputError>(
        [&] { load_theirs(format, file, model.parameters().named(), "m/model.safetensors"); }, parts);
    EXPECT_TRUE(test::same_bits(model.parameters().all().front().tensor, before));
  };
  const auto named = [](NamedTensors& tensors, const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.first == name; });
  };
  refused([&](NamedTensors& all) { all.erase(named(all, "blocks.1.attn.qkv.weight")); },
          {"m/model.safetensors", "missing 1: 'blocks.1.attn.qkv.weight'"});
  refused(
      [&](NamedTensors& all) {
        named(all, "pos_embed")->second = at::zeros({1, 16, 48});
      },
      {"'pos_embed' expected shape [1,17,48], found [1,16,48]"});
  refused([&](NamedTensors& all) { named(all, "cls_token")->second = at::zeros({48}); },
          {"'cls_token' expected shape [1,1,48], found [48]"});
  refused([&](NamedTensors& all) { all.emplace_back("blocks.3.norm1.weight", at::zeros({48})); },
          {"unexpected 1: 'blocks.3.norm1.weight'"});
  refused([&](NamedTensors& all) { named(all, "norm.bias")->second = at::zeros({48}, at::kLong); },
          {"'norm.bias' expected Float, found Long"});
}

TEST(Foreign, RatesOfDroppingGoAlong) {
  models::ModelOptions options = options_of(config_of("timm_vit"));
  auto& vit = std::get<backbones::VitOptions>(options.backbone.vision());
  vit.drop_path = 0.125;
  vit.dropout = 0.25;
  const auto back = std::get<backbones::VitOptions>(
      options_of(foreign_format("timm_vit").config(options)).backbone.vision());
  EXPECT_EQ(back.drop_path, 0.125);
  EXPECT_EQ(back.dropout, 0.25);
}

TEST(Foreign, WhatAFormatCannotSayIsNamed) {
  models::ModelOptions options = options_of(config_of("timm_vit"));
  options.memory = {models::ModelOptions::memory_types().read(base::Node::table({{"type", "grc"}, {"cache_len", 4}}))};
  options = models::read_model_options(base::write_options(options));
  const models::ImageModel model(options, 0, at::kFloat, {}, at::kMeta);
  expect_error<base::InputError>([&] { to_theirs(foreign_format("timm_vit"), model.parameters().named()); },
                                 {"timm_vit", "attn.grc."});
  options.memory.clear();
  auto& vit = std::get<backbones::VitOptions>(options.backbone.vision());
  vit.norm_eps = 1e-5;
  expect_error<base::InputError>([&] { foreign_format("timm_vit").config(options); }, {"timm_vit", "norm_eps = 1e-05"});
  vit.image_size = {32, 64};
  expect_error<base::InputError>([&] { foreign_format("huggingface_vit").config(options); }, {"square", "32 x 64"});
}

}  // namespace
}  // namespace mnemo::weights
