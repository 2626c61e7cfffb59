// How files and folders of a user are recognised.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "data/answers/labelled_find.h"
#include "data/answers/labelled_text.h"
#include "data/pairs/pair_find.h"
#include "data/text/table.h"
#include "data/text/table_head.h"
#include "data/text/text_find.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/data/image_files.h"

namespace mnemo::data {
namespace {

using base::InputError;
using test::expect_error;

struct Find : testing::Test {
  test::TemporaryFolder folder;

  std::string file(const std::string& name, const std::string& text) {
    write_text(folder / name, text);
    return folder / name;
  }
  /// Lines "i<between>...", with `line(i)`.
  template <class Line>
  std::string lines(const std::string& name, int count, Line line, const std::string& header = "") {
    std::string text = header;
    for (int i = 0; i < count; ++i) text += line(i) + "\n";
    return file(name, text);
  }
  std::string columns_of(const std::string& path) {
    const auto found = find_labelled(path);
    return found ? found->text + "|" + found->second + "|" + found->label : "none";
  }
};

TEST_F(Find, AFolderWithOneFileOfArticlesIsLabelled) {
  std::filesystem::create_directory(folder / "news");
  file("news/article.xsd", "");
  const std::string articles = file("news/articles-a.xml", "<articles/>");
  EXPECT_EQ(find_articles(folder / "news"), std::nullopt) << "no labels";
  file("news/ground-truth-a.xml", "<articles/>");
  EXPECT_EQ(find_articles(folder / "news"), articles);
  EXPECT_EQ(columns_of(folder / "news"), "||");
  file("news/articles-b.xml", "<articles/>");
  file("news/ground-truth-b.xml", "<articles/>");
  EXPECT_EQ(find_articles(folder / "news"), std::nullopt) << "several";
}

TEST_F(Find, TablesWithALabelAreLabelledTexts) {
  EXPECT_EQ(columns_of(file("a.csv", "review,sentiment\n\"good, very\",pos\nbad,neg\n")), "review||sentiment");
  EXPECT_EQ(columns_of(file("b.tsv", "id\tText\tLabel\n1\tgood\t1\n2\tbad\t0\n")), "Text||Label");
  EXPECT_EQ(columns_of(file("c.jsonl", "{\"text\": \"good\", \"label\": 1}\n")), "text||label");
  EXPECT_EQ(columns_of(file("d.tsv", "words\tclass\ngood\tp\nbad\tn\n")), "words||class") << "the only other column";
  EXPECT_EQ(columns_of(file("e.tsv", "number\tsentence1\tsentence2\tlabel\n0\tx\ty\tentailment\n")),
            "sentence1|sentence2|label");
  EXPECT_EQ(columns_of(file("f.csv", "text;label\ngood;p\nbad;n\n")), "text||label") << "semicolons";
  EXPECT_EQ(columns_of(file("cola.tsv", "gj04\t1\t\tThey left.\ncj99\t0\t*\tLeft they the.\n")), "||");
  EXPECT_EQ(columns_of(file("qqp.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\twho\twhat\t0\n")),
            "||");
  const std::string mnli =
      "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
      "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n";
  EXPECT_EQ(columns_of(lines(
                "mnli.tsv", 9,
                [](int i) { return fmt::format("{}\t1\t1c\tf\t(a)\t(b)\t(a)\t(b)\ta {}\tb\tn\tn", i, i); }, mnli)),
            "||");
  EXPECT_EQ(columns_of(file("articles-a.xml", "<articles/>")), "||");
  EXPECT_EQ(columns_of(file("g.csv", "date,text\n1,good\n2,bad\n")), "none") << "no label";
  EXPECT_EQ(columns_of(file("h.tsv", "source\ttarget\nhello\thallo\n")), "none") << "a target is no label";
  EXPECT_EQ(columns_of(file("i.txt", "First line.\nSecond line.\n")), "none");
  EXPECT_EQ(columns_of(file("j.tsv", std::string("text\tlabel\n\0\t1\n", 15))), "none") << "binary";
  const auto mood = [](int i) { return fmt::format("film {},{}", i, i % 3 == 0 ? "joy" : "fear"); };
  EXPECT_EQ(columns_of(lines("l.csv", 12, mood, "Text,Emotion\n")), "Text||Emotion") << "few values";
  EXPECT_EQ(columns_of(lines("m.csv", 7, mood, "Text,Emotion\n")), "none") << "too few rows to tell";
  EXPECT_EQ(columns_of(lines(
                "n.csv", 12, [](int i) { return fmt::format("{},film {}", i, i); }, "date,text\n")),
            "none")
      << "many values";
  const std::string unnamed = lines("k.tsv", 12,
                                    [](int i) { return fmt::format("film {}\t{}", i, i % 2 ? "pos" : "neg"); });
  expect_error<InputError>([&] { find_labelled(unnamed); }, {"k.tsv", "does not name the columns", "text<TAB>label"});
}

TEST_F(Find, FoldersOfTextsByLabelAreLabelledTexts) {
  for (const char* label : {"neg", "pos"})
    for (const char* name : {"1.txt", "2.txt"}) file(std::string("reviews/") + label + "/" + name, "words\n");
  EXPECT_EQ(columns_of(folder / "reviews"), "||");
  file("reviews/more.txt", "words\n");
  EXPECT_EQ(columns_of(folder / "reviews"), "none") << "a text beside the labels";
  for (const char* part : {"train", "test"})
    for (const char* name : {"1.txt", "2.txt"}) file(std::string("parts/") + part + "/" + name, "words\n");
  EXPECT_EQ(columns_of(folder / "parts"), "none") << "parts are no labels";
}

TEST_F(Find, TablesOfTwoSentencesArePairs) {
  const auto found = [&](const std::string& path) {
    const auto pairs = find_pairs(path);
    return pairs ? fmt::format("{} {} {}", pairs->source_column, pairs->target_column, pairs->header) : "none";
  };
  EXPECT_EQ(found(MNEMO_SOURCE_DIR "/data/tatoeba_en_de/pairs.tsv"), "1 2 false");
  EXPECT_EQ(found(lines("a.txt", 5, [](int i) { return fmt::format("one {}\teins {}\tCC-BY {}", i, i, i); })),
            "1 2 false");
  EXPECT_EQ(found(lines("b.tsv", 5, [](int i) { return fmt::format("{}\tone {}\t{}\teins {}", i, i, i + 7, i); })),
            "2 4 false")
      << "numbers are no sentences";
  EXPECT_EQ(found(lines(
                "c.tsv", 5, [](int i) { return fmt::format("one {}\teins {}", i, i); }, "en\tde\n")),
            "1 2 true");
  EXPECT_EQ(found(lines("d.tsv", 9, [](int i) { return fmt::format("film {}\t{}", i, i % 2 ? "pos" : "neg"); })),
            "none")
      << "labels";
  EXPECT_EQ(found(file("e.txt", "A line.\nA tab\there.\nAnother.\n")), "none");
  lines("f/2.tsv", 5, [](int i) { return fmt::format("one {}\teins {}", i, i); });
  EXPECT_EQ(found(folder / "f"), "1 2 false") << "a folder of documents";
  const auto csv = [](int i) { return fmt::format("{},\"one, {}\",eins {}", i, i, i); };
  EXPECT_EQ(found(lines("g.csv", 5, csv, "id,English,German\n")), "2 3 true");
  EXPECT_EQ(found(lines("h.csv", 5, csv, "id,name,remark\n")), "none") << "CSV of anything";
  EXPECT_EQ(found(lines("i.csv", 5, [](int i) { return fmt::format("one {},eins {}", i, i); })), "1 2 false");
}

TEST_F(Find, JsonLinesOfTwoSentencesArePairs) {
  const auto found = [&](const std::string& path) {
    const auto pairs = find_pairs(path);
    return pairs ? pairs->source_key + " " + pairs->target_key : "none";
  };
  const auto of = [&](const std::string& name, const std::string& line) {
    return lines(name, 5, [&](int i) { return fmt::format(fmt::runtime(line), i, i); });
  };
  EXPECT_EQ(found(of("a.jsonl", R"({{"target": "eins {}", "id": 3, "source": "one {}"}})")), "source target");
  EXPECT_EQ(found(of("b.jsonl", R"({{"src": "one {}", "tgt": "eins {}"}})")), "src tgt");
  EXPECT_EQ(found(of("c.ndjson", R"({{"translation": {{"en": "one {}", "de": "eins {}"}}}})")),
            "translation.en translation.de");
  EXPECT_EQ(found(of("d.jsonl", R"({{"id": "x", "fr": "un {}", "en": "one {}"}})")), "fr en") << "in their order";
  EXPECT_EQ(found(of("e.jsonl", R"({{"text": "one {}", "label": "{}"}})")), "none");
  EXPECT_EQ(found(lines("f.jsonl", 9,
                        [](int i) {
                          return fmt::format(R"({{"input": "film {}", "output": "{}"}})", i, i % 2 ? "pos" : "neg");
                        })),
            "none")
      << "labels";
  EXPECT_EQ(found(file("g.jsonl", "{\"source\": \"one\", \"target\": \"eins\"}\n{\"source\": \"two\"}\n")), "none");
  of("h/1.jsonl", R"({{"source": "one {}", "target": "eins {}"}})");
  EXPECT_EQ(found(folder / "h"), "source target") << "a folder of documents";
}

TEST_F(Find, EverythingElseIsAText) {
  EXPECT_EQ(find_text(file("a.csv", "date,text\n"))->train, folder / "a.csv");
  EXPECT_EQ(find_text(file("b.jsonl", "{\"id\": \"1\", \"text\": \"good\"}\n"))->json_key, "text");
  EXPECT_EQ(find_text(file("c.jsonl", "{\"id\": 1, \"words\": \"good\"}\n"))->json_key, "words");
  expect_error<InputError>([&] { find_text(file("d.jsonl", "{\"a\": \"x\", \"b\": \"y\"}\n")); },
                           {"d.jsonl", "(a, b)", "data.json_key=KEY"});
  for (int i = 0; i < 64; ++i) {
    if (i == 63) {
      EXPECT_TRUE(find_text(folder / "many")->separator_line.empty());
    }
    file(fmt::format("many/{}.txt", i), "words\n");
  }
  EXPECT_EQ(find_text(folder / "many")->separator_line, "<|document|>");
  for (const char* name : {"train.txt", "valid.txt", "README.md"}) file(std::string("parts/") + name, "words\n");
  EXPECT_EQ(find_text(folder / "parts")->train, folder / "parts/train.txt");
  EXPECT_EQ(find_text(folder / "parts")->valid, folder / "parts/valid.txt");
  file("records/1.jsonl", "{\"text\": \"good\"}\n");
  EXPECT_EQ(find_text(folder / "records")->json_key, "text");
  file("objects/1.json", "{\"text\": \"good\"}\n");
  EXPECT_EQ(find_text(folder / "objects")->json_key, "text");
  const std::string book = "{\"body\": \"" + std::string(90'000, 'a') + "\"}\n";
  EXPECT_EQ(find_text(file("long.jsonl", book + book + book))->json_key, "body");
  make_class_folders(folder / "images", 1);
  EXPECT_FALSE(find_text(folder / "images"));
}

TEST_F(Find, ATableIsNotReadAsProse) {
  const auto row = [](int i) { return fmt::format("{},2020-01-02,a film {}", i, i); };
  const std::string unknown = lines("a.csv", 12, row, "id,when,remark\n");
  for (const std::string& path : {unknown, folder / "*.csv"})
    expect_error<InputError>([&] { require_no_table(path); },
                             {"a table, of which no columns are known", "\"id, when, remark\"",
                              "data.type = \"text_classification\"", "data.type = \"text\""});
  expect_error<InputError>([&] { require_no_table(file("b.tsv", "one\n")); }, {"b.tsv", "\"one\""});
  expect_error<InputError>([&] { require_no_table(file("c.csv", "")); }, {"c.csv", "without fields"});
  require_no_table(file("d.txt", "id,when,remark\n"));
  require_no_table(folder.path());
}

TEST_F(Find, RecordsOfCsvMayHoldQuotesAndLineEnds) {
  LabelledTextOptions options;
  options.train = file("a.csv", "text,label\r\n\"two\nlines, \"\"quoted\"\"\",1\r\n\r\nplain,0\r\n");
  options.text_column = "text";
  const LabelledTextSets sets = read_labelled_texts(options);
  ASSERT_EQ(sets.train.size(), 2U);
  EXPECT_EQ(sets.train[0].first, "two\nlines, \"quoted\"");
  EXPECT_EQ(sets.train[1].where(), options.train + ":5");
  options.train = file("b.csv", "text,label\n\"open,1\nplain,0\n");
  expect_error<InputError>([&] { read_labelled_texts(options); }, {"b.csv:2:1: a quote is not closed"});
  options.train = file("c.csv", "text,label\none,two,1\n");
  expect_error<InputError>([&] { read_labelled_texts(options); },
                           {"c.csv:2:1: expected 2 columns, as in line 1, found 3"});
  std::string long_record = "text,label\n\"";
  for (int i = 0; i <= 1 << 14; ++i) long_record += std::string(1023, 'x') + "\n";
  options.train = file("d.csv", long_record);
  expect_error<InputError>([&] { read_labelled_texts(options); }, {"d.csv:2:1: expected records of at most"});
}

TEST_F(Find, JsonLinesAreLabelledTexts) {
  LabelledTextOptions options;
  options.train = file("a.jsonl", "{\"text\": \"fine\", \"label\": true}\n\n{\"text\": \"bad\", \"label\": false}\n");
  options.text_column = "text";
  EXPECT_EQ(read_labelled_texts(options).labels, (std::vector<std::string>{"false", "true"}));
  options.train = file("b.jsonl", "{\"text\": \"fine\", \"label\": 1}\n{\"text\": \"bad\"}\n");
  expect_error<InputError>([&] { read_labelled_texts(options); },
                           {"b.jsonl:2: 'label': expected a label, found no such key"});
  options.text_column.clear();
  expect_error<InputError>([&] { read_labelled_texts(options); }, {"b.jsonl: expected data.text_column"});
}

}  // namespace
}  // namespace mnemo::data
