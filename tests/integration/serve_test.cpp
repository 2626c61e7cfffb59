#include <gtest/gtest.h>

#include "base/child_process.h"
#include "tests/integration/text_training.h"
#include "tests/support/painted_objects.h"
#include "tests/support/translation_run.h"

namespace mnemo::test {
namespace {

/// Runs tests/python/SCRIPT with the program and these words; what it says of an error.
std::string checked(const TemporaryFolder& folder, const std::string& script, std::vector<std::string> words) {
  words.insert(words.begin(), {"python3", MNEMO_SOURCE_DIR "/tests/python/" + script, kBinary});
  base::ChildProcess child({.words = words, .error_file = folder / "errors"});
  return child.wait().done() ? "" : "failed: " + content(folder / "errors");
}

TEST_F(CommandLine, ServesClients) { EXPECT_EQ(checked(folder_, "serve_check.py", {trained("run") + "/model"}), ""); }

TEST_F(CommandLine, ServeRefusesOptionsThatNothingReads) {
  const std::string model = trained("run") + "/model";
  for (const auto& [options, words] : std::vector<std::pair<std::vector<std::string>, const char*>>{
           {{"--save-every", "9"}, "serve: --save-every goes with --session-dir, without --durable"},
           {{"--session-dir", folder_ / "s", "--durable", "--save-every", "9"}, "serve: --save-every goes with"},
           {{"--log-prompts", "--no-access-log"}, "serve: --log-prompts puts prompts into the access log"}}) {
    std::vector<std::string> command = {"serve", model, "--port", "0"};
    command.insert(command.end(), options.begin(), options.end());
    const Finished refused = run(command);
    EXPECT_EQ(refused.status, 2) << words;
    EXPECT_TRUE(holds(refused.err, words)) << refused.err;
  }
}

TEST_F(CommandLine, SlowServesALotOfMutatedRequests) {
  EXPECT_EQ(checked(folder_, "serve_check.py", {trained("run") + "/model", "1000000"}), "");
}

TEST_F(CommandLine, ServesMutatedRequests) {
  EXPECT_EQ(checked(folder_, "serve_check.py", {trained("run") + "/model", "100000"}), "");
}

TEST_F(CommandLine, ServesClassesOfImages) {
  const std::string files = MNEMO_SOURCE_DIR "/tests/golden/data/images/files/";
  EXPECT_EQ(checked(folder_, "serve_answers_check.py",
                    {MNEMO_SOURCE_DIR "/tests/golden/data/vision_import/timm_vit", "images", files + "photo_7865c0.jpg",
                     files + "photo_7865c0.jpg"}),
            "");
}

TEST_F(CommandLine, ServesObjectsInImages) {
  paint_objects(folder_.path(), 4);
  write(folder_ / "recipe.toml", "[data]\ntype = \"detection\"\ntrain = \"" + folder_ / "instances_painted.json" +
                                     "\"\nshorter = [64]\n[model]\n" + small_detector("mask_rcnn") +
                                     "[train]\nsteps = 2\nbatch_size = 2\n");
  const Finished done = run({"train", folder_ / "recipe.toml", "--out", folder_ / "run", "--quiet"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(checked(folder_, "serve_answers_check.py",
                    {folder_ / "run", "objects", folder_ / "painted/1.jpg", folder_ / "painted/2.jpg"}),
            "");
}

using ServedTexts = TextTraining;
TEST_F(ServedTexts, HaveClasses) {
  EXPECT_EQ(checked(folder_, "serve_answers_check.py",
                    {published("bert_cls"), "texts", "the film was good", "a film was badly w20"}),
            "");
}

using ServedPairs = TranslationRun;
TEST_F(ServedPairs, AreTranslations) {
  const Finished done = run({"train", pair_recipe_, "--out", folder_ / "model", "-q"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(checked(folder_, "serve_answers_check.py", {folder_ / "model", "translate", "number 3 of 4", "number 5"}),
            "");
}

}  // namespace
}  // namespace mnemo::test
