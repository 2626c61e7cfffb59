// A line of input gives a line of output, whatever the search's limits and the model's are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "tests/support/translation_run.h"

namespace mnemo::translation_lines_test {
namespace {

using namespace test;

int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

int64_t times(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Whether there is a letter or a digit after the part.
bool goes_on(const std::string& text, const std::string& part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    if (std::isalnum(static_cast<unsigned char>(text[at + part.size()])) != 0) return true;
  }
  return false;
}

class TranslationLines : public TranslationRun {
 protected:
  std::string trained_pairs(std::vector<std::string> settings = {"train.steps=1"}) {
    const Finished done = train(settings);
    EXPECT_EQ(done.status, 0) << done.err;
    return folder_ / "model";
  }
  Finished train(const std::vector<std::string>& settings) {
    std::filesystem::remove_all(folder_ / "model");
    std::vector<std::string> words = {"train", pair_recipe_, "--out", folder_ / "model", "-q"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return run(words);
  }
  static void refused(const Finished& outcome, const std::string& words, const std::string& out = "") {
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << "expected: " << words << "\nfound: " << outcome.err;
    EXPECT_EQ(outcome.out, out) << words;
  }
};

// No token is left for a translation of 2,000 different ones: it ends.
TEST_F(TranslationLines, ATranslationThatNothingMayFollowEnds) {
  const std::string model = trained_pairs({"train.steps=2", "train.eval_every=2",
                                           "data.search={beam_size=1, no_repeat_ngram=1, min_len=1500, "
                                           "max_len_b=2000}"});
  const std::string limits = model + " --no-repeat-ngram 1 --min-len 2000 --max-len-b 3000";
  for (const std::string more : {" --beam 1", " --beam 3", " --sample"}) {
    const Finished found = translate("number 3 of 4\nnumber 5\n", limits + more);
    EXPECT_EQ(found.status, 0) << found.err;
    EXPECT_EQ(lines_of(found.out), 2) << more;
  }
  const Finished as_json = translate("number 3\n", limits + " --beam 1 --json");
  EXPECT_EQ(json(as_json.out).at("translations").size(), 1u) << as_json.out;
}

// A line that is longer than the model's positions or rows is cut; translations end where the places do.
TEST_F(TranslationLines, ALineLongerThanTheModelReadsIsCut) {
  write(folder_ / "long.tsv",
        "a number 3 of 4 and 5 and 6 and 7 and 8 and 9\tZahl 3 von 4 und 5 und 6 und 7 und 8 und 9\n"
        "number 3 of 4\tZahl 3 von 4\n");
  std::string line;
  while (line.size() < 1000) line += "number 3 ";
  for (const std::string& limit :
       {std::string("model.backbone.position={type=\"learned\", max_len=12}"),
        std::string("model.backbone.encoder={num_layers=1, attention={type=\"linformer\", num_slots=2, max_len=10}}"),
        std::string("model.backbone.decoder={num_layers=1, cross_attention={type=\"linformer\", num_slots=2, "
                    "max_len=10}}")}) {
    const std::string model = trained_pairs(
        {"train.steps=2", "train.eval_every=2", "data.max_length=8", "data.valid=" + (folder_ / "long.tsv"), limit});
    const Finished cut = translate("number 3 of 4\n" + line + "\nnumber 5\n", model + " --min-len 40 --max-len-b 50");
    EXPECT_EQ(cut.status, 0) << limit << cut.err;
    EXPECT_EQ(lines_of(cut.out), 3) << limit;
    EXPECT_TRUE(holds(cut.err, "standard input:2: ") && holds(cut.err, "cut to 10")) << cut.err;
    const Finished measured = run({"eval", model, "--part", "valid"});
    EXPECT_EQ(measured.status, 0) << measured.err;
    EXPECT_EQ(times(measured.err, "1 of 2 held-out pairs are longer"), 1) << measured.err;
  }
  refused(train({"model.backbone.position={type=\"learned\", max_len=6}"}),
          "data.max_length: expected at most 4, the positions that the model has for a source");
}

TEST_F(TranslationLines, HowMuchOfALineIsReadIsSaid) {
  const std::string model = trained_pairs();
  const Finished cut = translate("number 3 of 4\nnumber 3\n", model + " --max-source 4");
  EXPECT_EQ(cut.status, 0) << cut.err;
  EXPECT_TRUE(holds(cut.err, "standard input:1: 5 tokens, cut to 4")) << cut.err;
  EXPECT_FALSE(holds(cut.err, "standard input:2: ")) << cut.err;
  EXPECT_EQ(translate("\u00A0 \n", model).out, "\n");
  EXPECT_EQ(translate(" \tnumber 3 of 4 \n", model).out, translate("number 3 of 4\n", model).out);
}

// The search of the recipe stays with the model's folder; a run of an earlier version has it in recipe.toml alone.
TEST_F(TranslationLines, ACopiedModelSearchesAsItsRun) {
  const std::string model = trained_pairs(), copy = folder_ / "copy", line = "number 3 of 4\n", search = "/search.json";
  const std::string found = translate(line, model + " --nbest 2 --json").out;
  std::filesystem::copy(model + "/model", copy);
  EXPECT_EQ(translate(line, copy + " --nbest 2 --json").out, found);
  refused(translate(line, copy + " --nbest 3"), "--nbest: expected 1 to the beam's 2, found 3");
  write(copy + search, "{\"beam_size\": 3, \"max_len_b\": 8}");
  EXPECT_EQ(lines_of(translate(line, copy + " --nbest 3").out), 3);
  write(copy + search, "{\"beam_size\": 0}");
  refused(translate(line, copy), copy + search + ":1: 'beam_size': expected ");
  std::filesystem::remove(model + "/model" + search);
  EXPECT_EQ(translate(line, model + " --nbest 2 --json").out, found);
}

TEST_F(TranslationLines, ASearchThatDoesNotFitIsRefusedAtOnce) {
  const std::string model = trained_pairs();
  refused(translate("\n\nTom\n", model + " --beam 1000"), "beam_size: expected at most the vocabulary's");
  refused(translate("", model + " --beam 1000"), "beam_size: expected at most the vocabulary's");
  refused(translate("Tom\n", model + " --max-len-a 1e300"), "max_len_a");
  refused(train({"data.search={beam_size=1020}"}),
          "'data.search': beam_size: expected at most the target vocabulary's");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model/model"));
}

TEST_F(TranslationLines, LinesBeforeOneThatIsTooLongAreTranslated) {
  const std::string model = trained_pairs();
  const std::string before = translate("number 1\n\n", model).out;
  refused(translate("number 1\n\n" + std::string(1'100'000, 'x') + "\nnumber 2\n", model),
          "standard input:3: expected lines of at most 1048576 bytes", before);
}

TEST_F(TranslationLines, UnknownTokensAreReportedOnce) {
  const std::string model = trained_pairs(
      {"train.steps=1", "data.unit=unigram", "data.max_vocabulary=28", "data.max_length=40"});
  std::string lines;
  for (int i = 0; i < 1500; ++i) lines += "number 1\n";
  const Finished found = translate(lines + "~~~ ~~~\n", model + " --beam 1 --max-len-b 1");
  EXPECT_EQ(found.status, 0) << found.err;
  EXPECT_EQ(times(found.err, "pieces are not in the model's vocabulary and are read as <unk>"), 1) << found.err;
  EXPECT_FALSE(holds(found.err, "sentencepiece")) << found.err;
}

TEST_F(TranslationLines, AnEmptyLineStaysOne) {
  const std::string model = trained_pairs();
  EXPECT_EQ(translate("\n", model + " --alignment").out, "\n");
  EXPECT_EQ(translate("\n", model + " --beam 3 --nbest 3").out, "\n\n\n");
  const std::string both = translate("\nnumber 1\n", model + " --beam 3 --nbest 3 --alignment").out;
  EXPECT_EQ(both.substr(0, 3), "\n\n\n");
  EXPECT_EQ(lines_of(both), 6);
}

TEST_F(TranslationLines, AByteOrderMarkIsNoText) {
  const std::string model = trained_pairs({"train.steps=1", "data.unit=words", "data.max_vocabulary=0"});
  const std::string mark = "\xEF\xBB\xBF", lines = "number 3 of 4\nnumber 5\n";
  const Finished with = translate(mark + lines, model + " --json"), without = translate(lines, model + " --json");
  EXPECT_EQ(with.out, without.out);
  EXPECT_EQ(with.err.find("not in the vocabulary"), std::string::npos) << with.err;
  write(folder_ / "plain", "von\n\n");
  write(folder_ / "marked", mark + "von\n\n");
  const Finished plain = translate(lines, model + " --prefix " + (folder_ / "plain")),
                 marked = translate(lines, model + " --prefix " + (folder_ / "marked"));
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(marked.out, plain.out) << marked.err;
  refused(translate(lines, model + " --rank-timeout 10"), "translate: --rank-timeout is for several processes");
}

TEST_F(TranslationLines, TextThatIsNotUtf8HasAWayOut) {
  const std::string model = trained_pairs();
  const Finished line = translate("a\n\xff\n", model);
  refused(line, "standard input:2: invalid UTF-8 at byte 0: found 0xFF; convert it to UTF-8, for example with iconv");
  write(folder_ / "pairs.tsv", "a\t\xff b\n");
  refused(train({"train.steps=1"}), "pairs.tsv:1: invalid UTF-8 at byte 2: found 0xFF; convert it to UTF-8");
}

// Each translation begins with the words of its line of the file.
TEST_F(TranslationLines, TranslationsBeginWithThePrefixes) {
  const std::string file = folder_ / "begin", prefixes = " --prefix " + file + " ";
  const std::string lines = "number 3 of 4\nnumber 5\n\nnumber 6 of 2\n";
  for (const char* unit : {"words", "characters", "unigram"}) {
    const std::string size = unit == std::string("unigram") ? "data.max_vocabulary=30" : "data.max_vocabulary=0";
    const std::string model = trained_pairs(
        {"train.steps=1", std::string("data.unit=\"") + unit + "\"", size, "data.max_length=40"});
    const std::string options = model + " --max-len-b 8 --nbest 2 ";
    write(file, "\n\n\n\n");
    EXPECT_EQ(translate(lines, options + prefixes).out, translate(lines, options).out) << unit;
    write(file, "von Zahl 7\r\n\n\nvon\n");
    for (const char* how : {"--beam 3", "--sample", "--batch 1", "--json", "--precision int8"}) {
      const Finished found = translate(lines, options + prefixes + how);
      ASSERT_EQ(found.status, 0) << how << found.err;
      const bool in_json = how == std::string("--json");
      const std::string begins = in_json ? "\"text\":\"" : "\t";
      EXPECT_GE(times(found.out, begins + "von Zahl 7"), 1) << unit << how << found.out;
      EXPECT_GE(times(found.out, begins + "von"), 3) << unit << how << found.out;
      EXPECT_EQ(lines_of(found.out), in_json ? 4 : 8) << how;
      EXPECT_FALSE(goes_on(found.out, begins + "von Zahl 7")) << unit << how << found.out;
    }
    const Finished drawn = translate(lines, model + " --max-len-b 20 --sample --nbest 40" + prefixes);
    EXPECT_GE(times(drawn.out, "\tvon Zahl 7"), 40) << unit << drawn.err;
    EXPECT_FALSE(goes_on(drawn.out, "\tvon Zahl 7")) << unit << drawn.out;
  }
  const std::string model = trained_pairs();
  write(file, "von\n\n");
  const std::string two = translate("number 3 of 4\nnumber 5\n", model + prefixes).out;
  EXPECT_EQ(lines_of(two), 2);
  refused(translate("number 3 of 4\nnumber 5\nnumber 6\n", model + prefixes),
          file + ": expected a line for each line of standard input, at least 3, found 2", two);
  refused(translate("number 3 of 4\n", model + prefixes),
          file +
              ": expected a line for each line of standard input, 1, "
              "found 2",
          two.substr(0, two.find('\n') + 1));
  refused(translate("\n\n", model + prefixes), file + ":1: the line to translate is empty");
  write(file, "\nGloucester\n");
  const std::string words = trained_pairs({"train.steps=1", "data.unit=words"});
  refused(translate("number 3\nnumber 5\n", words + prefixes),
          file + ":2: expected a prefix of words that the model can write, found 'Gloucester' with 1 unknown words");
  write(file, "\xff\n");
  refused(translate("number 3\n", model + prefixes), file + ":1: invalid UTF-8");
  refused(translate("number 3\n", model + " --prefix " + (folder_ / "none")), "none");
  write(file, "von von von von von von von von von von\n");
  refused(translate("number 3\n", trained_pairs({"train.steps=1", "data.max_length=8",
                                                 "model.backbone.position={type=\"learned\", max_len=12}"}) +
                                      prefixes),
          file + ":1: expected a prefix of fewer than 10 tokens, the model's positions, found 10");
}

}  // namespace
}  // namespace mnemo::translation_lines_test
