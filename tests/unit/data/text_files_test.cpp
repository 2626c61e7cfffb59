#include "data/text/text_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "base/error.h"
#include "base/file_io.h"
#include "base/machine.h"
#include "data/text/corpus.h"
#include "data/unpack.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::data {
namespace {

using base::InputError;
using test::expect_error;

class TextFiles : public testing::Test {
 protected:
  std::string at(const std::string& name) { return folder_ / name; }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
    base::write_file_atomic(at(name), text);
  }
  /// Packs with the program of that name, which makes other files than our libraries would.
  void pack(const std::string& name, const std::string& program) {
    ASSERT_EQ(std::system((program + " -q -f '" + at(name) + "'").c_str()), 0) << program;
  }
  std::string all(const text::TextSource& source) {
    std::string text;
    source.for_each_chunk([&](std::string_view chunk) { return text += chunk, true; });
    return text;
  }
  std::string opened(const std::string& name, const TextFileOptions& options = {}) {
    return all(open_text(at(name), options));
  }
  test::TemporaryFolder folder_;
};

TEST_F(TextFiles, AreUnpackedExactly) {
  std::string text;
  for (int i = 0; i < 60'000; ++i) text += "line " + std::to_string(i * 7919) + "\n";
  text += "no line end";
  ASSERT_GT(text.size(), size_t{700'000});
  write("a.txt", text);
  write("b.txt", text);
  pack("a.txt", "gzip");
  EXPECT_TRUE(opened("a.txt.gz") == text);
  // Several members are one content.
  const std::string packed = base::read_file(at("a.txt.gz"));
  write("two.gz", packed + packed);
  EXPECT_TRUE(opened("two.gz") == text + text);
  write("padded.gz", packed + std::string(1000, '\0'));
  EXPECT_TRUE(opened("padded.gz") == text);
  write("cut.gz", packed.substr(0, packed.size() / 2));
  expect_error<InputError>([&] { opened("cut.gz"); }, {"cut.gz: gzip: the file is truncated"});
  std::string damaged = packed;
  damaged[damaged.size() / 2] ^= 0x55;
  write("damaged.gz", damaged);
  expect_error<InputError>([&] { opened("damaged.gz"); }, {"damaged.gz: gzip: "});
  write("none.gz", "");
  expect_error<InputError>([&] { opened("none.gz"); }, {"truncated"});
  write("plain.zst", text);
  expect_error<InputError>([&] { opened("plain.zst"); }, {"plain.zst: zstd: "});
  if (std::system("zstd --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no program zstd here";
  pack("b.txt", "zstd");
  EXPECT_TRUE(opened("b.txt.zst") == text);
  const std::string frames = base::read_file(at("b.txt.zst"));
  write("two.zst", frames + frames);
  EXPECT_TRUE(opened("two.zst") == text + text);
  write("cut.zst", frames.substr(0, frames.size() / 2));
  expect_error<InputError>([&] { opened("cut.zst"); }, {"cut.zst: zstd: the file is truncated"});
}

/// A text in memory comes in chunks like a file, so that what reads it needs no more memory.
TEST_F(TextFiles, ATextInMemoryComesInChunks) {
  const auto source = text::TextSource::in_memory("name", "abcdefg");
  std::vector<std::string> chunks;
  source.range(1, 7).for_each_chunk([&](std::string_view chunk) { return chunks.emplace_back(chunk), true; }, 4);
  EXPECT_EQ(chunks, (std::vector<std::string>{"bcde", "fg"}));
}

/// And one that is made whenever it is read, whatever pieces it is made of.
TEST_F(TextFiles, ATextThatIsStreamedComesInTheChunksOfOneInMemory) {
  const std::string text = "abcdefghijklmnop";
  const auto held = text::TextSource::in_memory("name", text);
  for (const size_t size : {1, 2, 5, 16}) {
    int passes = 0;
    const auto streamed = text::TextSource::streamed("name", [&](const auto& use) {
      ++passes;
      for (size_t at = 0; at < text.size(); at += size) use(std::string_view(text).substr(at, size));
    });
    EXPECT_EQ(streamed.size(), 16);
    for (const auto& [begin, end] : {std::pair(0, 16), {3, 9}, {15, 16}, {4, 4}}) {
      for (const int64_t chunk : {1, 4, 7, 100}) {
        const auto chunks_of = [&](const text::TextSource& source, size_t most) {
          std::vector<std::string> chunks;
          source.range(begin, end)
              .for_each_chunk([&](std::string_view one) { return chunks.emplace_back(one), chunks.size() < most; },
                              chunk);
          return chunks;
        };
        for (const size_t most : {1, 100}) EXPECT_EQ(chunks_of(streamed, most), chunks_of(held, most)) << size << chunk;
      }
    }
    EXPECT_GT(passes, 8);
  }
  bool changed = false;
  const auto source = text::TextSource::streamed("name", [&](const auto& use) { use(changed ? "abc" : "abcd"); });
  changed = true;
  expect_error<InputError>([&] { source.for_each_chunk([](std::string_view) { return true; }); },
                           {"name: expected 4 bytes of text as before, found 3"});
}

/// Packed, it needs no more memory than as it is.
TEST_F(TextFiles, APackedTextIsNotHeldInMemory) {
  ASSERT_EQ(std::system(("yes | head -c 100000000 | gzip > '" + at("large.gz") + "'").c_str()), 0);
  const int64_t before = base::resident_memory();
  int64_t size = 0, most = 0;
  open_text(at("large.gz")).for_each_chunk([&](std::string_view chunk) {
    most = std::max(most, base::resident_memory() - before);
    return size += static_cast<int64_t>(chunk.size()), true;
  });
  EXPECT_EQ(size, 100'000'000);
  EXPECT_LT(most, 50'000'000);
}

TEST_F(TextFiles, ThatUnpackToHundredsOfTimesTheirSizeAreRefused) {
  ASSERT_EQ(std::system(("head -c 1100000000 /dev/zero | gzip -9 > '" + at("zeros.gz") + "'").c_str()), 0);
  expect_error<InputError>([&] { opened("zeros.gz"); }, {"zeros.gz", "unpack to more than 200 times as many"});
  expect_error<InputError>([&] { unpacked_size(at("zeros.gz"), Packing::gzip); }, {"unpack it yourself"});
}

/// The lines in front of damage come before it is found: nothing waits for the end of the file.
TEST_F(TextFiles, LinesAreMeasuredWhileTheyAreUnpacked) {
  write("long.txt", "first\nsecond" + std::string(2'000'000, 'a') + "\n");
  pack("long.txt", "gzip");
  const std::string packed = base::read_file(at("long.txt.gz"));
  write("cut.gz", packed.substr(0, packed.size() - 9));
  for (const auto& [file, longest, what] :
       {std::tuple("long.txt.gz", 1 << 20, "long.txt.gz:2:1048577: expected lines of at most 1048576 bytes"),
        {"cut.gz", 1 << 24, "cut.gz: gzip: the file is truncated"}}) {
    std::vector<std::string> lines;
    const auto take = [&](const LinePlace&, std::string_view line) { lines.push_back(std::string(line.substr(0, 6))); };
    expect_error<InputError>([&] { for_each_text_line(at(file), longest, take); }, {what});
    ASSERT_FALSE(lines.empty()) << file;
    EXPECT_EQ(lines[0], "first") << file;
  }
}

TEST_F(TextFiles, OfFoldersAndPatternsAreJoinedInOrder) {
  write("t/b.txt", "second\n");
  write("t/a.txt",
        "\xEF\xBB\xBF"
        "first");
  write("t/c/d.txt", "third\n");
  write("t/c/e.md", "no text");
  pack("t/b.txt", "gzip");
  EXPECT_EQ(opened("t"), "first\nsecond\nthird\n");
  EXPECT_EQ(opened("t", {.between = "\n"}), "first\n\nsecond\n\nthird\n");
  EXPECT_EQ(opened("t/?.txt*"), "first\nsecond\n");
  EXPECT_EQ(opened("*/c/*"), "third\nno text");
  EXPECT_EQ(opened("t/*.txt"),
            "\xEF\xBB\xBF"
            "first")
      << "one plain file is opened as it is";
  EXPECT_EQ(opened("t", {.any_bytes = true}).substr(0, 3), "\xEF\xBB\xBF");
  write("t/[x]*.txt", "a file of that name\n");
  EXPECT_EQ(opened("t/[x]*.txt"), "a file of that name\n");
  write("t/z.txt", "four\xC3");
  expect_error<InputError>([&] { opened("t"); }, {"t/z.txt: invalid UTF-8 at byte 4"});
  expect_error<InputError>([&] { opened("t/*.csv"); }, {"t/*.csv: no file matches"});
  std::filesystem::create_directory(at("empty"));
  expect_error<InputError>([&] { opened("empty"); }, {"empty: expected files .txt", ".gz"});
  expect_error<InputError>([&] { opened("missing.txt"); }, {"missing.txt"});
}

TEST_F(TextFiles, LinksThatLeadNowhereAreLeftOut) {
  namespace fs = std::filesystem;
  write("t/a.txt", "first\n");
  write("elsewhere/b", "second\n");
  fs::create_symlink("loop.txt", at("t/loop.txt"));
  fs::create_symlink("gone", at("t/gone.txt"));
  fs::create_symlink("../elsewhere/b", at("t/b.txt"));
  fs::create_directory_symlink("..", at("t/up"));
  EXPECT_EQ(opened("t"), "first\nsecond\n");
  EXPECT_TRUE(is_folder_of_texts(at("t")));
  write("t/picture.png", "x");
  EXPECT_FALSE(is_folder_of_texts(at("t")));
}

TEST_F(TextFiles, AFolderThatCannotBeReadIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  namespace fs = std::filesystem;
  write("t/closed/a.txt", "first\n");
  fs::permissions(at("t/closed"), fs::perms::none);
  expect_error<InputError>([&] { opened("t"); }, {"t/closed: Permission denied"});
  expect_error<InputError>([&] { is_folder_of_texts(at("t")); }, {"t/closed: Permission denied"});
  fs::permissions(at("t/closed"), fs::perms::owner_all);
}

TEST_F(TextFiles, HiddenOnesAreLeftOut) {
  for (const char* name : {"t/a.txt", "t/.b.txt", "t/.c/d.txt", "t/e/f.txt"}) write(name, "x");
  int files = 0;
  for_each_file(at("t"), [&](const std::string&) { return ++files > 0; });
  EXPECT_EQ(files, 2);
  EXPECT_EQ(text_files(at("t")), (std::vector{at("t/a.txt"), at("t/e/f.txt")}));
}

TEST_F(TextFiles, OfJsonLinesGiveTheTextsOfAKey) {
  write("a.jsonl", "{\"text\": \"one\\nline\", \"id\": 1}\r\n\n{\"id\": 2, \"text\": \"two\\n\"}");
  EXPECT_EQ(opened("a.jsonl", {.json_key = "text"}), "one\nline\ntwo\n");
  EXPECT_EQ(opened("a.jsonl", {.json_key = "text", .between = "\n"}), "one\nline\n\ntwo\n");
  pack("a.jsonl", "gzip");
  write("b.jsonl", "{\"text\": \"three\"}\n");
  write("b.txt", "no record");
  EXPECT_EQ(all(open_text(folder_.path(), {.json_key = "text"})), "one\nline\ntwo\nthree");
  expect_error<InputError>([&] { opened("b.jsonl", {.json_key = "body"}); }, {"b.jsonl:1: 'body': ", "no such key"});
  write("c.jsonl", "{\"text\": \"x\"}\n{\"text\": 5}\n");
  expect_error<InputError>([&] { opened("c.jsonl", {.json_key = "text"}); }, {"c.jsonl:2: 'text': ", "integer 5"});
  write("d.jsonl", "{\"text\": \"x\"}\n[1]\n");
  expect_error<InputError>([&] { opened("d.jsonl", {.json_key = "text"}); }, {"d.jsonl:2: expected an object"});
  write("e.jsonl", "{\"text\": \n");
  expect_error<InputError>([&] { opened("e.jsonl", {.json_key = "text"}); }, {"e.jsonl:1"});
}

TEST_F(TextFiles, MakeOneCorpusWithADocumentEach) {
  for (int i = 0; i < 4; ++i) write("t/" + std::to_string(i) + ".txt", "document " + std::to_string(i));
  TextOptions options;
  options.train = at("t");
  options.valid_fraction = options.test_fraction = 0;
  options.document_separator = DocumentRule::Kind::blank_line;
  EXPECT_EQ(load_corpus(options).train->num_documents(), 4);
  options.train = at("t/*.txt");
  options.document_separator = DocumentRule::Kind::line;
  options.separator_line = "---";
  EXPECT_EQ(load_corpus(options).train->num_documents(), 4);
  options.document_separator = DocumentRule::Kind::none;
  options.separator_line.clear();
  options.valid_fraction = 0.25;
  const Corpus none = load_corpus(options);
  EXPECT_EQ(none.train->size() + none.valid->size(), 4 * 11 - 1);
  EXPECT_GT(none.valid->size(), 0);
  EXPECT_EQ(split_text(options).notes, std::vector<std::string>{at("t/*.txt") + ": 4 files are one text"});
}

}  // namespace
}  // namespace mnemo::data
