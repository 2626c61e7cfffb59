#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/ignore_target.h"
#include "data/pairs/pair_documents.h"
#include "data/pairs/pair_options.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "text/sentencepiece_tokenizer.h"

namespace mnemo::data {
namespace {

struct Pairs : testing::Test {
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(folder / name, std::ios::binary) << content;
    return folder / name;
  }
  PairOptions options(const std::string& train) const {
    PairOptions options;
    options.train = train;
    options.valid_fraction = options.test_fraction = 0;
    return options;
  }
  test::TemporaryFolder folder;
};

TEST_F(Pairs, ColumnsAndTwoFilesGiveTheSame) {
  PairOptions columns = options(write("a.tsv", "x\tgood day\tguten Tag\r\ny\t \tnichts\nz\tyes\t ja \n"));
  columns.source_column = 2;
  columns.target_column = 3;
  PairOptions files = options(write("a.en", "good day\n\nyes\n"));
  files.train_target = write("a.de", "guten Tag\nnichts\nja");
  for (const PairOptions& which : {columns, files}) {
    const PairSets sets = read_pairs(which);
    ASSERT_EQ(sets.train.pairs.size(), 2u);
    EXPECT_EQ(sets.train.pairs[0].source, "good day");
    EXPECT_EQ(sets.train.pairs[0].target, "guten Tag");
    EXPECT_EQ(sets.train.pairs[1].target, "ja");
    EXPECT_EQ(sets.train.empty.count, 1);
  }
}

TEST_F(Pairs, FilesMayBePacked) {
  const auto pack = [](const std::string& path) {
    EXPECT_EQ(std::system(("gzip '" + path + "'").c_str()), 0);
    return path + ".gz";
  };
  PairOptions columns = options(pack(write("a.tsv", "\xEF\xBB\xBFgood day\tguten Tag\nyes\tja\n")));
  PairOptions files = options(pack(write("a.en", "good day\nyes\n")));
  files.train_target = pack(write("a.de", "guten Tag\nja\n"));
  for (const PairOptions& which : {columns, files}) {
    const PairSets sets = read_pairs(which);
    ASSERT_EQ(sets.train.pairs.size(), 2u);
    EXPECT_EQ(sets.train.pairs[0].source, "good day");
    EXPECT_EQ(sets.train.pairs[1].target, "ja");
  }
  write("bad.tsv", "yes\tja\nno\t\xFF\n");
  test::expect_error<base::InputError>([&] { read_pairs(options(pack(folder / "bad.tsv"))); },
                                       {"bad.tsv.gz:2: invalid UTF-8"});
}

TEST_F(Pairs, JsonLinesGiveTheSameAsColumns) {
  PairOptions named = options(write("a.jsonl",
                                    "\xEF\xBB\xBF{\"en\": \"good day\", \"of\": {\"x\": {\"y\": \"guten\\nTag\"}}}\n\n"
                                    "{\"en\": \" \", \"of\": {\"x\": {\"y\": \"nichts\"}}}\n"
                                    "{\"en\": \"yes\", \"of\": {\"x\": {\"y\": \" ja \"}}, \"no\": 1}\n"));
  named.source_key = "en";
  named.target_key = "of.x.y";
  const PairOptions known = options(write("b.jsonl",
                                          "{\"translation\": {\"en\": \"good day\", \"de\": \"guten Tag\"}}\n"
                                          "{\"translation\": {\"en\": \"\", \"de\": \"nichts\"}}\n"
                                          "{\"translation\": {\"en\": \"yes\", \"de\": \"ja\"}}\n"));
  for (const PairOptions& which : {named, known}) {
    const PairSets sets = read_pairs(which);
    ASSERT_EQ(sets.train.pairs.size(), 2u) << which.train;
    EXPECT_EQ(sets.train.pairs[0].source, "good day");
    EXPECT_EQ(sets.train.pairs[0].target, "guten Tag");
    EXPECT_EQ(sets.train.pairs[1].target, "ja");
    EXPECT_EQ(sets.train.empty.count, 1);
  }
  EXPECT_EQ(read_pairs(named).train.pairs[1].place(), named.train + ":4");
  const auto refused = [&](const std::string& text, std::initializer_list<std::string> parts) {
    test::expect_error<base::InputError>([&] { read_pairs(options(write("c.jsonl", text))); }, parts);
  };
  refused("{\"a\": \"x\", \"b\": \"y\"}\n", {"c.jsonl:1", "(a, b)", "data.source_key=KEY", "data.target_key=KEY"});
  refused("{\"src\": \"x\", \"tgt\": \"y\"}\n{\"src\": \"x\", \"tgt\": 3}\n",
          {"c.jsonl:2", "'tgt': expected a text, found integer 3"});
  refused("{\"src\": \"x\", \"tgt\": \"y\"}\n{\"src\": \"x\"}\n", {"c.jsonl:2", "'tgt'", "no such key"});
  refused("[1]\n", {"c.jsonl:1"});
  PairOptions documents = known;
  documents.document_column = 1;
  test::expect_error<base::InputError>([&] { read_pairs(documents); }, {"b.jsonl", "data.document_column", "a folder"});
  PairOptions half = known;
  half.source_key = "en";
  test::expect_error<base::InputError>([&] { base::check_options(half); }, {"target_key", "both sides"});
}

TEST_F(Pairs, ColumnsOfCsv) {
  PairOptions quoted = options(
      write("a.csv", "id,en,de\n1,\"one, two\",\"eins,\nzwei\"\n\n2,\"say \"\"yes\"\"\",ja\n3,\" \",nichts\n"));
  quoted.header = true;
  quoted.source_column = 2;
  quoted.target_column = 3;
  const PairSets sets = read_pairs(quoted);
  ASSERT_EQ(sets.train.pairs.size(), 2u);
  EXPECT_EQ(sets.train.pairs[0].source, "one, two");
  EXPECT_EQ(sets.train.pairs[0].target, "eins, zwei");
  EXPECT_EQ(sets.train.pairs[1].source, "say \"yes\"");
  EXPECT_EQ(sets.train.pairs[1].place(), folder / "a.csv:5");
  EXPECT_EQ(sets.train.empty.count, 1);
  EXPECT_EQ(read_pairs(options(write("b.csv", "good day;guten Tag\n"))).train.pairs[0].target, "guten Tag");
  const auto refused = [&](const std::string& path, std::initializer_list<std::string> words) {
    test::expect_error<base::InputError>([&] { read_pairs(options(path)); }, words);
  };
  // A quote inside a field that does not begin with one is a character.
  const PairSets inches = read_pairs(options(write("inch.csv", "a 5\" pipe,Rohr\nb,\"x\"\"y\"\na 6\" pipe,Rohr\n")));
  ASSERT_EQ(inches.train.pairs.size(), 3u);
  EXPECT_EQ(inches.train.pairs[0].source, "a 5\" pipe");
  EXPECT_EQ(inches.train.pairs[1].target, "x\"y");
  EXPECT_EQ(read_pairs(options(write("c.csv", "\"good, day\";guten Tag\n"))).train.pairs[0].target, "guten Tag");
  refused(write("one.csv", "a,b\nc,d,e\n"), {"one.csv:2", "expected 2 columns, as in line 1, found 3"});
  refused(write("open.csv", "a,b\n\"c,d\n"), {"open.csv:2", "a quote is not closed"});
}

TEST_F(Pairs, ErrorsNameFileAndLine) {
  const auto refused = [&](const PairOptions& wrong, std::initializer_list<std::string> words) {
    test::expect_error<base::InputError>([&] { load_pairs(wrong); }, words);
  };
  refused(options(write("one.tsv", "a\tb\nno tab\n")), {"one.tsv:2", "2 tab-separated columns", "found 1"});
  refused(options(write("three.tsv", "a\tb\n\nc\td\te\n")),
          {"three.tsv:3", "expected 2 tab-separated columns, as in line 1, found 3"});
  refused(options(write("bad.tsv", "a\tb\nc\t\xff\n")), {"bad.tsv:2", "UTF-8"});
  refused(options(write("empty.tsv", "")), {"empty.tsv", "at least one pair"});
  refused(options(folder / "none.tsv"), {"none.tsv"});
  PairOptions uneven = options(write("u.en", "a\nb\n"));
  uneven.train_target = write("u.de", "a\n");
  refused(uneven, {"u.de", "expected 2 lines", "u.en", "found 1"});
  PairOptions longer = options(write("long.tsv", "a b c d\te\n"));
  longer.max_length = 3;
  refused(longer, {"long.tsv", "left out: 1 longer than 3 tokens (long.tsv:1)"});
}

// Every file of a folder is a document; two folders have the same files, line by line.
TEST_F(Pairs, FilesOfAFolderAreDocuments) {
  for (const char* name : {"tsv", "en", "de"}) std::filesystem::create_directory(folder / name);
  write("tsv/b.tsv", "c\tz\n");
  write("tsv/a.tsv", "a\tx\nb\ty\n");
  write("tsv/.hidden", "no pair\n");
  write("en/a", "a\nb\n");
  write("de/a", "x\ny\n");
  write("en/b", "c\n");
  write("de/b", "z\n");
  PairOptions columns = options(folder / "tsv"), files = options(folder / "en");
  files.train_target = folder / "de";
  for (PairOptions which : {columns, files}) {
    const std::vector<TextPair> pairs = read_pairs(which).train.pairs;
    ASSERT_EQ(pairs.size(), 3u);
    EXPECT_EQ(pairs[0].source + pairs[1].source + pairs[2].source, "abc");
    EXPECT_EQ(pairs[0].target + pairs[1].target + pairs[2].target, "xyz");
    EXPECT_EQ(pairs[0].document, pairs[1].document);
    EXPECT_NE(pairs[0].document, pairs[2].document);
    EXPECT_GE(pairs[0].document, 0);
    which.window = 2;
    const PairCorpus windows = load_pairs(which);
    ASSERT_EQ(windows.train.texts.size(), 2u);
    EXPECT_EQ(windows.train.texts[0].target, "x y");
    which.window = 1;
    which.reset = PairOptions::Reset::documents;
    EXPECT_EQ(documents_of(load_pairs(which).train).size(), 2u);
  }
  const auto refused = [&](std::initializer_list<std::string> words) {
    test::expect_error<base::InputError>([&] { read_pairs(files); }, words);
  };
  write("de/b", "z\nz\n");
  refused({"de/b", "expected 1 lines", "en/b", "found 2"});
  write("de/c", "");
  refused({"de/c", "expected a file of the same name", "en"});
  files.train_target = write("one", "x\n");
  refused({"one", "expected a folder"});
  files.train_target = folder / "none";
  refused({"none", "no such folder"});
  PairOptions undivided = options(folder / "tsv/a.tsv");
  undivided.reset = PairOptions::Reset::documents;
  test::expect_error<base::InputError>([&] { load_pairs(undivided); }, {"requires document_column or a folder"});
}

// Pairs that are left out are named by file and line; no others are left out.
TEST_F(Pairs, LeftOutPairsAreNamed) {
  PairOptions sorted = options(write("l.tsv", "a\tx\n\ty\na b c d e f\tx\na b c\tx\nb\t\na b\tx\n"));
  sorted.max_length = 6;
  sorted.max_ratio = 2;
  const PairCorpus corpus = load_pairs(sorted);
  EXPECT_EQ(corpus.train.samples.size(), 2u);
  EXPECT_EQ(corpus.train.left_out(), 4);
  EXPECT_EQ(corpus.train.why_left_out(sorted),
            "2 with an empty side (l.tsv:2, l.tsv:5), 1 longer than 6 tokens (l.tsv:3), 1 with one side over 2 times "
            "the other (l.tsv:4)");
  std::string many;
  for (int i = 0; i < 9; ++i) many += "a\t\n";
  const PairCorpus few = load_pairs(options(write("m.tsv", "a\tb\n" + many)));
  EXPECT_EQ(few.train.why_left_out(sorted), "9 with an empty side (m.tsv:2, m.tsv:3, m.tsv:4, ...)");
}

// Blanks of any script are no words: U+3000, U+00A0.
TEST_F(Pairs, ASideOfOtherBlanksIsEmpty) {
  PairOptions pieces = options(
      write("b.tsv", "the cat\tdie Katze\n\u3000\tder Hund\nthe dog\tder Hund\nthe dog\t\u00A0\n"));
  PairCorpus corpus;
  for (const auto& [unit, words] :
       {std::pair(PairOptions::Unit::words, 0), {PairOptions::Unit::characters, 0}, {PairOptions::Unit::bpe, 26}}) {
    pieces.unit = unit;
    pieces.max_vocabulary = words;
    corpus = load_pairs(pieces);
    EXPECT_EQ(corpus.train.samples.size(), 2u);
    EXPECT_EQ(corpus.train.why_left_out(pieces), "2 with an empty side (b.tsv:2, b.tsv:4)");
  }
  const std::string alone = write("alone.tsv", "\u3000\t\u00A0\n");
  test::expect_error<base::InputError>(
      [&] { read_pair_set(pieces, alone, corpus); },
      {"alone.tsv: expected at least one pair, found none; left out: 1 with an empty side"});
}

// A line is read alike wherever it stands.
TEST_F(Pairs, BlanksAroundALineAreNoPartOfIt) {
  PairOptions characters = options(write("c.tsv", "a b\tc\n"));
  characters.unit = PairOptions::Unit::characters;
  const PairCorpus corpus = load_pairs(characters);
  const std::vector<int64_t> plain = corpus.source->encode("a b", "line");
  EXPECT_EQ(plain.size(), 4u);
  EXPECT_EQ(corpus.source->encode(" \t a b  ", "line"), plain);
  for (const char* blanks : {"", "   ", "\t", "\u00A0", " \u3000 \u00A0"})
    EXPECT_EQ(corpus.source->encode(blanks, "line"), std::vector<int64_t>{corpus.source->eos()}) << blanks;
}

TEST_F(Pairs, KeysWithoutWhatTheyBelongToAreRefused) {
  const auto refused = [](const std::string& keys, std::initializer_list<std::string> parts) {
    const base::Node table = base::parse_toml("train = \"a.tsv\"\n" + keys, "recipe");
    test::expect_error<base::InputError>([&] { base::read_options<PairOptions>(table); }, parts);
  };
  refused("valid_target = \"b\"", {"valid_target", "`valid`"});
  refused("test_target = \"b\"", {"test_target", "`test`"});
  refused("train_target = \"b\"\nsource_column = 2", {"'source_column': requires columns"});
  refused("train_target = \"b\"\nvalid = \"c\"\nvalid_target = \"d\"\ntarget_column = 1",
          {"'target_column': requires columns"});
  EXPECT_NO_THROW(base::read_options<PairOptions>(
      base::parse_toml("train = \"a\"\ntrain_target = \"b\"\nvalid = \"columns.tsv\"\nsource_column = 3", "recipe")));
  refused("stride = 2", {"stride", "expected 1, found 2"});
  refused("window = 2\nstride = 3", {"stride", "expected at most window = 2, found 3"});
  PairOptions windows = options(write("w.tsv", "d\ta\tx\nd\tb\ty\n"));
  windows.document_column = 1, windows.source_column = 2, windows.target_column = 3;
  windows.window = 2;
  windows.separator = "|";
  const PairCorpus corpus = load_pairs(windows);
  const std::string other = write("o.tsv", "d\ta\tx | z\n");
  test::expect_error<base::InputError>([&] { read_pair_set(windows, other, corpus); },
                                       {"data.separator", "found '|' in 'x | z'"});
}

TEST_F(Pairs, AMarkAndAHeaderAreNoPairs) {
  const std::string path = write("h.tsv",
                                 "\xEF\xBB\xBF"
                                 "en\tde\na\tx\n");
  PairOptions marked = options(path);
  EXPECT_EQ(read_pairs(marked).train.pairs[0].source, "en");
  marked.header = true;
  const std::vector<TextPair> pairs = read_pairs(marked).train.pairs;
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].source, "a");
  EXPECT_EQ(pairs[0].place(), path + ":2");
  PairOptions two = options(write("h.en",
                                  "\xEF\xBB\xBF"
                                  "en\na\n"));
  two.train_target = write("h.de", "de\nx\n");
  two.header = true;
  EXPECT_EQ(read_pairs(two).train.pairs[0].target, "x");
  EXPECT_EQ(read_pairs(two).train.pairs[0].line, 2);
  for (const char* name : {"1.csv", "2.csv"}) write(std::string("part") + name, "en,de\na,x\nb,y\n");
  PairOptions parts = options(folder / "part?.csv");
  parts.header = true;
  parts.valid_fraction = parts.test_fraction = 0;
  ASSERT_EQ(read_pairs(parts).train.pairs.size(), 4u) << "every file has a header";
  EXPECT_EQ(read_pairs(parts).train.pairs[2].place(), folder / "part2.csv:2");
  write("part1.csv", "en,de\na,\"x\n");
  test::expect_error<base::InputError>([&] { read_pairs(parts); }, {"part1.csv:2:1: a quote is not closed"});
}

TEST_F(Pairs, AWordThatIsNoWordIsNamedByItsLine) {
  const std::string path = write("w.tsv", "a\tx\nb\ty " + std::string(70'000, 'z') + "\n");
  test::expect_error<base::InputError>([&] { load_pairs(options(path)); }, {"w.tsv:2 (target): a word", "at byte 2"});
}

// A tokenizer for each side: ids begin behind the model's own special tokens, and both come back from their files.
TEST_F(Pairs, EachSideMayHaveATokenizerOfItsOwn) {
  const std::string path = write("t.tsv", "the cat\tdie Katze\nthe dog\tder Hund\n");
  PairOptions apart = options(path);
  for (const auto& [name, text] : {std::pair("en", "the cat\nthe dog\n"), std::pair("de", "die Katze\nder Hund\n")}) {
    std::filesystem::create_directory(folder / name);
    for (const auto& [file, content] :
         text::train_sentencepiece("bpe", {text::TextSource::in_memory(name, text)}, 20)->save())
      write(std::string(name) + "/" + file, content);
  }
  apart.tokenizer = folder / "en";
  apart.target_tokenizer = folder / "de";
  const PairCorpus corpus = load_pairs(apart);
  EXPECT_FALSE(apart.one_vocabulary());
  EXPECT_FALSE(corpus.source->is_published());
  EXPECT_EQ(corpus.source->size(), 24);
  const PairVocabularies back = read_vocabularies(vocabulary_files(corpus, false), "model");
  EXPECT_EQ(back.source->encode("the dog", "line"), corpus.source->encode("the dog", "line"));
  EXPECT_EQ(back.target->decode(corpus.target->encode("der Hund", "line")), "der Hund");
  EXPECT_NE(corpus.source->encode("the dog", "line"), corpus.target->encode("the dog", "line"));
}

// Pairs with the same source, and all of a document, are in one part; the parts are those of the fractions, roughly.
TEST_F(Pairs, PartsDoNotShareSourcesOrDocuments) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += fmt::format("doc{}\tsource {}\ttarget {}\n", i / 10, i / 2, i);
  PairOptions sentences = options(write("p.tsv", text));
  sentences.source_column = 2;
  sentences.target_column = 3;
  sentences.valid_fraction = sentences.test_fraction = 0.2;
  PairOptions documents = sentences;
  documents.document_column = 1;
  for (const PairOptions& which : {sentences, documents}) {
    const PairSets sets = read_pairs(which);
    std::set<std::string> seen;
    for (const TextPairs* part : {&sets.train, &sets.valid, &sets.test}) {
      std::set<std::string> own;
      for (const TextPair& pair : part->pairs)
        own.insert(which.document_column > 0 ? std::to_string(pair.document) : pair.source);
      for (const std::string& key : own) EXPECT_TRUE(seen.insert(key).second) << key;
      EXPECT_GT(part->pairs.size(), 200u);
    }
    EXPECT_EQ(sets.train.pairs.size() + sets.valid.pairs.size() + sets.test.pairs.size(), 2000u);
  }
}

TEST_F(Pairs, WindowsStayInTheirDocument) {
  PairOptions windows = options(write("d.tsv", "A\ta\t1\nA\tb\t2\nA\tc\t3\nB\td\t4\n"));
  windows.document_column = 1;
  windows.source_column = 2;
  windows.target_column = 3;
  windows.window = 2;
  const PairCorpus corpus = load_pairs(windows);
  std::vector<std::string> sources, targets;
  for (const TextPair& pair : corpus.train.texts) {
    sources.push_back(pair.source);
    targets.push_back(pair.target);
  }
  EXPECT_EQ(sources, (std::vector<std::string>{"a b", "b c", "d"}));
  EXPECT_EQ(targets, (std::vector<std::string>{"1 2", "2 3", "4"}));

  windows.stride = 2;
  EXPECT_EQ(load_pairs(windows).train.texts.size(), 3u);
  windows.stride = 1;

  windows.separator = "|";
  const PairCorpus apart = load_pairs(windows);
  EXPECT_EQ(apart.train.texts.front().source, "a | b");
  const std::vector<int64_t>& tokens = apart.train.samples.front().source;
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), PairVocabulary::kUnknown), 0) << "the separator is known";
  windows.separator = "3";
  test::expect_error<base::InputError>([&] { load_pairs(windows); }, {"data.separator", "found '3' in '3'"});
}

TEST_F(Pairs, VocabulariesAreOfTheTrainingPartAndComeBackFromTheirFiles) {
  PairOptions apart = options(write("v.tsv", "the cat\tdie Katze\nthe dog\tder Hund\n"));
  apart.joint = false;
  const PairCorpus corpus = load_pairs(apart);
  const auto back = read_vocabularies(vocabulary_files(corpus, false), "model");
  for (const auto* side : {&back.source, &back.target}) ASSERT_NE(*side, nullptr);
  EXPECT_NE(back.source, back.target);
  const std::vector<int64_t> ids = back.target->encode("die Maus", "line");
  EXPECT_EQ(ids, corpus.target->encode("die Maus", "line"));
  EXPECT_EQ(ids.back(), PairVocabulary::kEos);
  EXPECT_EQ(ids[1], PairVocabulary::kUnknown);
  EXPECT_EQ(back.target->decode(corpus.target->encode("die Katze", "line")), "die Katze");
  test::expect_error<base::InputError>([&] { back.target->decode(std::vector<int64_t>{999}); }, {"999"});
  PairOptions joint = apart;
  joint.joint = true;
  const auto one = read_vocabularies(vocabulary_files(load_pairs(joint), true), "model");
  EXPECT_EQ(one.source, one.target);
  EXPECT_EQ(vocabulary_files(load_pairs(joint), false).size(), 2u) << "a model with two tables has files of both sides";
  text::Files broken = vocabulary_files(corpus, false);
  broken.at("target.vocabulary.json") += "}";
  test::expect_error<base::InputError>([&] { read_vocabularies(broken, "model"); }, {"model/target.vocabulary.json: "});
  test::expect_error<base::InputError>([&] { read_vocabularies({}, "model"); }, {"model", "vocabulary"});
}

// One blank to each side of what an unknown token stands for, none where it stands for nothing.
TEST_F(Pairs, UnknownTokensStandBetweenBlanks) {
  const PairVocabulary words(text::make_word_tokenizer(text::TextSource::in_memory("text", "a b")));
  const std::vector<int64_t> ids = words.encode("a x b", "line");
  EXPECT_EQ(words.decode(ids), "a <unk> b");
  EXPECT_EQ(words.decode(ids, ""), "a b");
  const PairVocabulary pieces(
      text::train_sentencepiece("bpe", {text::TextSource::in_memory("text", "the cat\nthe dog\n")}, 20));
  EXPECT_EQ(pieces.decode(pieces.encode("the \u2603 cat", "line"), "\u2603"), "the \u2603 cat");
}

std::shared_ptr<const std::vector<PairSample>> samples_of(int64_t count) {
  auto samples = std::make_shared<std::vector<PairSample>>();
  for (int64_t i = 0; i < count; ++i) {
    samples->push_back({std::vector<int64_t>(static_cast<size_t>(1 + i * 7 % 13), 4 + i),
                        std::vector<int64_t>(static_cast<size_t>(1 + i * 5 % 11), 4 + i)});
  }
  return samples;
}

// Every epoch has each pair once, in batches within their budget; resuming anywhere goes on with the same batches.
TEST_F(Pairs, BatchesCoverAnEpochAndResume) {
  const auto samples = samples_of(100);
  PairBatches batches(samples, 40, 6, true, 3);
  std::vector<at::Tensor> sources;
  std::vector<std::pair<int64_t, int64_t>> places;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::multiset<int64_t> seen;
    while (true) {
      places.emplace_back(batches.epoch(), batches.batch());
      const Batch batch = batches.next();
      sources.push_back(batch.input.source);
      const int64_t rows = batch.input.source.size(0),
                    longest = std::max(batch.input.source.size(1), token_targets(batch).size(1));
      EXPECT_TRUE(rows == 1 || rows * longest <= 40) << rows << " x " << longest;
      EXPECT_LE(rows, 6);
      for (int64_t row = 0; row < rows; ++row) seen.insert(batch.input.source[row][0].item<int64_t>());
      if (batches.batch() == batches.batches_of_epoch()) break;
    }
    EXPECT_EQ(seen.size(), 100u);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 100u);
  }
  PairBatches again(samples, 40, 6, true, 3);
  for (const size_t i : {size_t{0}, size_t{5}, sources.size() - 3}) {
    again.seek(places[i].first, places[i].second);
    for (size_t j = i; j < i + 3; ++j) EXPECT_TRUE(at::equal(again.next().input.source, sources[j])) << i;
  }
  test::expect_error<base::InputError>([&] { again.seek(0, 100000); }, {"100000"});
}

TEST_F(Pairs, ABatchIsPaddedOnTheRight) {
  const std::vector<PairSample> samples = {{{7, 8, 2}, {9, 2}}, {{5, 2}, {6, 7, 2}}};
  const Batch batch = make_pair_batch(samples, {0, 1});
  const auto rows = [](std::initializer_list<int64_t> values) {
    return at::tensor(std::vector<int64_t>(values)).view({2, 3});
  };
  constexpr int64_t kNone = base::kIgnoreTarget;
  EXPECT_TRUE(at::equal(batch.input.source, rows({7, 8, 2, 5, 2, 1})));
  EXPECT_TRUE(at::equal(batch.input.tokens, rows({2, 9, 1, 2, 6, 7})));
  EXPECT_TRUE(at::equal(token_targets(batch), rows({9, 2, kNone, 6, 7, 2})));
  EXPECT_TRUE(at::equal(batch.input.valid.to(at::kLong), rows({1, 1, 0, 1, 1, 1})));
  EXPECT_EQ(batch.num_targets, 5);
}

TEST_F(Pairs, OrOnTheLeft) {
  const std::vector<PairSample> samples = {{{7, 8, 2}, {9, 2}}, {{5, 2}, {6, 7, 2}}};
  const Batch batch = make_pair_batch(samples, {0, 1}, {.padding = PairLayout::Padding::left});
  const auto rows = [](std::initializer_list<int64_t> values) {
    return at::tensor(std::vector<int64_t>(values)).view({2, 3});
  };
  constexpr int64_t kNone = base::kIgnoreTarget;
  EXPECT_TRUE(at::equal(batch.input.source, rows({7, 8, 2, 1, 5, 2})));
  EXPECT_TRUE(at::equal(batch.input.source_valid.to(at::kLong), rows({1, 1, 1, 0, 1, 1})));
  EXPECT_TRUE(at::equal(batch.input.tokens, rows({1, 2, 9, 2, 6, 7})));
  EXPECT_TRUE(at::equal(token_targets(batch), rows({kNone, 9, 2, 6, 7, 2})));
  EXPECT_TRUE(at::equal(batch.input.valid.to(at::kLong), rows({0, 1, 1, 1, 1, 1})));
}

}  // namespace
}  // namespace mnemo::data
