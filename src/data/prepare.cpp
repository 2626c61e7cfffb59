#include "data/prepare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_set>

#include "base/atomic_folder.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "base/text_table.h"
#include "data/text/documents.h"
#include "data/tokenizers/utf8.h"

namespace mnemo::data {
namespace {

constexpr std::array<const char*, 3> kParts = {"train", "valid", "test"};
constexpr int64_t kLargestDocument = int64_t{1} << 30;  // a file of a text folder is held whole

std::string_view where_from(std::string_view name) {
  for (const DataSource& source : data_sources()) {
    if (source.name == name) return source.from;
  }
  base::ensure(false, "no data set '{}'", name);
  return {};
}

constexpr const char* kRecipeFile = "data.toml";
constexpr std::array<const char*, 3> kTexts = {"train.txt", "valid.txt", "test.txt"};
constexpr std::array<const char*, 3> kListOpsFiles = {"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"};

/// The folder of a data set: it is there whole, or what was there stays.
class Output {
 public:
  /// `files`: of train, valid and test. Throws InputError where a folder of other things would be replaced.
  Output(const std::string& out, const std::array<const char*, 3>& files)
      : out_(out), files_(files), folder_(checked(out, files)) {}

  /// Where part `i` is written, and where it will be.
  std::string file(size_t i) const { return folder_.file(files_[i]); }
  std::string path(size_t i) const { return base::join_path(out_, files_[i]); }

  /// Writes [data] of the parts, whose paths start from its own folder, and puts everything in its place. Returns the
  /// path of data.toml.
  std::string commit(std::string_view about, std::string_view keys, const std::vector<PreparedPart>& parts) {
    std::string text = fmt::format("# {}\n[data]\n{}", about, keys);
    for (const PreparedPart& part : parts) {
      text += fmt::format("{} = \"{}\"\n", part.name, std::filesystem::path(part.path).filename().string());
    }
    base::write_file_atomic(folder_.file(kRecipeFile), text);
    folder_.commit();
    return base::join_path(out_, kRecipeFile);
  }

 private:
  static const std::string& checked(const std::string& out, const std::array<const char*, 3>& files) {
    if (!base::is_folder(out)) return out;
    for (const std::string& name : base::list_folder(out)) {
      base::require(name == kRecipeFile || std::find(files.begin(), files.end(), name) != files.end(),
                    "{}: not overwritten, because it contains '{}'; choose another folder", out, base::printable(name));
    }
    return out;
  }

  std::string out_;
  std::array<const char*, 3> files_;
  base::AtomicFolder folder_;
};

void copy(const TextSource& from, const std::string& to) {
  base::AtomicFile file(to);
  from.for_each_chunk([&](std::string_view chunk) {
    file.write(chunk);
    return true;
  });
  file.commit();
}

std::string sha256_of(const TextSource& text) {
  base::Sha256 sum;
  text.for_each_chunk([&](std::string_view chunk) {
    sum.update(chunk);
    return true;
  });
  return sum.hex();
}

int64_t count_documents(const TextSource& text, const DocumentRule& rule) {
  int64_t documents = text.size() > 0 ? 1 : 0;
  DocumentSplitter splitter(rule, [&](std::string_view, bool starts) { documents += starts ? 1 : 0; });
  text.for_each_chunk([&](std::string_view chunk) {
    splitter.put(chunk);
    return true;
  });
  splitter.finish();
  return documents;
}

struct Words {
  int64_t tokens = 0;  ///< words and line ends
  std::unordered_set<std::string> different;
};

Words count_words(const TextSource& text, bool vocabulary) {
  Words words;
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    ++words.tokens;
    if (vocabulary) words.different.insert(word);
    word.clear();
  };
  text.for_each_chunk([&](std::string_view chunk) {
    for (const char c : chunk) {
      if (c != ' ' && (c < '\t' || c > '\r')) {
        word += c;
        continue;
      }
      end_word();
      if (c == '\n') ++words.tokens;
    }
    return true;
  });
  end_word();
  return words;
}

struct WikiText {
  std::string_view name;
  std::array<int64_t, 3> tokens;  ///< words and line ends
  int64_t vocabulary;             ///< different words, <eos> included
};
constexpr std::array<WikiText, 2> kWikiTexts = {{{"wikitext-2", {2'088'628, 217'646, 245'569}, 33'278},
                                                 {"wikitext-103", {103'227'021, 217'646, 245'569}, 267'735}}};

/// The first of these names that is a file of the folder.
std::string find_file(const std::string& folder, const std::vector<std::string>& names, std::string_view data_set) {
  for (const std::string& name : names) {
    if (const std::string path = base::join_path(folder, name); base::path_exists(path)) return path;
  }
  base::input_error("{}: expected {} of {}, found neither; get it from {}", folder, fmt::join(names, " or "), data_set,
                    where_from(data_set));
}

}  // namespace

const std::vector<DataSource>& data_sources() {
  static const std::vector<DataSource> sources = {
      {"enwik8", "100,000,000 bytes of Wikipedia, or its first 4,000,000",
       "https://mattmahoney.net/dc/enwik8.zip (unpack it)"},
      {"wikitext-2", "2 million words of Wikipedia's good articles",
       "https://wikitext.smerity.com/wikitext-2-v1.zip (unpack it), or Salesforce/wikitext on Hugging Face, each split "
       "as a text"},
      {"wikitext-103", "103 million words of Wikipedia's good articles",
       "https://wikitext.smerity.com/wikitext-103-v1.zip (unpack it), or Salesforce/wikitext on Hugging Face, each "
       "split as a text"},
      {"text", "a folder of text files, one document each", "your own files"},
      {"images", "images in class folders, MNIST or CIFAR files, or another supported layout", "your own files"},
      {"listops", "Long ListOps, generated or from the Long Range Arena files",
       "https://storage.googleapis.com/long-range-arena/lra_release.gz (folder listops-1000), or made: leave the "
       "folder out"},
  };
  return sources;
}

Prepared prepare_enwik8(const std::string& file, const std::string& out) {
  struct Known {
    int64_t size;
    std::string_view sum;
  };
  // The whole, and its first 4,000,000 bytes.
  constexpr std::array<Known, 2> kKnown = {
      {{100'000'000, "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"},
       {4'000'000, "9f9ca3a41e2b87a0268d00380577e2c308e07959b22a94c8d7b1e8901bdefc37"}}};
  const TextSource whole(file);
  const auto known = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const Known& one) { return one.size == whole.size(); });
  base::require(known != kKnown.end(), "{}: expected enwik8, {} bytes, or its first {}, found {} bytes; get it from {}",
                file, kKnown[0].size, kKnown[1].size, whole.size(), where_from("enwik8"));
  const std::string sum = sha256_of(whole);
  base::require(sum == known->sum,
                "{}: expected enwik8 with SHA-256 {}, found {}: the file is damaged, or another; get it from {}", file,
                known->sum, sum, where_from("enwik8"));
  Output output(out, kTexts);
  Prepared prepared;
  const std::array<int64_t, 4> borders = {0, whole.size() / 100 * 90, whole.size() / 100 * 95, whole.size()};
  for (size_t i = 0; i < kParts.size(); ++i) {
    const TextSource part = whole.range(borders[i], borders[i + 1]);
    copy(part, output.file(i));
    prepared.parts.push_back({kParts[i], output.path(i), part.size(), 1, part.size()});
  }
  prepared.recipe = output.commit("enwik8: 90, 5 and 5 % of the bytes", "type = \"text\"\nunit = \"bytes\"\n",
                                  prepared.parts);
  return prepared;
}

Prepared prepare_wikitext(const std::string& name, const std::string& folder, const std::string& out) {
  const auto known = std::find_if(kWikiTexts.begin(), kWikiTexts.end(),
                                  [&](const WikiText& one) { return one.name == name; });
  base::ensure(known != kWikiTexts.end(), "no WikiText '{}'", name);
  base::require(base::is_folder(folder), "{}: expected a folder with the three files of {}, found {}; get it from {}",
                folder, name, base::path_exists(folder) ? "a file" : "nothing", where_from(name));
  std::vector<TextSource> sources;
  Prepared prepared;
  for (size_t i = 0; i < kParts.size(); ++i) {
    const TextSource text(
        find_file(folder, {fmt::format("wiki.{}.tokens", kParts[i]), fmt::format("{}.txt", kParts[i])}, name));
    const Words words = count_words(text, i == 0);
    base::require(words.tokens == known->tokens[i],
                  "{}: expected the {} words and line ends of {} ({}), found {}; get it from {}", text.path(),
                  known->tokens[i], name, kParts[i], words.tokens, where_from(name));
    const auto vocabulary = static_cast<int64_t>(words.different.size()) + 1;
    base::require(i > 0 || vocabulary == known->vocabulary,
                  "{}: expected the {} different words of {}, the line end included, found {}; get it "
                  "from {}",
                  text.path(), known->vocabulary, name, vocabulary, where_from(name));
    prepared.parts.push_back(
        {kParts[i], {}, text.size(), count_documents(text, {DocumentRule::Kind::heading, {}}), words.tokens});
    sources.push_back(text);
  }
  Output output(out, kTexts);
  for (size_t i = 0; i < sources.size(); ++i) {
    copy(sources[i], output.file(i));
    prepared.parts[i].path = output.path(i);
  }
  prepared.recipe = output.commit(name + ", word level; an article is a document",
                                  "type = \"text\"\nunit = \"words\"\ndocument_separator = \"heading\"\n",
                                  prepared.parts);
  return prepared;
}

Prepared prepare_text(const std::string& folder, const std::string& out, double valid_fraction, double test_fraction) {
  static constexpr std::string_view kSeparator = "<|document|>";
  base::require(valid_fraction >= 0 && test_fraction >= 0 && valid_fraction + test_fraction < 1,
                "data: expected non-negative fractions with a sum below 1, found {} and {}", valid_fraction,
                test_fraction);
  base::require(base::is_folder(folder), "{}: expected a folder of texts, found {}", folder,
                base::path_exists(folder) ? "a file" : "nothing");
  base::require(!std::filesystem::exists(out) || !std::filesystem::equivalent(folder, out),
                "{}: expected another folder to write to than the one "
                "that is read",
                out);
  struct Document {
    std::string path;
    int64_t size;
  };
  std::vector<Document> documents;
  int64_t total = 0;
  std::error_code error;
  for (auto entry = std::filesystem::recursive_directory_iterator(folder, error);
       entry != std::filesystem::recursive_directory_iterator(); ++entry) {
    const bool hidden = entry->path().filename().string().starts_with('.');
    if (hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (hidden || !entry->is_regular_file() || entry->file_size() == 0) continue;
    documents.push_back({entry->path().string(), static_cast<int64_t>(entry->file_size())});
    total += documents.back().size;
  }
  base::require(!error, "{}: {}", folder, error.message());
  std::sort(documents.begin(), documents.end(), [](const Document& a, const Document& b) { return a.path < b.path; });
  Output output(out, kTexts);
  Prepared prepared;
  const std::array<double, 3> ends = {1 - valid_fraction - test_fraction, 1 - test_fraction, 1};
  int64_t read = 0;
  size_t next = 0;
  for (size_t i = 0; i < kParts.size(); ++i) {
    if (i > 0 && ends[i] <= ends[i - 1]) continue;
    PreparedPart part{kParts[i], output.path(i), 0, 0, 0};
    base::AtomicFile file(output.file(i));
    for (; next < documents.size() &&
           (i + 1 == kParts.size() || static_cast<double>(read) < ends[i] * static_cast<double>(total));
         ++next) {
      std::string text = base::read_file(documents[next].path, static_cast<uint64_t>(kLargestDocument));
      if (const auto bad = base::first_invalid_utf8(text))
        invalid_utf8(documents[next].path, static_cast<int64_t>(*bad), std::string_view(text).substr(*bad));
      if (!text.ends_with('\n')) text += '\n';
      base::require(("\n" + text).find(fmt::format("\n{}\n", kSeparator)) == std::string::npos,
                    "{}: expected no line '{}', which stands between documents", documents[next].path, kSeparator);
      if (part.documents > 0) text.insert(0, fmt::format("{}\n", kSeparator));
      file.write(text);
      part.bytes += static_cast<int64_t>(text.size());
      part.tokens += count_characters(text);
      ++part.documents;
      read += documents[next].size;
    }
    base::require(part.documents > 0,
                  "{}: {} documents of {} bytes in all leave none for the part {} with fractions {} and {}; give "
                  "larger ones, or 0",
                  folder, documents.size(), total, part.name, valid_fraction, test_fraction);
    file.commit();
    prepared.parts.push_back(std::move(part));
  }
  std::string keys = fmt::format(
      "type = \"text\"\nunit = \"characters\"\ndocument_separator = \"line\"\nseparator_line = \"{}\"\n", kSeparator);
  if (valid_fraction == 0) keys += "valid_fraction = 0.0\n";
  if (test_fraction == 0) keys += "test_fraction = 0.0\n";
  prepared.recipe = output.commit("the files of a folder, each a document", keys, prepared.parts);
  return prepared;
}

Prepared prepare_listops(const std::string& folder, const std::string& out, const ListOpsOptions& options) {
  Prepared prepared;
  Output output(out, kListOpsFiles);
  std::string text;
  std::unique_ptr<base::AtomicFile> file;
  const auto begin = [&](size_t i) {
    prepared.parts.push_back({kParts[i], output.path(i), 0, 0, 0});
    file = std::make_unique<base::AtomicFile>(output.file(i));
    text = "Source\tTarget\n";
  };
  const auto write = [&] {
    file->write(text);
    prepared.parts.back().bytes += static_cast<int64_t>(text.size());
    text.clear();
  };
  const auto add = [&](const ListOpsExpression& expression) {
    text += fmt::format("{}\t{}\n", listops_text(expression.tokens), expression.value);
    ++prepared.parts.back().documents;
    prepared.parts.back().tokens += static_cast<int64_t>(expression.tokens.size());
    if (text.size() > size_t{1} << 20) write();
  };
  const auto end = [&] {
    write();
    file->commit();
    file.reset();
  };
  if (folder.empty()) {
    make_listops(options, [&](Part part, const ListOpsExpression& expression) {
      while (prepared.parts.size() <= static_cast<size_t>(part)) {
        if (file) end();
        begin(prepared.parts.size());
      }
      add(expression);
      return true;
    });
    end();
  } else {
    for (size_t i = 0; i < kParts.size(); ++i) {
      const std::string path = find_file(folder, {kListOpsFiles[i], fmt::format("{}.tsv", kParts[i])}, "listops");
      begin(i);
      read_listops(path, add);
      end();
    }
  }
  std::erase_if(prepared.parts, [](const PreparedPart& part) { return part.documents == 0; });
  prepared.recipe = output.commit("Long ListOps, in the files of Long Range Arena",
                                  fmt::format("type = \"listops\"\nmax_length = {}\n", options.max_length),
                                  prepared.parts);
  return prepared;
}

std::string to_text(const Prepared& prepared) {
  using Align = base::TextTable::Align;
  base::TextTable table({"part", "bytes", "documents", "tokens", "file"},
                        {Align::left, Align::right, Align::right, Align::right, Align::left});
  for (const PreparedPart& part : prepared.parts) {
    table.add_row({part.name, std::to_string(part.bytes), std::to_string(part.documents), std::to_string(part.tokens),
                   part.path});
  }
  return table.text() + fmt::format("\n[data] of a recipe: {}\n", prepared.recipe);
}

base::Node to_node(const Prepared& prepared) {
  base::Node parts = base::Node::array();
  for (const PreparedPart& part : prepared.parts) {
    parts.push_back(base::Node::table({{"name", part.name},
                                       {"path", part.path},
                                       {"bytes", part.bytes},
                                       {"documents", part.documents},
                                       {"tokens", part.tokens}}));
  }
  return base::Node::table({{"recipe", prepared.recipe}, {"parts", std::move(parts)}});
}

}  // namespace mnemo::data
