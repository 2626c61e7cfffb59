#include "data/prepare/wikitext.h"

#include <fmt/format.h>

#include <unordered_set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/require_folder.h"
#include "data/prepare/output.h"
#include "data/text/documents.h"

namespace mnemo::data {
namespace {

int64_t count_documents(const text::TextSource& text, const DocumentRule& rule) {
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

Words count_words(const text::TextSource& text, bool vocabulary) {
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
  const char* name;
  const char* from;
  std::array<int64_t, 3> tokens;  ///< words and line ends
  int64_t vocabulary;             ///< distinct words, including <eos>
};
constexpr WikiText kWikiText2 = {
    "wikitext-2",
    "https://wikitext.smerity.com/wikitext-2-v1.zip (unpack it), or Salesforce/wikitext on Hugging Face, each split "
    "as a text",
    {2'088'628, 217'646, 245'569},
    33'278};
constexpr WikiText kWikiText103 = {
    "wikitext-103",
    "https://wikitext.smerity.com/wikitext-103-v1.zip (unpack it), or Salesforce/wikitext on Hugging Face, each "
    "split as a text",
    {103'227'021, 217'646, 245'569},
    267'735};

Prepared prepare_wikitext(const WikiText& known, const std::string& folder, const PrepareTarget& out) {
  const std::string name(known.name);
  base::require_folder(folder, fmt::format("a folder with the three files of {}", name),
                       fmt::format("; get {} from {}", name, known.from));
  std::vector<text::TextSource> sources;
  Prepared prepared;
  for (size_t i = 0; i < kParts.size(); ++i) {
    const text::TextSource text(find_file(
        folder, {fmt::format("wiki.{}.tokens", kParts[i]), fmt::format("{}.txt", kParts[i])}, name, known.from));
    const Words words = count_words(text, i == 0);
    base::require(words.tokens == known.tokens[i],
                  "{}: expected the {} words and line ends of {} ({}), found {}; get it from {}", text.path(),
                  known.tokens[i], name, kParts[i], words.tokens, known.from);
    const auto vocabulary = static_cast<int64_t>(words.different.size()) + 1;
    base::require(i > 0 || vocabulary == known.vocabulary,
                  "{}: expected the {} different words of {}, the line end included, found {}; get it "
                  "from {}",
                  text.path(), known.vocabulary, name, vocabulary, known.from);
    prepared.parts.push_back(
        {kParts[i], {}, text.size(), count_documents(text, {DocumentRule::Kind::heading, {}}), words.tokens});
    sources.push_back(text);
  }
  Output output(out, kTextFiles);
  for (size_t i = 0; i < sources.size(); ++i) {
    output.copy(sources[i], i);
    prepared.parts[i].path = output.path(i);
  }
  prepared.recipe = output.commit(name + ", word level; an article is a document",
                                  "type = \"text\"\nunit = \"words\"\ndocument_separator = \"heading\"\n",
                                  prepared.parts);
  return prepared;
}

DataSet wikitext(const WikiText& known, const char* what) {
  return {.what = what,
          .from = known.from,
          .prepare = [&known](const std::string& folder, const PrepareTarget& out, const base::Node&) {
            return prepare_wikitext(known, folder, out);
          }};
}

}  // namespace

DataSet wikitext_2() { return wikitext(kWikiText2, "2 million words of Wikipedia's good articles"); }

DataSet wikitext_103() { return wikitext(kWikiText103, "103 million words of Wikipedia's good articles"); }

}  // namespace mnemo::data
