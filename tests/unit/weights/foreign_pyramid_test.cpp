// Names used by PVT's authors, timm's PVTv2 and Swin, and Microsoft's Swin.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>

#include "base/error.h"
#include "base/file_io.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "ops/image/windows.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "weights/foreign.h"

namespace mnemo::weights::foreign_pyramid_test {
namespace {

using test::expect_error;

const std::string kFolder = MNEMO_SOURCE_DIR "/tests/golden/data/vision_import/";

base::Node config_of(const std::string& folder) {
  const std::string path = kFolder + folder + "/config.json";
  return parse_model_config(base::read_file(path, 1 << 22), path);
}

models::ModelOptions options_of(const base::Node& config) {
  return models::read_model_options(foreign_format_of(config)->options(config));
}

models::ModelOptions options_from(const std::string& text) {
  return options_of(parse_model_config(text, "m/config.json"));
}

TEST(ForeignPyramids, HaveTheirNamesAndShapesAtFullSize) {
  for (const char* folder : {"shapes_timm_pvt_v2_b2", "shapes_timm_swin_tiny_patch4_window7_224"}) {
    const base::Node config = config_of(folder);
    const models::ImageModel model(options_of(config), 0, at::kFloat, {}, at::kMeta);
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

TEST(ForeignPyramids, LoadingAndWritingAreEachOthersInverse) {
  for (const char* folder : {"timm_pvt_v2", "timm_swin"}) {
    const base::Node config = config_of(folder);
    const ForeignFormat& format = *foreign_format_of(config);
    const models::ModelOptions options = options_of(config);
    const models::ImageModel model(options, 0, at::kFloat);
    const TensorFile file = read_safetensors(kFolder + folder + "/model.safetensors");
    load_theirs(format, file, model.parameters().named(), "m");
    const NamedTensors back = to_theirs(format, model.parameters().named());
    EXPECT_EQ(back.size(), file.tensors.size());
    for (const auto& [name, tensor] : back) EXPECT_TRUE(test::same_bits(tensor, file.at(name, "m"))) << name;
    EXPECT_EQ(base::write_options(models::read_model_options(format.options(format.config(options)))),
              base::write_options(options))
        << folder;
  }
}

TEST(ForeignPyramids, FactoriesHaveTheValuesOfThePresets) {
  const auto backbone = [](const models::ModelOptions& options) { return base::write_options(options.backbone); };
  for (const auto& [architecture, preset] : {std::pair{"pvt_tiny", "pvt_tiny"},
                                             {"pvt_small", "pvt_small"},
                                             {"pvt_medium", "pvt_medium"},
                                             {"pvt_v2_b2", "pvt_v2_b2"},
                                             {"pvt_v2_b2_li", "pvt_v2_b2_linear"},
                                             {"pvt_v2_b3", "pvt_v2_b3"},
                                             {"pvt_v2_b4", "pvt_v2_b4"},
                                             {"swin_tiny_patch4_window7_224", "swin_tiny"}}) {
    models::ModelOptions ours = models::read_model_options(
        base::parse_toml(fmt::format("preset = \"{}\"", preset), "recipe.toml"));
    // By default, timm's Swin drops paths.
    const models::ModelOptions theirs = options_from(
        fmt::format(R"({{"architecture": "{}", "model_args": {{"drop_path_rate": 0.0}}}})", architecture));
    EXPECT_EQ(backbone(theirs), backbone(ours)) << architecture;
    EXPECT_EQ(theirs.head.table().at("pool"), ours.head.table().at("pool")) << architecture;
    const ForeignFormat& format = *foreign_format_of_backbone(ours.backbone.type);
    EXPECT_EQ(format.config(ours).at("architecture").as_string(), architecture);
    EXPECT_EQ(backbone(models::read_model_options(format.options(format.config(ours)))), backbone(ours))
        << architecture;
  }
  const auto swin = std::get<backbones::SwinOptions>(
      options_from(R"({"architecture": "swin_base_patch4_window12_384"})").backbone.vision());
  EXPECT_EQ(swin.dim, 128);
  EXPECT_EQ(swin.window_size, (std::vector<int64_t>{12, 12}));
  EXPECT_EQ(swin.drop_path, 0.1);
  const auto b5 = std::get<backbones::PvtV2Options>(options_from(R"({"architecture": "pvt_v2_b5"})").backbone.vision());
  EXPECT_EQ(b5.mlp_ratios, (std::vector<double>{4, 4, 4, 4}));
  EXPECT_EQ(b5.depths, (std::vector<int64_t>{3, 6, 40, 3}));
  // PVT always pools its class token, whatever else a config says.
  EXPECT_EQ(options_from(R"({"architecture": "pvt_tiny", "global_pool": "avg"})").head.table().at("pool").as_string(),
            "cls");
}

TEST(ForeignPyramids, SwinTakesImagesOfAnySizeInBothSpellings) {
  for (const char* key : {"\"dynamic_img_size\": true", "\"strict_img_size\": false"}) {
    EXPECT_EQ(
        options_from(fmt::format(R"({{"architecture": "swin_tiny_patch4_window7_224", "model_args": {{{}}}}})", key))
            .backbone.type,
        "swin");
  }
}

TEST(ForeignVit, ItsConfigNamesAFactoryThatTimmHas) {
  const auto name_of = [](const std::string& size, int64_t patch, const std::string& image) {
    const models::ModelOptions options = options_from(
        fmt::format(R"({{"architecture": "vit_{}_patch16_224", "model_args": {{"patch_size": {}, "img_size": {}}}}})",
                    size, patch, image));
    return foreign_format("timm_vit").config(options).at("architecture").as_string();
  };
  EXPECT_EQ(name_of("tiny", 16, "384"), "vit_tiny_patch16_384");
  EXPECT_EQ(name_of("base", 32, "224"), "vit_base_patch32_224");
  for (const char* image : {"1024", "64", "96", "[224, 448]"})
    EXPECT_EQ(name_of("small", 16, image), "vit_small_patch16_224") << image;
  EXPECT_EQ(name_of("tiny", 8, "64"), "vit_tiny_patch16_224");
}

TEST(ForeignVit, TakesFromPretrainedConfigAsTimmDoes) {
  const auto vit = [](const std::string& more) {
    return options_from(fmt::format(
        R"({{"architecture": "vit_tiny_patch16_224", {} "pretrained_cfg": {{"input_size": [1, 64, 48],
            "fixed_input_size": true, "num_classes": 5, "global_pool": "token"}}}})",
        more));
  };
  const models::ModelOptions bare = vit("");
  const auto& backbone = std::get<backbones::VitOptions>(bare.backbone.vision());
  EXPECT_EQ(backbone.image_size, (std::vector<int64_t>{64, 48}));
  EXPECT_EQ(backbone.in_channels, 1);
  EXPECT_EQ(bare.head.table().at("num_classes").as_int(), 5);
  const models::ModelOptions said = vit(R"("num_classes": 7, "model_args": {"img_size": 32},)");
  EXPECT_EQ(std::get<backbones::VitOptions>(said.backbone.vision()).image_size, (std::vector<int64_t>{32, 32}));
  EXPECT_EQ(said.head.table().at("num_classes").as_int(), 7);
}

TEST(ForeignPyramids, ConfigsHaveTheirKeysInOrder) {
  const auto keys = [](const base::Node& table) {
    std::string names;
    for (const base::Node::Member& member : table.members()) names += (names.empty() ? "" : " ") + member.key;
    return names;
  };
  const auto config = [](const char* architecture, const char* format) {
    return foreign_format(format).config(
        options_from(fmt::format(R"({{"architecture": "{}", "num_classes": 7}})", architecture)));
  };
  const base::Node pvt = config("pvt_small", "pvt"), pvt_v2 = config("pvt_v2_b2", "timm_pvt_v2"),
                   swin = config("swin_tiny_patch4_window7_224", "timm_swin");
  EXPECT_EQ(keys(pvt), "architecture num_classes num_features model_args");
  EXPECT_EQ(keys(pvt.at("model_args")),
            "img_size patch_size in_chans num_classes embed_dims num_heads mlp_ratios depths sr_ratios qkv_bias "
            "drop_path_rate");
  EXPECT_EQ(keys(pvt_v2), "architecture num_classes num_features global_pool model_args pretrained_cfg");
  EXPECT_EQ(keys(pvt_v2.at("model_args")),
            "in_chans num_classes global_pool depths embed_dims num_heads sr_ratios mlp_ratios qkv_bias linear "
            "drop_path_rate");
  EXPECT_EQ(keys(swin), "architecture num_classes num_features global_pool model_args");
  EXPECT_EQ(keys(swin.at("model_args")),
            "img_size patch_size in_chans num_classes global_pool embed_dim depths num_heads window_size mlp_ratio "
            "qkv_bias drop_path_rate");
  for (const base::Node& one : {pvt, pvt_v2, swin})
    EXPECT_EQ(one.at("num_classes").as_int() + one.at("model_args").at("num_classes").as_int(), 14);
}

// Swin as published by Microsoft: merging at the end of the previous stage, another name for the head, tensors that
// follow from the sizes.
TEST(ForeignPyramids, MicrosoftsSwinIsReadToo) {
  const base::Node config = config_of("timm_swin");
  const ForeignFormat& format = *foreign_format_of(config);
  const models::ModelOptions options = options_of(config);
  const TensorFile timm = read_safetensors(kFolder + "timm_swin/model.safetensors");
  TensorFile microsoft;
  for (auto [name, tensor] : timm.tensors) {
    if (name.starts_with("head.fc.")) name.erase(5, 3);
    if (name.starts_with("layers.1.downsample.")) name[7] = '0';
    microsoft.tensors.emplace_back(name, tensor);
  }
  for (const char* layer : {"layers.0.blocks.0", "layers.0.blocks.1", "layers.1.blocks.0", "layers.1.blocks.1"}) {
    microsoft.tensors.emplace_back(fmt::format("{}.attn.relative_position_index", layer),
                                   ops::window_position_index(4, 4, 4, 4));
  }
  microsoft.tensors.emplace_back("layers.0.blocks.1.attn_mask", at::zeros({16, 16, 16}));
  const models::ImageModel model(options, 0, at::kFloat), other(options, 1, at::kFloat);
  load_theirs(format, timm, model.parameters().named(), "m");
  load_theirs(format, microsoft, other.parameters().named(), "m");
  for (const auto& [name, tensor] : model.parameters().named())
    EXPECT_TRUE(test::same_bits(tensor, other.parameters().find(name))) << name;
  microsoft.tensors[microsoft.tensors.size() - 2].second = ops::window_position_index(4, 4, 4, 4).t();
  expect_error<base::InputError>(
      [&] { load_theirs(format, microsoft, other.parameters().named(), "m/model.safetensors"); },
      {"m/model.safetensors", "layers.1.blocks.1.attn.relative_position_index"});
}

TEST(ForeignPyramids, WhatCannotBeHonouredIsNamed) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> parts) {
    expect_error<base::InputError>([&] { options_from(text); }, parts);
  };
  refused(R"({"architecture": "pvt_v2_b2", "model_args": {"attn_drop_rate": 0.1}})", {"model_args.attn_drop_rate"});
  refused(R"({"architecture": "pvt_v2_b2", "model_args": {"global_pool": ""}})", {"model_args.global_pool", "avg"});
  refused(R"({"architecture": "pvt_v2_b2", "pretrained_cfg": {"input_size": [224, 224]}})",
          {"input_size", "[channels, height, width]"});
  refused(R"({"architecture": "swin_tiny_patch4_window7_224", "model_args": {"head_dim": 16}})",
          {"model_args.head_dim"});
  refused(R"({"architecture": "pvt_tiny", "model_args": {"sr_ratios": [8, 4, 2]}})",
          {"sr_ratios", "each of the 4 stages"});
  models::ModelOptions options = options_from(R"({"architecture": "pvt_tiny"})");
  options.head.set("pool", "mean");
  expect_error<base::InputError>([&] { foreign_format("pvt").config(options); }, {"pvt", "class token"});
  std::get<backbones::PvtOptions>(options.backbone.vision()).norm_eps = 1e-5;
  expect_error<base::InputError>([&] { foreign_format("pvt").config(options); }, {"pvt", "norm_eps = 1e-05"});
}

}  // namespace
}  // namespace mnemo::weights::foreign_pyramid_test
