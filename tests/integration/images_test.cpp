#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "tests/support/command_line.h"
#include "tests/support/numbers.h"
#include "tests/unit/data/image_files.h"
#include "weights/safetensors.h"

// Vision models on the command line.
namespace mnemo {
namespace {

using namespace test;

const std::string kImports = MNEMO_SOURCE_DIR "/tests/golden/data/vision_import/";

TEST_F(CommandLine, FoldersOfOtherLibrariesComeBackAsTheyWere) {
  for (const auto& [folder, format] :
       {std::pair<std::string, std::string>{"timm_vit", "timm_vit"}, {"hf_vit", "huggingface_vit"}}) {
    const std::string ours = folder_ / (folder + "_ours"), back = folder_ / (folder + "_back"),
                      anew = folder_ / (folder + "_anew");
    const Finished in = run({"convert", kImports + folder, "--to", "mnemo", "--out", ours});
    ASSERT_EQ(in.status, 0) << in.err;
    // The config's settings for images are kept: timm's mean and crop, Hugging Face's class names.
    if (folder == "timm_vit") {
      const base::Node images = json(content(ours + "/images.json"));
      EXPECT_EQ(images.at("mean"), base::Node::array({0.5, 0.5, 0.5}));
      EXPECT_EQ(images.at("image_size"), base::Node::array({32, 32}));
      EXPECT_EQ(images.at("test_crop").at("crop_pct").as_double(), 0.9);
    } else {
      EXPECT_TRUE(content(ours + "/classes.txt").starts_with("LABEL_0\nLABEL_1\n"));
    }
    ASSERT_EQ(run({"convert", ours, "--to", format, "--out", back}).status, 0);
    EXPECT_EQ(content(back + "/config.json"), content(kImports + folder + "/config.json"));
    // Without the other library's config, a new one is written, which this program reads as the same model.
    std::filesystem::remove(ours + "/source_config.json");
    ASSERT_EQ(run({"convert", ours, "--to", format, "--out", anew}).status, 0);
    for (const std::string& other : {back, anew}) {
      const weights::TensorFile expected = weights::read_safetensors(kImports + folder + "/model.safetensors"),
                                found = weights::read_safetensors(other + "/model.safetensors");
      ASSERT_EQ(found.tensors.size(), expected.tensors.size());
      for (const auto& [name, tensor] : expected.tensors) EXPECT_TRUE(same_bits(found.at(name, other), tensor)) << name;
      std::filesystem::copy_file(kImports + folder + "/expect.safetensors", other + "/expect.safetensors");
      const Finished verified = verify({other});
      EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
    }
  }
}

TEST_F(CommandLine, FoldersOfOtherLibrariesAreTakenAsTheyAre) {
  const std::string timm = kImports + "timm_vit",
                    picture = MNEMO_SOURCE_DIR "/tests/golden/data/images/files/photo_7865c0.jpg";
  const Finished seen = run({"classify", timm, picture, "--json"});
  ASSERT_EQ(seen.status, 0) << seen.err;
  const std::string ours = folder_ / "ours";
  ASSERT_EQ(run({"convert", timm, "--to", "mnemo", "--out", ours}).status, 0);
  EXPECT_EQ(json(run({"classify", ours, picture, "--json"}).out), json(seen.out)) << "mean and crop are timm's";
  // A task is trained on the pixels that timm's model reads, and added to its folder.
  data::make_class_folders(folder_ / "set", 4);
  const Finished outcome = run({"finetune", "--model", timm, "--data", folder_ / "set", "--name", "set", "--out",
                                folder_ / "run", "--set", "train.steps=2", "--quiet"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string joined = folder_ / "joined";
  ASSERT_EQ(run({"attach", timm, folder_ / "run/set.task.safetensors", "--out", joined}).status, 0);
  for (const std::string& model : {joined, folder_ / "run/model"})
    EXPECT_EQ(content(model + "/images.json"), content(ours + "/images.json"));
  const base::Node tasks = json(run({"classify", joined, picture, "--json"}).out).items()[0].at("tasks");
  EXPECT_EQ(tasks.at("base"), json(seen.out).items()[0].at("tasks").at("base"));
  EXPECT_EQ(tasks.at("set").size(), 3U);
  const Finished other = run({"finetune", "--model", timm, "--data", folder_ / "set", "--out", folder_ / "x", "--set",
                              "data.mean=[0.4,0.4,0.4]"});
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(holds(other.err, "image_size, mean, std and test_crop as the model has them")) << other.err;
  const Finished crop = run({"finetune", "--model", timm, "--data", folder_ / "set", "--out", folder_ / "x", "--set",
                             "data.test_crop.crop_pct=0.5"});
  EXPECT_EQ(crop.status, 2);
  EXPECT_TRUE(holds(crop.err, "test_crop as the model has them")) << crop.err;
}

TEST_F(CommandLine, HowImagesAreReadAndClassesAreCalledGoesAlong) {
  const std::string ours = folder_ / "ours", hf = folder_ / "hf";
  const auto convert = [&](const std::string& from, const std::string& to, const std::string& out) {
    return run({"convert", from, "--to", to, "--out", out});
  };
  ASSERT_EQ(convert(kImports + "timm_vit", "mnemo", ours).status, 0);
  std::string names;
  for (int i = 0; i < 10; ++i) names += "kind " + std::to_string(i) + "\n";
  write(ours + "/classes.txt", names);
  write(
      ours + "/images.json",
      R"({"image_size": [32, 32], "mean": [0.1, 0.2, 0.3], "test_crop": {"resize_size": 37, "interpolation": "bilinear"}})");
  const Finished again = convert(ours, "mnemo", folder_ / "again");
  ASSERT_EQ(again.status, 0) << again.err;
  for (const char* file : {"/classes.txt", "/images.json", "/source_config.json"})
    EXPECT_EQ(content((folder_ / "again") + file), content(ours + file)) << file;
  const Finished out = convert(ours, "timm_vit", folder_ / "timm");
  ASSERT_EQ(out.status, 0) << out.err;
  ASSERT_EQ(convert(folder_ / "timm", "mnemo", folder_ / "back").status, 0);
  EXPECT_EQ(content(folder_ / "back/classes.txt"), names);
  const base::Node images = json(content(folder_ / "back/images.json"));
  EXPECT_EQ(images.at("mean"), base::Node::array({0.1, 0.2, 0.3}));
  EXPECT_EQ(images.at("test_crop").at("interpolation").as_string(), "bilinear");
  EXPECT_EQ(static_cast<int64_t>(32.0 / images.at("test_crop").at("crop_pct").as_double()), 37);

  ASSERT_EQ(convert(kImports + "hf_vit", "mnemo", hf).status, 0);
  write(
      hf + "/images.json",
      R"({"image_size": [32, 32], "mean": [0.5, 0.4, 0.3], "test_crop": {"crop_mode": "squash", "crop_pct": 1.0, "interpolation": "bilinear"}})");
  names.clear();
  for (int i = 0; i < 9; ++i) names += "sort " + std::to_string(i) + "\n";
  write(hf + "/classes.txt", names);
  ASSERT_EQ(convert(hf, "huggingface_vit", folder_ / "hf_out").status, 0);
  ASSERT_EQ(convert(folder_ / "hf_out", "mnemo", folder_ / "hf_back").status, 0);
  EXPECT_EQ(content(folder_ / "hf_back/classes.txt"), names);
  EXPECT_EQ(json(content(folder_ / "hf_back/images.json")),
            json(R"({"image_size": [32, 32], "mean": [0.5, 0.4, 0.3], "std": [0.229, 0.224, 0.225],
      "test_crop": {"crop_pct": 1.0, "resize_size": 0, "crop_mode": "squash", "interpolation": "bilinear",
      "resize": "pillow13"}})"))
      << "the format does not say it";

  // Files of ours in another library's folder win, and go along.
  std::filesystem::copy(kImports + "hf_vit", folder_ / "foreign", std::filesystem::copy_options::recursive);
  write(folder_ / "foreign/images.json", content(hf + "/images.json"));
  write(folder_ / "foreign/classes.txt", names);
  ASSERT_EQ(convert(folder_ / "foreign", "mnemo", folder_ / "foreign_ours").status, 0);
  for (const char* file : {"/images.json", "/classes.txt"})
    EXPECT_EQ(content((folder_ / "foreign_ours") + file), content((folder_ / "foreign") + file)) << file;
  // DeiT's crop, and images that are not normalised.
  write(folder_ / "hf_out/preprocessor_config.json",
        R"({"image_processor_type": "DeiTImageProcessor", "size": 40, "crop_size": 32, "do_normalize": false})");
  ASSERT_EQ(convert(folder_ / "hf_out", "mnemo", folder_ / "cropped").status, 0);
  EXPECT_EQ(json(content(folder_ / "cropped/images.json")),
            json(R"({"image_size": [32, 32], "mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0],
      "test_crop": {"crop_pct": 0.8, "resize_size": 0, "crop_mode": "squash", "interpolation": "bicubic",
      "resize": "pillow13"}})"));
  ASSERT_EQ(convert(folder_ / "cropped", "huggingface_vit", folder_ / "hf_cropped").status, 0);
  const base::Node processor = json(content(folder_ / "hf_cropped/preprocessor_config.json"));
  EXPECT_EQ(processor.at("size"), json(R"({"height": 40, "width": 40})"));
  EXPECT_EQ(processor.at("crop_size"), json(R"({"height": 32, "width": 32})"));
  ASSERT_EQ(convert(folder_ / "hf_cropped", "mnemo", folder_ / "cropped_back").status, 0);
  EXPECT_EQ(content(folder_ / "cropped_back/images.json"), content(folder_ / "cropped/images.json"));

  const auto refused = [&](const std::string& from, const std::string& to, const std::string& message) {
    const Finished outcome = convert(from, to, folder_ / "x");
    EXPECT_EQ(outcome.status, 2) << message;
    EXPECT_TRUE(holds(outcome.err, message)) << outcome.err;
  };
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"do_resize": false})", "'do_resize': expected true"},
           {R"({"do_rescale": false})", "'do_rescale': expected true"},
           {R"({"rescale_factor": 1.0})", "'rescale_factor': expected 1/255"},
           {R"({"do_center_crop": true, "size": 40, "crop_size": [32, 40]})",
            "'crop_size': expected the same fraction"},
           {R"({"image_processor_type": "BeitImageProcessor", "size": 32})", "'image_processor_type': unsupported"},
           {R"({"feature_extractor_type": "CLIPFeatureExtractor"})", "'feature_extractor_type': unsupported"},
           {"[]", "expected an object"}}) {
    write(folder_ / "hf_out/preprocessor_config.json", text);
    const Finished unknown = convert(folder_ / "hf_out", "mnemo", folder_ / "unknown");
    EXPECT_EQ(unknown.status, 0) << unknown.err;
    EXPECT_TRUE(holds(unknown.err, message)) << unknown.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "unknown/images.json")) << message;
    std::filesystem::remove_all(folder_ / "unknown");
  }
  refused(kImports + "timm_vit", "huggingface_vit", "'backbone.position_resampling'");
  write(hf + "/images.json", R"({"image_size": [32, 32]})");
  refused(hf, "huggingface_vit", "'test_crop'");
  base::Node config = json(content(hf + "/config.json"));
  config.find("backbone")->set("drop_path", 0.1);
  write(hf + "/config.json", base::to_json(config));
  refused(hf, "huggingface_vit", "'backbone.drop_path'");
  write(ours + "/classes.txt", "one\ntwo\n");
  refused(ours, "timm_vit", "expected 10 lines");
  // Either a name for every class, or none.
  write(folder_ / "timm/config.json",
        content(kImports + "timm_vit/config.json").insert(1, "\"label_names\": [\"one\", \"two\"],"));
  const Finished few = convert(folder_ / "timm", "mnemo", folder_ / "few");
  EXPECT_EQ(few.status, 0) << few.err;
  EXPECT_TRUE(holds(few.err, "expected 10 names")) << few.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "few/classes.txt"));
  // As timm's _builder.py has it: of pretrained_cfg where model_args does not say; its names may be a table.
  base::Node bare = json(content(kImports + "timm_vit/config.json"));
  for (const char* key : {"num_classes", "img_size"}) bare.find("model_args")->erase(key);
  bare.erase("num_classes");
  base::Node numbered = base::Node::table();
  for (int i = 9; i >= 0; --i) numbered.set(std::to_string(i), "kind " + std::to_string(i));
  bare.set("label_names", numbered);
  write(folder_ / "timm/config.json", base::to_json(bare));
  const Finished pretrained = convert(folder_ / "timm", "mnemo", folder_ / "pretrained");
  EXPECT_EQ(pretrained.status, 0) << pretrained.err;
  names.clear();
  for (int i = 0; i < 10; ++i) names += "kind " + std::to_string(i) + "\n";
  EXPECT_EQ(content(folder_ / "pretrained/classes.txt"), names);
  const Finished unsaid = run({"convert", ours, "--out", folder_ / "x"});
  EXPECT_EQ(unsaid.status, 2);
  EXPECT_TRUE(holds(unsaid.err, "--to: expected one of t2r, average, source_encoder, mnemo, peft, timm_vit"))
      << unsaid.err;
}

TEST_F(CommandLine, InspectShowsWhereAnImageIsLookedAt) {
  const std::string model = folder_ / "vit",
                    picture = MNEMO_SOURCE_DIR "/tests/golden/data/images/files/photo_7865c0.jpg";
  ASSERT_EQ(run({"convert", kImports + "timm_vit", "--to", "mnemo", "--out", model}).status, 0);
  const std::string png = folder_ / "heat.png", svg = folder_ / "heat.svg", page = folder_ / "page.html";
  const Finished text = run(
      {"inspect", model, "--image", picture, "--heads", "1", "--png", png, "--svg", svg, "--html", page});
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* part : {"class token", "mean", "to image", "32 x 32 as the model sees it"})
    EXPECT_TRUE(holds(text.out, part)) << text.out;
  EXPECT_TRUE(content(png).starts_with("\x89PNG"));
  EXPECT_TRUE(holds(content(svg), "layer 2 head 1"));
  EXPECT_TRUE(holds(content(page), "<h2>Attention</h2>"));
  const base::Node node = json(run({"inspect", model, "--image", picture, "--layers", "0,2", "--json"}).out);
  const base::Node& looks = node.at("attention").at("looks");
  ASSERT_EQ(looks.size(), 2U);
  double sum = looks.items()[1].at("beside").at("class token").as_double();
  for (const base::Node& row : looks.items()[1].at("image").items()) {
    for (const base::Node& weight : row.items()) sum += weight.as_double();
  }
  EXPECT_NEAR(sum, 1.0, 1e-4);
  write(folder_ / "grc.toml",
        "[data]\ntype = \"images\"\ntrain = \"none\"\nimage_size = [32, 32]\n[model]\nbackbone = { type = \"vit\", "
        "image_size = [32, 32], patch_size = 8, dim = 16, "
        "num_layers = 1, num_heads = 2 }\nhead = { type = \"classification\", num_classes = 3 }\nmemory = [{ type = "
        "\"grc\", cache_ratio = 0.5 }]\n[train]\nsteps = 1\n");
  for (const char* name : {"set/a", "set/b"}) {
    std::filesystem::create_directories(folder_ / name);
    std::filesystem::copy(picture, folder_ / name + std::string("/1.jpg"));
  }
  const base::Node fresh = json(run({"inspect", folder_ / "grc.toml", "--image", picture, "--json"}).out);
  EXPECT_EQ(fresh.at("attention").at("branches").size(), 2U);
  EXPECT_EQ(fresh.at("attention").at("gates").size(), 2U);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"inspect", model, "--image", folder_ / "none.png"}, "none.png"},
      {{"inspect", model, "--image", text_}, "expected"},
      {{"inspect", model, "--image", picture, "--tokens", "1"},
       "one of --text, --tokens, --sample, --image and --images"},
      {{"inspect", model, "--image", picture, "--heads", "3"}, "--heads: expected numbers from 0 to 2"},
      {{"inspect", model, "--image", picture, "--layers", "7"}, "--layers: expected numbers from 0 to 2"},
      {{"inspect", model, "--image", picture, "--segment", "1"}, "--segment goes with a text"},
      {{"inspect", trained("texts"), "--image", picture}, "expected a model of images"},
      {{"inspect", model, "--images", folder_ / "set", "--svg", folder_ / "x.svg"}, "which have no picture"},
  };
  for (const auto& [arguments, message] : cases) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << message << ": " << outcome.err;
    EXPECT_TRUE(holds(outcome.err, message)) << message << ": " << outcome.err;
  }
}

TEST_F(CommandLine, ImageModelsAreInspectedAndRefusedWhereTextsAreMeant) {
  const std::string model = folder_ / "vit";
  ASSERT_EQ(run({"convert", kImports + "timm_vit", "--to", "mnemo", "--out", model}).status, 0);
  const base::Node facts = json(run({"inspect", model, "--cost", "--image-size", "64x32", "--json"}).out);
  EXPECT_EQ(facts.at("parameters").as_int(), 95'530);
  const int64_t rows = 33, dim = 48, layers = 3;
  EXPECT_EQ(facts.at("cost").at("all").at("flops").as_int(),
            2 * ((rows - 1) * dim * 3 * 64 + layers * (12 * rows * dim * dim + 2 * rows * rows * dim) + 10 * dim));
  EXPECT_TRUE(holds(run({"inspect", model}).out, "backbone.layers.2.attn"));
  write(folder_ / "vit.toml", "[model]\npreset = \"vit_small_patch32\"\n[train]\nsteps = 1\n");
  EXPECT_TRUE(holds(run({"inspect", folder_ / "vit.toml", "--cost"}).out, "22,878,952"));
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"generate", model, "--prompt", "a"}, "of images"},
      {{"eval", model, "--data", text_}, "expected the folder of an image set"},
      {{"inspect", model, "--tokens", "1"}, "found a model of images"},
      {{"inspect", model, "--cost", "--segment-size", "3"}, "--image-size"},
      {{"inspect", model, "--cost", "--image-size", "30"}, "expected HxW"},
      {{"inspect", model, "--cost", "--image-size", "30x33"}, "multiples of patch_size = 8, found 30 x 33"},
      {{"convert", model, "--to", "t2r", "--out", folder_ / "x"}, "expected a model of texts"},
      {{"convert", model, "--to", "timm_vitt", "--out", folder_ / "x"}, "did you mean 'timm_vit'?"},
      {{"convert", trained("texts"), "--to", "timm_vit", "--out", folder_ / "x"},
       "backbone.type = \"vit\", found \"decoder\""},
      {{"train", folder_ / "vit.toml", "--data", text_}, "\"vit\", a model of images"},
  };
  for (const auto& [arguments, message] : cases) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << message << ": " << outcome.err;
    EXPECT_TRUE(holds(outcome.err, message)) << message << ": " << outcome.err;
  }
}

// The mean of unrelated images is no image, so the newest rows of an attention-based cache stay.
// As Swin goes from ImageNet-22k to 1k: all weights but those of the classes.
TEST_F(CommandLine, ImageModelsAreTrainedOnForOtherClasses) {
  data::make_class_folders(folder_ / "more", 4);
  data::make_class_folders(folder_ / "fewer", 4);
  std::filesystem::remove_all(folder_ / "fewer/cat");
  const auto recipe = [&](const std::string& name, const std::string& data, const std::string& model) {
    const std::string path = folder_ / (name + ".toml");
    write(path, "[data]\ntype = \"images\"\ntrain = \"" + data + "\"\n[train]\nsteps = 1\nbatch_size = 2\n" +
                    "optimiser = { type = \"sgd\", lr = 1e-12 }\n[model]\n" + model);
    return path;
  };
  const std::string vit =
      "head = { type = \"classification\" }\nbackbone = { type = \"vit\", image_size = [8, 8], "
      "patch_size = 4, dim = 8, num_layers = 1, num_heads = 2, mlp_ratio = 2 }\n";
  const std::string first = folder_ / "first", more = folder_ / "more", fewer = folder_ / "fewer";
  ASSERT_EQ(run({"train", recipe("first", more, vit), "--out", first, "-q"}).status, 0);
  const auto weights = [](const std::string& folder) {
    return weights::read_safetensors(folder + "/model/model.safetensors");
  };
  const auto expect_taken = [&](const std::string& folder, const Finished& outcome) {
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, "fresh: head.classifier.weight, head.classifier.bias")) << outcome.err;
    for (const auto& [name, tensor] : weights(first).tensors) {
      if (name.starts_with("head.classifier.")) continue;
      EXPECT_LE(difference(weights(folder).at(name, folder), tensor), 1e-9) << name;
    }
  };
  const std::string by_option = folder_ / "by_option", by_model = folder_ / "by_model";
  expect_taken(by_option, run({"train", recipe("second", fewer, vit), "--init", first, "--out", by_option}));
  expect_taken(by_model, run({"train", recipe("third", fewer, "from = \"" + first + "\"\n"), "--out", by_model}));
  EXPECT_EQ(run({"train", "--resume", by_option, "--set", "train.steps=2"}).status, 0);
  const Finished other = run({"train", recipe("other", fewer, vit + "memory = [{ type = \"grc\" }]\n"), "--init", first,
                              "--out", folder_ / "other"});
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(holds(other.err, "train: --init: ")) << other.err;
  EXPECT_TRUE(holds(other.err, "grc.")) << other.err;
  EXPECT_TRUE(holds(other.err, "--set init=")) << other.err;
}

TEST_F(CommandLine, AveragedCheckpointsKeepTheLastImages) {
  data::make_class_folders(folder_ / "train");
  write(folder_ / "cache.toml",
        "[data]\ntype = \"images\"\nformat = \"folders\"\ntrain = \"train\"\nimage_size = [4, 4]\n[model]\n"
        "backbone = { type = \"vit\", image_size = [4, 4], patch_size = 2, dim = 8, num_layers = 1, num_heads = 1 }\n"
        "head = { type = \"classification\", num_classes = 3 }\nmemory = [{ type = \"attention_cache\" }]\n"
        "[train]\nsteps = 3\nbatch_size = 4\nsave_every = 1\nkeep_last = 0\n");
  const std::string folder = folder_ / "run", made = folder_ / "average";
  const Finished training = run({"train", folder_ / "cache.toml", "--out", folder, "--quiet"});
  ASSERT_EQ(training.status, 0) << training.err;
  const Finished convert = run({"convert", folder, "--to", "average", "--last", "2", "--out", made});
  ASSERT_EQ(convert.status, 0) << convert.err;
  const auto found = weights::read_safetensors(made + "/model.safetensors"),
             newest = weights::read_safetensors(folder + "/step-00000003/model.safetensors");
  int64_t rows = 0, averages = 0;
  for (const auto& [name, tensor] : found.tensors) {
    const bool same = at::equal(tensor, newest.at(name, "newest"));
    if (name.ends_with("attention_cache.rows")) {
      EXPECT_TRUE(same);
      ++rows;
    }
    averages += !same;
  }
  EXPECT_EQ(rows, 1);
  EXPECT_GT(averages, 5);
}

}  // namespace
}  // namespace mnemo
