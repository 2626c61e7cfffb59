#include "data/prepare/text_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "data/prepare/output.h"
#include "data/text/corpus.h"
#include "data/tokenizers/utf8_error.h"

namespace mnemo::data {
namespace {

constexpr int64_t kLargestDocument = int64_t{1} << 30;  // each file of a text folder is read into memory

Prepared prepare_text(const std::string& folder, const std::string& out, const base::Node& data) {
  const auto options = base::read_typed_options<TextOptions>(data);
  const double valid_fraction = options.valid_fraction, test_fraction = options.test_fraction;
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
  Output output(out, kTextFiles);
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
      output.require_going_on();
      std::string text = base::read_file(documents[next].path, static_cast<uint64_t>(kLargestDocument));
      if (const auto bad = base::first_invalid_utf8(text))
        invalid_utf8(documents[next].path, static_cast<int64_t>(*bad), std::string_view(text).substr(*bad),
                     kConvertFile);
      if (!text.ends_with('\n')) text += '\n';
      base::require(("\n" + text).find(fmt::format("\n{}\n", kSeparator)) == std::string::npos,
                    "{}: expected no line '{}', which separates documents", documents[next].path, kSeparator);
      if (part.documents > 0) text.insert(0, fmt::format("{}\n", kSeparator));
      file.write(text);
      part.bytes += static_cast<int64_t>(text.size());
      part.tokens += base::count_characters(text);
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

}  // namespace

DataSet text_folder() {
  return {.what = "a folder of text files, one document each",
          .from = "your own files",
          .data_type = "text",
          .prepare = prepare_text};
}

}  // namespace mnemo::data
