#include "data/prepare/text_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "base/require_folder.h"
#include "base/utf8.h"
#include "data/prepare/output.h"
#include "data/text/corpus.h"
#include "data/text/documents.h"
#include "data/text/text_files.h"
#include "text/utf8_error.h"

namespace mnemo::data {
namespace {

constexpr int64_t kLargestDocument = int64_t{1} << 30;  // each file of a text folder is read into memory
constexpr std::string_view kSeparator = "<|document|>";

struct Document {
  std::string path;
  int64_t size;
};

/// The files of a folder that have something in them, by their paths.
std::vector<Document> documents_in(const std::string& folder) {
  std::vector<Document> documents;
  for_each_file(folder, [&](const std::string& path) {
    if (const auto size = static_cast<int64_t>(base::file_size(path)); size > 0) documents.push_back({path, size});
    return true;
  });
  std::sort(documents.begin(), documents.end(), [](const Document& a, const Document& b) { return a.path < b.path; });
  return documents;
}

/// The text of a document, which ends with a line end.
std::string read_document(const std::string& path) {
  std::string text = base::read_file(path, static_cast<uint64_t>(kLargestDocument));
  if (text.starts_with(base::kByteOrderMark)) text.erase(0, base::kByteOrderMark.size());
  if (const auto bad = base::first_invalid_utf8(text))
    text::invalid_utf8(path, static_cast<int64_t>(*bad), std::string_view(text).substr(*bad), text::kConvertFile);
  if (!text.ends_with('\n')) text += '\n';
  base::require(!has_separator(text, DocumentRule::of(DocumentRule::Kind::line, kSeparator)),
                "{}: expected no line '{}', which separates documents", path, kSeparator);
  return text;
}

int64_t words_and_line_ends(std::string_view text) {
  int64_t count = 0;
  bool in_word = false;
  for (const char c : text) {
    const bool blank = c == ' ' || (c >= '\t' && c <= '\r');
    count += (c == '\n' ? 1 : 0) + (!blank && !in_word ? 1 : 0);
    in_word = !blank;
  }
  return count;
}

/// tokenizer: null if there is none.
int64_t count_tokens(std::string_view text, const TextOptions& options, const text::Tokenizer* tokenizer) {
  if (tokenizer != nullptr) return static_cast<int64_t>(tokenizer->encode(text).size());
  switch (options.unit) {
    case TextOptions::Unit::bytes:
      return static_cast<int64_t>(text.size());
    case TextOptions::Unit::characters:
      return base::count_characters(text);
    case TextOptions::Unit::words:
      return words_and_line_ends(text);
  }
  return 0;
}

/// data.toml of the parts: the separator of the documents, and the changed options.
std::string keys_of_parts(TextOptions options) {
  std::string keys = fmt::format(
      "type = \"text\"\nunit = \"{}\"\ndocument_separator = \"line\"\nseparator_line = \"{}\"\n", options.unit_name(),
      kSeparator);
  // The other fractions have done their work: their parts have files.
  if (options.valid_fraction == 0) keys += "valid_fraction = 0.0\n";
  if (options.test_fraction == 0) keys += "test_fraction = 0.0\n";
  // A relative path would begin at data.toml.
  if (!options.tokenizer.empty())
    options.tokenizer = std::filesystem::absolute(options.tokenizer).lexically_normal().string();
  return keys + changed_keys(options, {"train", "valid", "test", "valid_fraction", "test_fraction", "unit",
                                       "document_separator", "separator_line"});
}

Prepared prepare_text(const std::string& folder, const PrepareTarget& out, const base::Node& data) {
  const auto options = base::read_typed_options<TextOptions>(data);
  const double valid_fraction = options.valid_fraction, test_fraction = options.test_fraction;
  base::require_folder(folder, "a folder of texts");
  std::error_code error;
  base::require(!std::filesystem::equivalent(folder, out.folder, error),
                "{}: expected an output folder other than the one that is read", out.folder);
  const auto tokenizer = options.pretrained();
  const std::vector<Document> documents = documents_in(folder);
  int64_t total = 0;
  for (const Document& document : documents) total += document.size;
  Output output(out, kTextFiles);
  Prepared prepared;
  const std::array<double, 3> ends = {1 - valid_fraction - test_fraction, 1 - test_fraction, 1};
  int64_t read = 0;
  size_t next = 0;
  for (size_t i = 0; i < kParts.size(); ++i) {
    if (i > 0 && ends[i] <= ends[i - 1]) continue;
    PreparedPart part{kParts[i], output.path(i), 0, 0, 0};
    base::AtomicFile file(output.file(i));
    const auto put = [&](const std::string& text) {
      file.write(text);
      part.bytes += static_cast<int64_t>(text.size());
      part.tokens += count_tokens(text, options, tokenizer.get());
    };
    std::string text;  // of the last document, which a separator follows if there is another
    for (; next < documents.size() &&
           (i + 1 == kParts.size() || static_cast<double>(read) < ends[i] * static_cast<double>(total));
         ++next) {
      output.require_going_on();
      if (part.documents > 0) put(fmt::format("{}{}\n", text, kSeparator));
      text = read_document(documents[next].path);
      ++part.documents;
      read += documents[next].size;
    }
    base::require(part.documents > 0,
                  "{}: {} documents of {} bytes in all leave none for the part {} with fractions {} and {}; give "
                  "larger ones, or 0",
                  folder, documents.size(), total, part.name, valid_fraction, test_fraction);
    put(text);
    file.commit();
    prepared.parts.push_back(std::move(part));
  }
  prepared.recipe = output.commit("the files of a folder, each a document", keys_of_parts(options), prepared.parts);
  return prepared;
}

}  // namespace

DataSet text_folder() {
  return {.what = "a folder of text files, one document each",
          .from = "your own files",
          .data_type = "text",
          .own_keys =
              [](const std::string&) {
                return base::Node::table({{"train", ""},
                                          {"valid", ""},
                                          {"test", ""},
                                          {"json_key", ""},
                                          {"document_separator", "line"},
                                          {"separator_line", kSeparator}});
              },
          .prepare = prepare_text};
}

}  // namespace mnemo::data
