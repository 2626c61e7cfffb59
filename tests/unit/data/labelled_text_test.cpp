#include "data/answers/labelled_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/machine.h"
#include "data/answers/hyperpartisan.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "text/open_tokenizer.h"

namespace mnemo::data {
namespace {

struct LabelledTextFiles : testing::Test {
  std::string write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << content;
    return folder / name;
  }
  LabelledTextSets read(const std::string& train, const std::string& valid = {}) const {
    LabelledTextOptions options;
    options.train = train;
    options.valid = valid;
    return read_labelled_texts(options);
  }
  void refused(const std::string& content, std::initializer_list<std::string> parts) const {
    const std::string path = write("bad.tsv", content);
    test::expect_error<base::InputError>([&] { read(path); }, parts);
  }
  /// [PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f are 0 to 10.
  std::shared_ptr<const text::Tokenizer> bert() const {
    write("bert/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\n");
    return text::open_tokenizer(folder / "bert");
  }
  test::TemporaryFolder folder;
};

std::vector<int64_t> tokens_of(const LabelledDocuments& documents, int64_t i) {
  std::vector<int64_t> tokens(static_cast<size_t>(documents.length(i)));
  documents.read(i, tokens);
  return tokens;
}

TEST_F(LabelledTextFiles, TablesOfGlueAreKnownByTheirFirstLine) {
  const auto sst = read(write("sst.tsv", "sentence\tlabel\na \"fine\" film \t1\nbad\t0\n"));
  EXPECT_EQ(sst.labels, (std::vector<std::string>{"0", "1"}));
  ASSERT_EQ(sst.train.size(), 2U);
  EXPECT_EQ(sst.train[0].first, "a \"fine\" film ");
  EXPECT_EQ(sst.train[0].label, "1");
  EXPECT_FALSE(sst.train[0].second);

  const auto cola = read(write("cola.tsv", "gj04\t1\t\tThey left.\ncj99\t0\t*\tLeft they the.\n"));
  ASSERT_EQ(cola.train.size(), 2U);
  EXPECT_EQ(cola.train[1].first, "Left they the.");
  EXPECT_EQ(cola.train[1].label, "0");

  const auto mrpc = read(
      write("mrpc.tsv", "\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tone\ttwo\r\n"));
  EXPECT_EQ(mrpc.train.at(0).first, "one");
  EXPECT_EQ(mrpc.train.at(0).second, "two");
  EXPECT_EQ(mrpc.train.at(0).label, "1");

  const auto rte = read(write("rte.tsv", "index\tsentence1\tsentence2\tlabel\n0\tx\ty\tnot_entailment\n"));
  EXPECT_EQ(rte.labels, (std::vector<std::string>{"entailment", "not_entailment"}));
  EXPECT_EQ(rte.train.at(0).second, "y");
  const auto qnli = read(write("qnli.tsv", "index\tquestion\tsentence\tlabel\n0\tx?\ty\tentailment\n"));
  EXPECT_EQ(qnli.train.at(0).first, "x?");

  const auto qqp = read(write("qqp.tsv",
                              "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
                              "9\t1\t2\tWhy?\tHow?\t0\n5\t3\tbroken\n8\t4\t5\tWho?\tWhom?\t1\n"));
  EXPECT_EQ(qqp.labels, (std::vector<std::string>{"0", "1"}));
  ASSERT_EQ(qqp.train.size(), 2U) << "the published file has lines without all columns";
  EXPECT_EQ(qqp.train[1].first, "Who?");
  EXPECT_EQ(qqp.train[1].second, "Whom?");
  EXPECT_EQ(qqp.train[1].label, "1");

  const std::string parses =
                        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
                        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\t",
                    row = "0\t1\t2\tfiction\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tone\ttwo\tneutral\t";
  const auto mnli = read(write("mnli.tsv", parses + "gold_label\n" + row + "contradiction\n"),
                         write("dev_matched.tsv", parses + "label2\tlabel3\tlabel4\tlabel5\tgold_label\n" + row +
                                                      "neutral\tneutral\tneutral\tneutral\tentailment\n"));
  EXPECT_EQ(mnli.labels, (std::vector<std::string>{"entailment", "neutral", "contradiction"}));
  EXPECT_EQ(mnli.train.at(0).first, "one");
  EXPECT_EQ(mnli.train.at(0).second, "two");
  EXPECT_EQ(mnli.train.at(0).label, "contradiction");
  EXPECT_EQ(mnli.valid.at(0).second, "two");
  EXPECT_EQ(mnli.valid.at(0).label, "entailment");
}

TEST_F(LabelledTextFiles, FoldsAreDealtOnceAndCoverEveryText) {
  std::string table = "sentence\tlabel\n";
  for (int i = 0; i < 23; ++i) table += std::to_string(i) + "\t" + std::to_string(i % 2) + "\n";
  LabelledTextOptions options;
  options.train = write("folds.tsv", table);
  options.folds = 5;
  std::multiset<std::string> seen;
  for (options.fold = 0; options.fold < 5; ++options.fold) {
    const auto sets = read_labelled_texts(options);
    EXPECT_EQ(sets.valid.size(), options.fold < 3 ? 5U : 4U);
    EXPECT_EQ(sets.train.size() + sets.valid.size(), 23U);
    for (const LabelledText& text : sets.valid) seen.insert(text.first);
  }
  EXPECT_EQ(seen.size(), 23U);
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), 23U) << "each once";
  const auto read_keys = [](const std::string& keys) {
    return base::read_options<LabelledTextOptions>(base::parse_toml("train = \"t.tsv\"\n" + keys, "recipe"));
  };
  test::expect_error<base::InputError>([&] { read_keys("folds = 5\nfold = 5"); }, {"'fold'", "found folds = 5"});
  test::expect_error<base::InputError>([&] { read_keys("fold = 1"); }, {"'fold'"});
  test::expect_error<base::InputError>([&] { read_keys("folds = 5\nvalid_fraction = 0.1"); }, {"'folds'"});
}

TEST_F(LabelledTextFiles, AFixedSplitListsTheIdsOfArticles) {
  std::string articles = "<articles>", truth = "<articles>";
  for (int i = 1; i <= 6; ++i) {
    articles += "<article id=\"000000" + std::to_string(i) + "\" title=\"t\"><p>text " + std::to_string(i) +
                "</p></article>";
    truth += "<article id=\"000000" + std::to_string(i) + "\" hyperpartisan=\"" + (i % 2 == 0 ? "true" : "false") +
             "\"/>";
  }
  LabelledTextOptions options;
  options.train = write("articles-split.xml", articles + "</articles>");
  write("ground-truth-split.xml", truth + "</articles>");
  options.valid = options.test = write("splits.json", R"({"train": [1, 3, 5], "dev": ["0000002"], "test": [4, 6]})");
  const auto sets = read_labelled_texts(options);
  EXPECT_EQ(sets.train.size(), 3U);
  ASSERT_EQ(sets.valid.size(), 1U);
  EXPECT_NE(sets.valid[0].first.find("text 2"), std::string::npos) << sets.valid[0].first;
  ASSERT_EQ(sets.test.size(), 2U);
  EXPECT_NE(sets.test[1].first.find("text 6"), std::string::npos);
  options.test = write("none.json", R"({"dev": []})");
  test::expect_error<base::InputError>([&] { read_labelled_texts(options); }, {"none.json", "under \"test\""});
  options.test = write("other.json", R"({"test": [6, 77]})");
  test::expect_error<base::InputError>([&] { read_labelled_texts(options); }, {"other.json", "ids of 2", "texts of 1"});
}

TEST_F(LabelledTextFiles, MistakesInTablesAreToldWithTheirLine) {
  refused("sentence\tlabel\nfine\t1\nbad\n", {"bad.tsv:3:1: expected 2 tab-separated columns, as in line 1, found 1"});
  refused(
      "sentence\tlabel\nfine\t2\n",
      {"bad.tsv:2: expected a label of 0, 1, found \"2\"; for a table of your own name its columns: data.text_column"});
  refused("index\tsentence\n0\tof the test set\n", {"bad.tsv:1:1: expected the first line of SST-2"});
  refused("sentence\tlabel\nno " + std::string(70'000, 'x') + "\t1\n",
          {"bad.tsv:2:4: expected words of at most 65536 bytes, found one of 70000"});
  refused("sentence\tlabel\n", {"bad.tsv: expected at least one text with a label, found none"});
  const std::string good = write("good.tsv", "sentence\tlabel\nfine\t1\n");
  test::expect_error<base::InputError>([&] { read(good, write("v.tsv", "sentence\tlabel\nx\tmaybe\n")); },
                                       {"v.tsv:2: expected a label of 0, 1, found \"maybe\""});
}

TEST_F(LabelledTextFiles, OwnTablesNameTheirColumns) {
  LabelledTextOptions options;
  options.train = write("own.tsv", "kind\tbody\tid\n10\tten\t1\n9\tnine\t2\n10\tten again\t3\n");
  options.text_column = "body";
  options.label_column = "kind";
  const auto sets = read_labelled_texts(options);
  EXPECT_EQ(sets.labels, (std::vector<std::string>{"9", "10"})) << "numbers by value";
  EXPECT_EQ(sets.train.at(2).first, "ten again");
  options.second_column = "title";
  test::expect_error<base::InputError>([&] { read_labelled_texts(options); },
                                       {"own.tsv:1:1: expected a column \"title\"", "kind, body, id"});
}

TEST_F(LabelledTextFiles, EachFileOfAPatternHasItsHeader) {
  LabelledTextOptions options;
  options.text_column = "text";
  for (const char* name : {"p/1.tsv", "p/2.tsv"}) write(name, "text\tlabel\none\tx\ntwo\ty\n\n");
  options.train = folder / "p/*.tsv";
  const auto sets = read_labelled_texts(options);
  EXPECT_EQ(sets.labels, (std::vector<std::string>{"x", "y"}));
  ASSERT_EQ(sets.train.size(), 4U) << "nor is an empty line a text";
  EXPECT_EQ(sets.train[2].where(), folder / "p/2.tsv:2");
  write("p/2.tsv", "label\ttext\nx\tone\n");
  test::expect_error<base::InputError>([&] { read_labelled_texts(options); },
                                       {"p/2.tsv:1:1: expected the names of columns of the first file, \"text"});
}

TEST_F(LabelledTextFiles, QuotesInsideAFieldAndBlanksAroundALabelAreNoMarks) {
  LabelledTextOptions options;
  options.text_column = "text";
  options.train = write("q.csv", "text,label\na 5\" pipe,x\nb, x\nc,y \na 6\" pipe,y\n");
  const auto sets = read_labelled_texts(options);
  EXPECT_EQ(sets.labels, (std::vector<std::string>{"x", "y"}));
  ASSERT_EQ(sets.train.size(), 4U);
  EXPECT_EQ(sets.train[0].first, "a 5\" pipe");
  write("q.csv", "text,label\na,\n");
  test::expect_error<base::InputError>([&] { read_labelled_texts(options); },
                                       {"q.csv:2: expected a label, found none"});
}

TEST_F(LabelledTextFiles, FoldersAreLabels) {
  write("imdb/pos/0_9.txt", "good\n");
  write("imdb/pos/1_8.txt", "fine\n");
  write("imdb/neg/0_2.txt", "bad\n");
  write("imdb/unsup/0_0.txt", "?\n");
  LabelledTextOptions options;
  options.train = folder / "imdb";
  EXPECT_EQ(read_labelled_texts(options).labels.size(), 3U);
  options.labels = {"neg", "pos"};
  const auto sets = read_labelled_texts(options);
  ASSERT_EQ(sets.train.size(), 3U);
  EXPECT_EQ(sets.train[2].first, "fine\n");
  const auto fails = [&](const std::string& text, std::initializer_list<std::string> parts) {
    write("imdb/pos/2_7.txt", text);
    test::expect_error<base::InputError>([&] { tokenizer_of(options, read_labelled_texts(options)); }, parts);
  };
  fails("one\n\nno " + std::string(70'000, 'x'), {"pos/2_7.txt:3:4: expected words of at most 65536 bytes"});
  fails("one\ntwo \xFF\n",
        {"pos/2_7.txt:2: invalid UTF-8 at byte 8: found 0xFF; convert it to UTF-8, or use unit = \"bytes\""});
  bert();
  options.tokenizer = folder / "bert";
  fails("one\ntwo \xFF\n",
        {"pos/2_7.txt:2: invalid UTF-8 at byte 8: found 0xFF; convert it to UTF-8, for example with iconv"});
  options.labels = {"neg", "neutral"};
  test::expect_error<base::InputError>([&] { read_labelled_texts(options); }, {"found none for \"neutral\""});
}

// Options without effect are refused, not ignored.
TEST_F(LabelledTextFiles, KeysThatDoNotBelongToTheDataAreRefused) {
  test::expect_error<base::InputError>(
      [] {
        base::read_options<LabelledTextOptions>(
            base::parse_toml("train = \"t.tsv\"\ntokenizer = \"bert\"\nunit = \"characters\"", "recipe"));
      },
      {"'tokenizer': 'bert' has a vocabulary of its own; remove unit"});
  write("imdb/pos/a.txt", "good\n");
  write("imdb/neg/b.txt", "bad\n");
  LabelledTextOptions options;
  options.text_column = "body";
  for (const auto& [train, kind] : {std::pair(folder / "imdb", "a folder"),
                                    std::pair(write("articles-x.xml", "<articles/>"), "a file of articles")}) {
    options.train = train;
    test::expect_error<base::InputError>([&] { read_labelled_texts(options); },
                                         {"data.text_column: applies to tables only", train, kind, "remove it"});
  }
  options.train = folder / "imdb";
  options.text_column.clear();
  options.label_column = "kind";
  test::expect_error<base::InputError>([&] { read_labelled_texts(options); },
                                       {"data.label_column: applies to tables only"});
  // A table beside the folder has columns.
  options.text_column = "body";
  options.valid = write("valid.tsv", "kind\tbody\npos\tfine\n");
  EXPECT_EQ(read_labelled_texts(options).valid.at(0).first, "fine");
}

TEST_F(LabelledTextFiles, FractionsAreDrawnOnceAndKeepTheOrder) {
  std::string table = "sentence\tlabel\n";
  for (int i = 0; i < 100; ++i) table += "text " + std::to_string(1000 + i) + "\t" + std::to_string(i % 2) + "\n";
  LabelledTextOptions options;
  options.train = write("t.tsv", table);
  options.valid_fraction = 0.2;
  options.test_fraction = 0.1;
  const auto sets = read_labelled_texts(options), again = read_labelled_texts(options);
  EXPECT_EQ(sets.train.size(), 70U);
  EXPECT_EQ(sets.valid.size(), 20U);
  EXPECT_EQ(sets.test.size(), 10U);
  std::set<std::string> all;
  for (const auto* part : {&sets.train, &sets.valid, &sets.test}) {
    for (size_t i = 0; i < part->size(); ++i) {
      all.insert((*part)[i].first);
      EXPECT_TRUE(i == 0 || (*part)[i - 1].first < (*part)[i].first);
    }
  }
  EXPECT_EQ(all.size(), 100U);
  EXPECT_EQ(sets.valid[3].first, again.valid[3].first);
  options.seed = 1;
  EXPECT_NE(read_labelled_texts(options).valid[0].where() + read_labelled_texts(options).valid[1].where(),
            sets.valid[0].where() + sets.valid[1].where());
}

TEST_F(LabelledTextFiles, ArticlesHaveTheirLabelsBesideThem) {
  const std::string articles = write(
      "articles-x.xml",
      "<?xml version=\"1.0\"?>\n<articles>\n<article id=\"1\" title=\"t\">\n One &amp; <a href=\"h\">two</a>.<p>Three\n"
      "four</p><p>five &#8482;</p></article>\n<article id=\"2\"><p>six</p></article>\n</articles>\n");
  const std::string labels = write(
      "ground-truth-x.xml",
      "<articles><article hyperpartisan=\"false\" id=\"2\"/><article hyperpartisan=\"true\" id=\"1\"/></articles>");
  const LabelledTexts read = read_hyperpartisan(articles);
  ASSERT_EQ(read.texts.size(), 2U);
  EXPECT_EQ(read.texts[0].first, "One & two. Three four five \xE2\x84\xA2");
  EXPECT_EQ(read.texts[0].label, "true");
  EXPECT_EQ(read.texts[1].first, "six");
  EXPECT_EQ(read.texts[1].label, "false");

  const auto fails = [&](const std::string& content, std::initializer_list<std::string> parts) {
    write("articles-x.xml", content);
    test::expect_error<base::InputError>([&] { read_hyperpartisan(articles); }, parts);
  };
  fails("<articles>\n<article id=\"1\"><p>one</article>\n</articles>",
        {"articles-x.xml:2:", "broken XML: mismatched tag"});
  fails("<articles>\n<article id=\"1\">one", {"articles-x.xml:2:", "broken XML"});
  fails("<articles>\n\n<article id=\"3\">one</article></articles>",
        {"articles-x.xml:3: expected a label of article \"3\""});
  fails("<articles><article title=\"t\">one</article></articles>", {"expected an article with the attribute 'id'"});
  fails("<!DOCTYPE a [<!ENTITY b \"b\">]>\n<articles/>", {"without a document type"});
  fails("<articles><article id=\"1\">" + std::string(70'000, 'x') + "</article></articles>",
        {"articles-x.xml:1: expected words of at most 65536"});
  const auto nested = [](int elements) {
    std::string content = "<articles>\n<article id=\"1\">\n";
    for (int i = 2; i < elements; ++i) content += "<a>";
    content += "one";
    for (int i = 2; i < elements; ++i) content += "</a>";
    return content + "</article></articles>";
  };
  fails(nested(257), {"articles-x.xml:3: expected elements at most 256 deep"});
  write("articles-x.xml", nested(256));
  EXPECT_EQ(read_hyperpartisan(articles).texts.size(), 1U);
  write("articles-x.xml", "<articles><article id=\"1\">one</article></articles>");
  const auto mislabelled = [&](const std::string& content, std::initializer_list<std::string> parts) {
    write("ground-truth-x.xml", "<articles>\n<article hyperpartisan=\"true\" id=\"1\"/>\n" + content + "</articles>");
    test::expect_error<base::InputError>([&] { read_hyperpartisan(articles); }, parts);
  };
  mislabelled("<article hyperpartisan=\"maybe\" id=\"2\"/>",
              {"ground-truth-x.xml:3: expected a label of false, true, found \"maybe\""});
  mislabelled("<article hyperpartisan=\"false\" id=\"1\"/>",
              {"ground-truth-x.xml:3: expected one label for each article", "\"false\" for article \"1\"",
               "\"true\" in line 2"});
  write("ground-truth-x.xml",
        "<articles><article hyperpartisan=\"true\" id=\"1\"/>\n"
        "<article hyperpartisan=\"true\" id=\"1\"/></articles>");
  EXPECT_EQ(read_hyperpartisan(articles).texts.size(), 1U);
}

/// Tables of short lines take little more than their texts' objects, packed or not.
TEST_F(LabelledTextFiles, ALineTakesAFewHundredBytes) {
  constexpr int64_t kLines = 300'000;
  std::string table = "t\tlabel\n";
  for (int64_t i = 0; i < kLines; ++i) table += i % 2 == 0 ? "a\t0\n" : "b\t1\n";
  LabelledTextOptions options;
  options.train = write("short.tsv", table);
  options.text_column = "t";
  const int64_t before = base::resident_memory();
  const LabelledTextSets sets = read_labelled_texts(options);
  EXPECT_EQ(std::ssize(sets.train) + std::ssize(sets.valid), kLines);
  EXPECT_LT((base::resident_memory() - before) / kLines, 250);
  EXPECT_EQ(sets.train.front().where(), options.train + ":2");
}

TEST_F(LabelledTextFiles, TextsGetTheSpecialTokensOfTheirModel) {
  const auto tokenizer = bert();
  const auto file = std::make_shared<const std::string>("f");
  LabelledTextSets sets{.train = {{file, 1, "a b", "c d e", "1"}, {file, 2, "f", "a", "0"}},
                        .valid = {},
                        .test = {},
                        .labels = {"0", "1"}};
  const auto pairs = encode_labelled_texts(sets, *tokenizer, {.token_types = true, .max_length = 20}).train;
  EXPECT_EQ(tokens_of(*pairs, 0), (std::vector<int64_t>{2, 5, 6, 3, 7, 8, 9, 3}));
  std::vector<int64_t> types(8);
  pairs->read_types(0, types);
  EXPECT_EQ(types, (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(pairs->label(0), 1);
  // The longer text is cut first.
  const auto cut = encode_labelled_texts(sets, *tokenizer, {.max_length = 7}).train;
  EXPECT_EQ(tokens_of(*cut, 0), (std::vector<int64_t>{2, 5, 6, 3, 7, 8, 3}));
  EXPECT_FALSE(cut->has_types());
  EXPECT_EQ(cut->num_cut(), 1);
  EXPECT_EQ(pairs->num_cut(), 0);
  // A memory puts [CLS] and [SEP] around the block.
  const auto bare = encode_labelled_texts(sets, *tokenizer, {.special_tokens = false, .max_length = 20}).train;
  EXPECT_EQ(tokens_of(*bare, 0), (std::vector<int64_t>{5, 6, 3, 7, 8, 9}));
  test::expect_error<base::InputError>([&] { encode_labelled_texts(sets, *tokenizer, {.max_length = 3}); },
                                       {"data.max_length: expected more than the 3 special tokens"});
  sets.train = {{file, 9, " ", {}, "0"}};
  test::expect_error<base::InputError>(
      [&] { encode_labelled_texts(sets, *tokenizer, {.special_tokens = false, .max_length = 9}); },
      {"f:9: the text is empty"});
}

TEST_F(LabelledTextFiles, PairsNeedATokenizerWithATokenBetweenThem) {
  LabelledTextOptions options;
  options.train = write("rte.tsv", "index\tsentence1\tsentence2\tlabel\n0\tx\ty\tentailment\n");
  test::expect_error<base::InputError>([&] { tokenizer_of(options, read_labelled_texts(options)); },
                                       {"rte.tsv: expected data.tokenizer"});
}

}  // namespace
}  // namespace mnemo::data
