#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/text_table.h"
#include "tests/support/command_line.h"

// The program's documentation of itself: help, recipes, completion, the manual page.
namespace mnemo {
namespace {

using namespace test;

TEST_F(CommandLine, HelpNamesEverySubcommandAndVersionTheLibraries) {
  const Finished help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* name : {"train", "eval", "compare", "generate", "inspect", "convert", "score", "data", "recipes",
                           "init", "runs", "completion", "help"}) {
    EXPECT_TRUE(holds(help.out, std::string("  ") + name)) << name;
    EXPECT_EQ(run({"help", name}).status, 0) << name;
  }
  EXPECT_FALSE(holds(run({"help", "compare"}).out, "--job "));
  const Finished version = run({"--version"});
  EXPECT_EQ(version.status, 0);
  for (const char* word : {"mnemo ", "LibTorch ", "MKL override", "malloc tuning", "threads", "CUDA"})
    EXPECT_TRUE(holds(version.out, word)) << version.out;
  EXPECT_TRUE(holds(run({"help", "runs"}).out, "\nmnemo runs\nmnemo runs runs/a runs/b\n"));
  EXPECT_TRUE(holds(run({"help", "recipe"}).out, "train.steps = 1000"));
  EXPECT_TRUE(holds(run({"help", "recipe", "--markdown"}).out, "| train.steps |"));
}

TEST_F(CommandLine, RecipesAreFoundByNameFromAnyFolder) {
  const Finished listed = run({"recipes"});
  EXPECT_EQ(listed.status, 0) << listed.err;
  for (const char* name : {"text", "demo", "learnable_memory"}) EXPECT_TRUE(holds(listed.out, name)) << listed.out;
  const base::Node rows = json(run({"recipes", "--json"}).out);
  const std::filesystem::directory_iterator recipes(MNEMO_SOURCE_DIR "/recipes"), end;
  EXPECT_EQ(static_cast<std::ptrdiff_t>(rows.size()), std::distance(recipes, end));
  EXPECT_EQ(rows.items()[0].at("command").as_string(), "compare");
  EXPECT_EQ(run({"data", "text", "--set", "data.train=" + text_}).status, 0);
  const Finished trained = run({"train", "text", "--data", text_, "--out", folder_ / "by_name", "--set",
                                "train.steps=1", "--set", "train.batch_size=1", "--set", "model.segment_size=4", "-q"});
  EXPECT_EQ(trained.status, 0) << trained.err;
}

TEST_F(CommandLine, BashCompletesOptionsTheirValuesAndKeys) {
  const Finished outcome = run({"completion", "bash"});
  EXPECT_EQ(outcome.status, 0);
  write(folder_ / "complete.sh", outcome.out);
  const auto reply = [&](const std::vector<std::string>& words, const std::string& between = " ") {
    std::string script = "source '" + (folder_ / "complete.sh") + "'\nCOMP_WORDS=(";
    for (const std::string& word : words) script += "'" + word + "' ";
    script += fmt::format(")\nCOMP_CWORD={}\n_mnemo\nIFS='{}'\necho \" ${{COMPREPLY[*]}} \"\n", words.size() - 1,
                          between);
    write(folder_ / "script.sh", script);
    EXPECT_EQ(
        std::system(fmt::format("bash '{}' > '{}' 2>/dev/null", folder_ / "script.sh", folder_ / "reply.txt").c_str()),
        0);
    return content(folder_ / "reply.txt");
  };
  EXPECT_TRUE(holds(reply({"mnemo", "train", "--set", "train.sched"}), "train.schedule.warmup_steps="));
  EXPECT_EQ(reply({"mnemo", "data", "my.txt", "--unit", ""}), " bytes characters words \n");
  EXPECT_EQ(reply({"mnemo", "eval", "run", "--device", "cu"}), " cuda \n");
  EXPECT_EQ(reply({"mnemo", "eval", "run", "--device", "=", "cu"}), " cuda \n");
  EXPECT_EQ(reply({"mnemo", "eval", "run", "--device", "="}), " cpu cuda \n");
  EXPECT_EQ(reply({"mnemo", "convert", "run", "--to", "t"}).substr(0, 5), " t2r ");
  EXPECT_EQ(reply({"mnemo", "completion", "z"}), " zsh \n");
  EXPECT_EQ(reply({"mnemo", "eval", "run", "--memory", ""}), " zeros noise \n");
  EXPECT_TRUE(holds(reply({"mnemo", "data", "tokenizer", "--type", ""}), " unigram "));
  EXPECT_TRUE(holds(reply({"mnemo", "train", "--see"}), " \n"));
  EXPECT_TRUE(holds(reply({"mnemo", "train", "te"}), " text "));
  EXPECT_TRUE(holds(reply({"mnemo", "generate", "--top"}), " --top-k --top-p "));
  // An option of the same name takes other values in another command.
  EXPECT_EQ(reply({"mnemo", "convert", "run", "--memory", ""}), "  \n");
  for (const char* command : {"train", "finetune", "eval", "compare", "generate", "translate", "classify"})
    EXPECT_EQ(reply({"mnemo", command, "run", "--device", ""}), " cpu cuda \n") << command;
  for (const char* command : {"eval", "generate", "translate", "classify", "inspect", "convert"})
    EXPECT_EQ(reply({"mnemo", command, "run", "--checkpoint", ""}), " latest best \n") << command;
  // Names of files may hold blanks.
  write(folder_ / "my text.txt", "");
  std::filesystem::create_directory(folder_ / "my run");
  const std::string found = reply({"mnemo", "eval", "run", "--data", folder_ / "my "}, "|");
  for (const char* name : {"my run", "my text.txt"}) EXPECT_TRUE(holds(found, folder_ / name)) << found;
  EXPECT_EQ(std::count(found.begin(), found.end(), '|'), 1) << found;
  EXPECT_EQ(reply({"mnemo", "attach", "run", "--out", folder_ / "my "}, "|"), " " + (folder_ / "my run") + " \n");
  EXPECT_TRUE(holds(reply({"mnemo", "train", folder_ / "my t"}, "|"), folder_ / "my text.txt"));
}

TEST_F(CommandLine, HelpHasAnExampleAndNoLongLine) {
  for (const char* name : {"train", "finetune", "eval", "compare", "generate", "translate", "classify", "inspect",
                           "convert", "attach", "score", "data", "recipes", "init", "runs", "serve"}) {
    const std::string text = run({"help", name}).out;
    EXPECT_TRUE(holds(text, std::string("\nmnemo ") + name)) << name << " without an example";
    EXPECT_FALSE(holds(text, "\n\n\n")) << text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(base::text_width(line), 120u) << name << ": " << line;
  }
}

// Parsed by the shells themselves where they are installed.
TEST_F(CommandLine, ZshAndFishHaveEveryOption) {
  for (const char* shell : {"zsh", "fish"}) {
    const Finished outcome = run({"completion", shell});
    EXPECT_EQ(outcome.status, 0);
    for (const char* word : {"prompt-file", "float32", "warmup_steps", "masked_memory"})
      EXPECT_TRUE(holds(outcome.out, word)) << shell << ": " << word;
    // _arguments would give its own options to an action without a blank before it.
    EXPECT_FALSE(holds(outcome.out, ":_alternative"));
    write(folder_ / "script", outcome.out);
    if (std::system(fmt::format("command -v {} >/dev/null", shell).c_str()) != 0) continue;
    EXPECT_EQ(std::system(fmt::format("{} -n '{}'", shell, folder_ / "script").c_str()), 0);
  }
  if (std::system("command -v fish >/dev/null") != 0) return;
  const std::string ask = fmt::format(
      "fish -c 'source {}; complete -C \"mnemo eval run --memory \"' 2>&1 | cut -f1 > {}", folder_ / "script",
      folder_ / "reply");
  EXPECT_EQ(std::system(ask.c_str()), 0);
  EXPECT_EQ(content(folder_ / "reply"), "noise\nzeros\n");
}

TEST_F(CommandLine, TheManualNamesEverySubcommand) {
  const Finished manual = run({"help", "man"});
  EXPECT_EQ(manual.status, 0);
  EXPECT_TRUE(manual.out.starts_with(".TH MNEMO 1"));
  for (const char* name : {"train", "compare", "generate", "recipes", "completion"})
    EXPECT_TRUE(holds(manual.out, std::string(".SS mnemo ") + name)) << name;
  for (const char* argument :
       {"\n.TP\n\\fIMODEL\\fR\nmodel folder, run folder or checkpoint\n",
        "\n.TP\n[\\fIINPUT\\fR ...]\nimage model: JPEG or PNG files", "\n.TP\n\\fIFILE\\fR ...\ntask files"})
    EXPECT_TRUE(holds(manual.out, argument)) << argument;
}

TEST_F(CommandLine, HelpOfRecipesFitsTheColumns) {
  ASSERT_EQ(setenv("COLUMNS", "40", 1), 0);
  const Finished help = run({"help", "recipe"});
  unsetenv("COLUMNS");
  std::istringstream lines(help.out);
  int64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const size_t word = std::min(line.find_first_not_of(' '), line.size());
    const bool one_word = line.find(' ', word) == std::string::npos;
    EXPECT_TRUE(base::text_width(line) <= 40 || one_word) << line;
  }
  EXPECT_GT(count, 1000);
}

}  // namespace
}  // namespace mnemo
