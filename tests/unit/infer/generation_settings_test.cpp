#include "infer/generation_settings.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::infer {
namespace {

using EndIds = std::vector<int64_t>;

struct PublishedFolder : testing::Test {
  /// The end tokens of a folder with the files written so far, published or ours.
  EndIds ends(bool published) const {
    bundle::Bundle stored{.folder = folder.path()};
    if (published) stored.format = &weights::foreign_format("huggingface_llama");
    return end_tokens(stored);
  }
  void write(const std::string& name, const std::string& content) const {
    base::write_file_atomic(folder / name, content);
  }
  test::TemporaryFolder folder;
};

TEST_F(PublishedFolder, SaysWhichTokensEndItsTexts) {
  EXPECT_EQ(end_tokens({}), EndIds{});
  write("config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(ends(true), EndIds{7});
  EXPECT_EQ(ends(false), EndIds{}) << "a key of ours it is not";
  write("source_config.json", R"({"eos_token_id": 5})");
  EXPECT_EQ(ends(false), EndIds{5}) << "converted";
  write("generation_config.json", R"({"eos_token_id": [2, 9], "do_sample": true})");
  for (const bool published : {true, false}) EXPECT_EQ(ends(published), (EndIds{2, 9}));
  for (const char* none : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": []})"}) {
    write("generation_config.json", none);
    EXPECT_EQ(ends(true), EndIds{}) << none;
  }
}

// Whatever else the file says is left aside, with one warning.
TEST_F(PublishedFolder, OtherSettingsAreToldOnce) {
  std::string log;
  const base::ConsoleScope scope(std::make_shared<base::Console>([&](std::string_view line) { log += line; }));
  write("generation_config.json",
        R"({"eos_token_id": 3, "repetition_penalty": "1.1", "guidance_scale": true, "bad_words_ids": [],
            "suppress_tokens": [5], "num_beam_groups": 1})");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ends(true), EndIds{3});
  EXPECT_NE(log.find("left aside: 'repetition_penalty', 'guidance_scale', 'suppress_tokens'\n"), std::string::npos)
      << log;
  EXPECT_EQ(log.find("warning"), log.rfind("warning")) << log;
}

TEST_F(PublishedFolder, MistakesInItsEndTokensAreTold) {
  const auto refused = [&](const std::string& content, std::initializer_list<std::string> parts) {
    write("generation_config.json", content);
    test::expect_error<base::InputError>([&] { ends(true); }, parts);
  };
  const std::string
      where = "generation_config.json: 'eos_token_id': expected a token's number or a list of them, found ";
  refused(R"({"eos_token_id": "</s>"})", {where + "string \"</s>\""});
  refused(R"({"eos_token_id": [1, [2]]})", {where + "list of 1 value"});
  refused(R"({"eos_token_id": 1.5})", {where + "number 1.5"});
  refused("[]", {"generation_config.json", "list"});
  refused("{", {"generation_config.json"});
}

}  // namespace
}  // namespace mnemo::infer
