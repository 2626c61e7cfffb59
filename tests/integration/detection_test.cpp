// Detectors on the command line: data, train, eval, detect, and a backbone trained for classification.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <regex>

#include "tests/support/command_line.h"
#include "tests/support/painted_objects.h"
#include "tests/unit/data/image_files.h"
#include "weights/safetensors.h"

namespace mnemo {
namespace {

using namespace test;

class Detectors : public CommandLine {
 protected:
  Detectors() { paint_objects(folder_.path(), 8); }

  std::string recipe(const std::string& head) {
    const std::string path = folder_ / (head + ".toml");
    write(path, "[data]\ntype = \"detection\"\ntrain = \"" + objects_ + "\"\nvalid = \"" + objects_ +
                    "\"\nshorter = [64]\n[model]\n" + small_detector(head) +
                    "[train]\nsteps = 4\nbatch_size = 2\nshuffle = true\nlog_every = 1\neval_every = 2\nsave_every = "
                    "2\ntensorboard = false\n");
    return path;
  }
  std::string objects_ = folder_ / "instances_painted.json";
  std::string photo_ = folder_ / "painted/2.jpg";
};

TEST_F(Detectors, TrainMeasureAndDetect) {
  const std::string run_folder = folder_ / "run", model = run_folder + "/model";
  const Finished trained = run({"train", recipe("mask_rcnn"), "--out", run_folder, "--quiet"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  for (const char* file : {"/config.json", "/classes.txt", "/detection.json", "/images.json"})
    EXPECT_TRUE(std::filesystem::exists(model + file)) << file;
  EXPECT_EQ(content(model + "/classes.txt"), "red\nblue\n");
  const std::string log = content(run_folder + "/log.jsonl"), page = content(run_folder + "/report.html");
  for (const char* part : {"loss.objectness", "loss.rpn_box", "loss.cls", "loss.box", "loss.mask"}) {
    EXPECT_TRUE(holds(log, part)) << part;
    EXPECT_TRUE(holds(page, part)) << part;
  }
  EXPECT_TRUE(holds(page, "Held-out data"));
  EXPECT_TRUE(content(run_folder + "/picture.svg").starts_with("<svg"));

  const Finished measured = run({"eval", run_folder, "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  const base::Node own = json(measured.out);
  EXPECT_EQ(own.at("predictions").as_int(), 8);
  EXPECT_TRUE(own.contains("ap") && own.contains("mask_ap") && own.contains("ap_of_classes")) << measured.out;
  const Finished other = run({"eval", model, "--data", objects_, "--json"});
  ASSERT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(json(other.out).at("ap"), own.at("ap")) << "a folder has what reading images takes";

  const Finished seen = run({"inspect", model, "--image", photo_});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_TRUE(holds(seen.out, "Attention over")) << seen.out;

  const std::string drawn = folder_ / "drawn.svg";
  const Finished found = run({"detect", model, photo_, "--threshold", "0", "--top", "3", "--draw", drawn, "--json"});
  ASSERT_EQ(found.status, 0) << found.err;
  EXPECT_TRUE(holds(found.err, "leaves out scores below 0.05 itself")) << found.err;
  const base::Node objects = json(found.out).items()[0].at("objects");
  ASSERT_EQ(objects.size(), 3U);
  EXPECT_EQ(objects.items()[0].at("mask").at("size"), base::Node::array({64, 64}));
  EXPECT_TRUE(holds(content(drawn), objects.items()[0].at("label").as_string()));
  const Finished folder = run({"detect", model, folder_ / "painted", "--draw", folder_ / "pictures"});
  ASSERT_EQ(folder.status, 0) << folder.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "pictures/7.jpg.svg"));

  const std::string boxes = folder_ / "boxes.json", masks = folder_ / "masks.json";
  const Finished results = run({"detect", model, "--data", objects_, "--results", boxes, "--mask-results", masks});
  ASSERT_EQ(results.status, 0) << results.err;
  ASSERT_GT(json(content(boxes)).size(), 0U);
  EXPECT_EQ(json(content(boxes)).items()[0].at("bbox").size(), 4U);
  EXPECT_TRUE(json(content(masks)).items()[0].at("segmentation").contains("counts"));
}

// Boxes of training data without width are dropped; a file to measure is measured as it is.
TEST_F(Detectors, AMeasuredFileIsHeldOut) {
  const std::string run_folder = folder_ / "run", thin = folder_ / "instances_thin.json";
  write(thin, std::regex_replace(content(objects_), std::regex(R"((category_id":9,"bbox":\[\d+,\d+,)\d+)"), "$010"));
  std::filesystem::create_directory_symlink(folder_ / "painted", folder_ / "thin");
  const std::string valid = "data.valid=\"" + thin + "\"";
  const Finished trained = run({"train", recipe("retinanet"), "--out", run_folder, "--quiet", "--set", valid});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const base::Node own = json(run({"eval", run_folder, "--json"}).out);
  EXPECT_TRUE(own.at("ap_of_classes").contains("blue")) << "none is found";
  const Finished measured = run({"eval", run_folder, "--data", thin, "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  EXPECT_EQ(json(measured.out).at("ap_of_classes"), own.at("ap_of_classes"));
  const Finished part = run({"eval", run_folder, "--data", thin, "--part", "train"});
  EXPECT_EQ(part.status, 2);
  EXPECT_TRUE(holds(part.err, "--part goes with a run's own data")) << part.err;
}

// Categories are known by their names: another order changes nothing, and others are refused or left out.
TEST_F(Detectors, AreMeasuredByTheNamesOfTheirClasses) {
  const std::string run_folder = folder_ / "run", before = content(objects_);
  ASSERT_EQ(run({"train", recipe("retinanet"), "--out", run_folder, "--quiet"}).status, 0);
  const auto measured = [&] { return run({"eval", run_folder, "--part", "train", "--json"}); };
  const base::Node own = json(measured().out);
  base::Node set = json(before), turned = base::Node::array(), one = base::Node::array();
  for (size_t i = set.at("categories").size(); i-- > 0;) turned.push_back(set.at("categories").items()[i]);
  ASSERT_EQ(turned.size(), 2U);
  one.push_back(turned.items()[0]);
  set.set("categories", turned);
  write(objects_, base::to_json(set));
  const Finished again = measured();
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(json(again.out).at("ap_of_classes"), own.at("ap_of_classes"));
  std::string other = before;
  for (size_t at = 0; (at = other.find("\"red\"", at)) != std::string::npos;) other.replace(at, 5, "\"tan\"");
  write(objects_, other);
  EXPECT_EQ(measured().status, 0) << measured().err;
  EXPECT_EQ(run({"eval", run_folder, "--translated", "3"}).status, 2);
}

// Without names nothing says which class is which, where the data has another number of them.
TEST_F(Detectors, WithoutNamesNeedAsManyClassesAsTheData) {
  const std::string run_folder = folder_ / "run", model = run_folder + "/model", one = folder_ / "instances_one.json";
  ASSERT_EQ(run({"train", recipe("retinanet"), "--out", run_folder, "--quiet"}).status, 0);
  std::filesystem::copy(model, folder_ / "alone", std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder_ / "alone/classes.txt");
  std::filesystem::copy(folder_ / "painted", folder_ / "one");
  base::Node set = json(content(objects_)), kept = base::Node::array();
  set.set("categories", base::Node::array({set.at("categories").items()[0]}));
  const int64_t id = set.at("categories").items()[0].at("id").as_int();
  for (const base::Node& object : set.at("annotations").items())
    if (object.at("category_id").as_int() == id) kept.push_back(object);
  set.set("annotations", kept);
  write(one, base::to_json(set));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", folder_ / "alone", "--data", one},
        {"detect", folder_ / "alone", "--data", one, "--results", folder_ / "found.json"}}) {
    const Finished refused = run(command);
    EXPECT_EQ(refused.status, 2) << refused.out;
    EXPECT_TRUE(holds(refused.err, "the model has 2 classes, the data 1")) << refused.err;
  }
  EXPECT_EQ(run({"eval", folder_ / "alone", "--data", objects_}).status, 0);
}

TEST_F(Detectors, AreMeasuredOnTheValidationPartOfAFolder) {
  const std::string run_folder = folder_ / "run", set = folder_ / "set";
  ASSERT_EQ(run({"train", recipe("retinanet"), "--out", run_folder, "--quiet"}).status, 0);
  std::filesystem::create_directories(set + "/annotations");
  for (const char* images : {"/train", "/val"}) std::filesystem::copy(folder_ / "painted", set + images);
  write(set + "/annotations/instances_train.json", content(objects_));
  base::Node part = json(content(objects_)), images = base::Node::array(), objects = base::Node::array();
  images.push_back(part.at("images").items()[0]);
  for (const base::Node& object : part.at("annotations").items())
    if (object.at("image_id") == images.items()[0].at("id")) objects.push_back(object);
  part.set("images", images);
  part.set("annotations", objects);
  write(set + "/annotations/instances_val.json", base::to_json(part));
  const Finished measured = run({"eval", run_folder, "--data", set, "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  EXPECT_EQ(json(measured.out).at("predictions").as_int(), 1);
}

// Its file is looked for as in training.
TEST_F(Detectors, AreMeasuredWithTheFolderOfTheirRun) {
  std::filesystem::create_directory(folder_ / "elsewhere");
  std::filesystem::rename(folder_ / "painted", folder_ / "elsewhere/pictures");
  const std::string run_folder = folder_ / "run";
  const Finished trained = run(
      {"train", recipe("retinanet"), "--out", run_folder, "--quiet", "--set", "data.image_folder=elsewhere/pictures"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  std::filesystem::copy(objects_, folder_ / "instances_more.json");
  const Finished measured = run({"eval", run_folder, "--data", folder_ / "instances_more.json"});
  EXPECT_EQ(measured.status, 0) << measured.err;
  // Others lie where they usually do.
  std::string others = content(objects_);
  for (size_t at = 0; (at = others.find(".jpg\"", at)) != std::string::npos; at += 7) others.insert(at, "_b");
  write(folder_ / "instances_others.json", others);
  std::filesystem::create_directory(folder_ / "others");
  for (int i = 0; i < 8; ++i)
    std::filesystem::copy(folder_ / fmt::format("elsewhere/pictures/{}.jpg", i),
                          folder_ / fmt::format("others/{}_b.jpg", i));
  const Finished usual = run({"eval", run_folder, "--data", folder_ / "instances_others.json"});
  EXPECT_EQ(usual.status, 0) << usual.err;
  // The model alone needs no recipe.
  write(run_folder + "/recipe.toml", "nonsense = [");
  const Finished alone = run({"detect", run_folder + "/model", "--data", folder_ / "instances_others.json", "--results",
                              folder_ / "found.json"});
  EXPECT_EQ(alone.status, 0) << alone.err;
}

TEST_F(Detectors, RefuseWhatDoesNotFit) {
  const std::string run_folder = folder_ / "run";
  ASSERT_EQ(run({"train", recipe("retinanet"), "--out", run_folder, "--quiet"}).status, 0);
  const auto refused = [&](const std::vector<std::string>& arguments, const char* words) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments.front();
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
  };
  refused({"classify", run_folder, photo_}, "mnemo detect");
  refused({"detect", run_folder}, "expected images");
  refused({"detect", run_folder, photo_, "--threshold", "2"}, "--threshold: expected 0 to 1");
  refused({"detect", run_folder, photo_, "--results", "x.json"}, "--data");
  refused({"detect", run_folder, "--data", objects_, "--mask-results", "x.json"}, "without masks");
  refused({"detect", run_folder, "--data", objects_, "--results", "x.json", "--mask-results", "x.json"}, "two files");
  refused({"detect", run_folder, "--data", objects_, "--results", "x.json", "--json"}, "--broken and --json");
  refused({"detect", run_folder, photo_, "--draw", folder_ / "found.JPG"}, "a file .svg or .png, or a folder");
  std::filesystem::create_directory(folder_ / "more");
  std::filesystem::copy(photo_, folder_ / "more/2.jpg");
  refused({"detect", run_folder, photo_, folder_ / "more", "--draw", folder_ / "found"}, "would both be drawn as");
  refused({"detect", run_folder, "--data", text_, "--results", "x.json"}, "annotated images");
  const std::string picture = folder_ / "more/2.png", annotations = content(objects_);
  std::filesystem::copy(photo_, picture);
  refused({"detect", run_folder, picture, "--draw", folder_ / "more/../more/2.png"}, "it would replace");
  std::filesystem::create_symlink(picture, folder_ / "link.png");
  refused({"detect", run_folder, picture, "--draw", folder_ / "link.png"}, "it would replace");
  EXPECT_EQ(content(picture), content(photo_));
  refused({"detect", run_folder, "--data", objects_, "--results", objects_}, "it would replace");
  EXPECT_EQ(content(objects_), annotations);
  refused({"train", recipe("retinanet"), "--out", folder_ / "x", "--set", "model.head={type=\"classification\"}"},
          "needs a detector");
  refused({"finetune", "--model", run_folder, "--data", folder_ / "painted", "--out", folder_ / "y"}, "");
  const std::string weights = run_folder + "/model/model.safetensors";
  weights::TensorFile file = weights::read_safetensors(weights);
  for (auto& [name, tensor] : file.tensors) tensor = tensor * 1e30;
  weights::write_safetensors(weights, file.tensors);
  const Finished broken = run({"detect", run_folder + "/model", photo_, "--broken", "skip"});
  EXPECT_EQ(broken.status, 1) << "the model is broken, not the image";
  EXPECT_TRUE(holds(broken.err, "not finite")) << broken.err;
  const Finished described = run({"data", objects_});
  EXPECT_EQ(described.status, 0) << described.err;
  EXPECT_TRUE(holds(described.out, "8 images")) << described.out;
}

// Detectors have no nll.
TEST_F(Detectors, AreCompared) {
  const std::string path = folder_ / "study.toml", out = folder_ / "study";
  write(path, "[data]\ntype = \"detection\"\ntrain = \"" + objects_ + "\"\nvalid = \"" + objects_ +
                  "\"\nshorter = [64]\n[model]\n" + small_detector("retinanet") +
                  "[train]\nsteps = 2\nbatch_size = 2\n[[study]]\nname = \"rates\"\n[[study.variant]]\nname = "
                  "\"slow\"\ntrain.optimiser.lr = 1e-4\n[[study.variant]]\nname = \"fast\"\n"
                  "train.optimiser.lr = 1e-3\n");
  const Finished compared = run({"compare", path, "--out", out});
  ASSERT_EQ(compared.status, 0) << compared.err;
  EXPECT_FALSE(holds(compared.err, "failed")) << compared.err;
  EXPECT_TRUE(holds(content(out + "/results.json"), "\"ap50\""));
}

TEST_F(Detectors, InspectShowsWhatACacheAdds) {
  const std::string path = folder_ / "cached.toml", run_folder = folder_ / "cached";
  write(path, "[data]\ntype = \"detection\"\ntrain = \"" + objects_ + "\"\nshorter = [64]\n[model]\n" +
                  small_detector("faster_rcnn", true) + "[train]\nsteps = 2\nbatch_size = 2\n");
  const Finished trained = run({"train", path, "--out", run_folder, "--quiet"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string maps = folder_ / "maps.svg";
  const Finished seen = run({"inspect", run_folder, "--image", photo_, "--svg", maps, "--json"});
  ASSERT_EQ(seen.status, 0) << seen.err;
  const base::Node branches = json(seen.out).at("attention").at("branches");
  ASSERT_EQ(branches.size(), 8U) << "o_self and o_mem of four layers";
  EXPECT_EQ(branches.items()[1].at("name").as_string(), "o_mem");
  EXPECT_NE(branches.items()[1].at("means"), branches.items()[0].at("means"));
  EXPECT_TRUE(holds(content(maps), "layer 3 o_mem"));
  // How strong each branch is where an object is found.
  const base::Node objects = json(seen.out).at("attention").at("objects");
  ASSERT_EQ(objects.size(), 5U);
  const Finished detected = run({"detect", run_folder, photo_, "--threshold", "0", "--top", "5", "--json"});
  const base::Node found = json(detected.out).items()[0].at("objects");
  for (size_t i = 0; i < 5; ++i)
    for (const char* key : {"label", "score", "box"})
      EXPECT_EQ(objects.items()[i].at(key), found.items()[i].at(key)) << i << key;
  EXPECT_TRUE(holds(run({"inspect", run_folder, "--image", photo_}).out, "share of the output"));
  const base::Node& best = objects.items()[0];
  ASSERT_EQ(best.at("branches").size(), 8U);
  EXPECT_EQ(best.at("branches").items()[7].at("name").as_string(), "o_mem");
  EXPECT_GT(best.at("branches").items()[1].at("everywhere").as_double(), 0.0);
  EXPECT_TRUE(holds(content(maps), "1 " + best.at("label").as_string())) << "the boxes are in the picture";
}

TEST_F(Detectors, StartFromABackboneThatClassifies) {
  data::make_class_folders(folder_ / "classes");
  const std::string classes = folder_ / "classes.toml";
  std::string model = small_detector("retinanet");
  model = model.substr(0, model.find("\nhead") + 1);
  write(classes, "[data]\ntype = \"images\"\ntrain = \"" + folder_ / "classes" + "\"\n[model]\n" + model +
                     "head = { type = \"classification\", pool = \"mean\" }\n[train]\nsteps = 1\nbatch_size = 2\n");
  const Finished classifier = run({"train", classes, "--out", folder_ / "classifier", "--quiet"});
  ASSERT_EQ(classifier.status, 0) << classifier.err;
  // A Swin in timm's format.
  write(classes,
        "[data]\ntype = \"images\"\ntrain = \"" + folder_ / "classes" +
            "\"\n[model]\nbackbone = { type = \"swin\", image_size = [64, 64], dim = 8, depths = [1, 1, 1, 1], "
            "num_heads = [1, 1, 2, 2], window_size = [4, 4] }\n"
            "head = { type = \"classification\", pool = \"mean\" }\n[train]\nsteps = 1\nbatch_size = 2\n");
  ASSERT_EQ(run({"train", classes, "--out", folder_ / "swin", "--quiet"}).status, 0);
  const Finished converted = run({"convert", folder_ / "swin", "--to", "timm_swin", "--out", folder_ / "timm_swin"});
  ASSERT_EQ(converted.status, 0) << converted.err;
  for (const std::string& from : {folder_ / "classifier", folder_ / "timm_swin",
                                  std::string(MNEMO_SOURCE_DIR) + "/tests/golden/data/vision_import/timm_pvt_v2"}) {
    const std::string path = folder_ / "from.toml";
    write(path, "[data]\ntype = \"detection\"\ntrain = \"" + objects_ + "\"\nshorter = [64]\n[model]\nfrom = \"" +
                    from +
                    "\"\nhead = { type = \"retinanet\", channels = 16, num_convs = 1 }\n[train]\nsteps = 1\n"
                    "batch_size = 2\n");
    const Finished outcome = run({"train", path, "--out", folder_ / "from"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, "initial weights; fresh: ")) << outcome.err;
    std::filesystem::remove_all(folder_ / "from");
  }
}

}  // namespace
}  // namespace mnemo
