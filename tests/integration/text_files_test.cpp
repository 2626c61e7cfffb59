#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tests/support/command_line.h"

namespace mnemo::test {
namespace {

TEST_F(CommandLine, SeveralPackedFilesTrainAsOneText) {
  const std::string text = content(text_), half = folder_ / "texts";
  const size_t cut = text.find("line 3600 ");
  std::filesystem::create_directory(half);
  write(half + "/1.txt", text.substr(0, cut));
  write(half + "/2.txt", text.substr(cut));
  ASSERT_EQ(std::system(("gzip '" + half + "/2.txt'").c_str()), 0);
  const std::string expected = content(trained("one") + "/model/model.safetensors");
  for (const std::string& data : {half, half + "/*"}) {
    const std::string folder = folder_ / ("run" + std::to_string(data.size()));
    const Finished done = run({"train", recipe_, "--data", data, "--out", folder, "-q"});
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_TRUE(content(folder + "/model/model.safetensors") == expected) << data;
    EXPECT_EQ(json(run({"eval", folder, "--data", data, "--json"}).out).at("nll"),
              json(run({"eval", folder, "--data", text_, "--json"}).out).at("nll"));
    EXPECT_EQ(run({"eval", folder, "-q"}).status, 0);
  }
  std::filesystem::create_directory(half + "/more");
  write(half + "/more/README.md", "what this is");
  for (const std::string& data : {half + "/*", half, half + "/"}) {
    const Finished shown = run({"data", data}), made = run({"init", "--data", data});
    EXPECT_EQ(shown.status, 0) << shown.err;
    EXPECT_TRUE(holds(shown.out, "characters")) << shown.out;
    EXPECT_EQ(made.status, 0) << made.err;
    EXPECT_TRUE(holds(made.out, "name = \"texts\"") && holds(made.out, "mnemo train texts.toml --out runs/texts "))
        << made.out;
  }
  const Finished taught = run({"finetune", "--model", folder_ / "run8", "--data", half, "--out", folder_ / "taught"});
  EXPECT_TRUE(holds(taught.err, "expected the folder of an image set, found [data] of type \"text\"")) << taught.err;
  std::string records;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) records += "{\"body\": \"" + line + "\\n\"}\n";
  write(folder_ / "records.jsonl", records);
  const Finished done = run({"train", recipe_, "--data", folder_ / "records.jsonl", "--set", "data.json_key=body",
                             "--out", folder_ / "records", "-q"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(content(folder_ / "records/model/model.safetensors") == expected);
  const Finished none = run({"train", recipe_, "--data", folder_ / "*.none", "--out", folder_ / "none", "-q"});
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(holds(none.err, "*.none: no file matches")) << none.err;
}

}  // namespace
}  // namespace mnemo::test
