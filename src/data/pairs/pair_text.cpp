#include "data/pairs/pair_text.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string_view>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/require_folder.h"
#include "base/unicode.h"
#include "base/utf8.h"
#include "data/pairs/pair_find.h"
#include "data/text/lines.h"
#include "data/text/table.h"
#include "data/text/text_files.h"
#include "text/utf8_error.h"

namespace mnemo::data {
namespace {

constexpr int64_t kMaxLine = int64_t{1} << 20;

void require_utf8_line(const LinePlace& place, std::string_view line) {
  if (base::first_invalid_utf8(line)) text::require_utf8(fmt::format("{}:{}", place.file, place.line), line);
}

/// Numbers of documents by name, in order of appearance.
using Documents = std::map<std::string, int64_t, std::less<>>;

int64_t number_of(Documents& documents, std::string_view name) {
  return documents.try_emplace(std::string(name), static_cast<int64_t>(documents.size())).first->second;
}

void add(TextPairs& pairs, std::string_view source, std::string_view target, TextPair pair) {
  pair.source = words_in(source);
  pair.target = words_in(target);
  if (pair.source.empty() || pair.target.empty()) {
    pairs.empty.add(pair);
  } else {
    pairs.pairs.push_back(std::move(pair));
  }
}

/// Calls `use` with the lines of a file, which may be packed.
void for_each_pair_line(const std::string& path, const std::function<void(const LinePlace&, std::string_view)>& use) {
  for_each_text_line(path, kMaxLine, [&](const LinePlace& place, std::string_view line) {
    require_utf8_line(place, line);
    use(place, line);
  });
}

/// `document`: the name of the document that the file is; empty: it is none.
void read_columns(const std::string& path, const PairTextOptions& options, const std::string& document,
                  Documents& documents, TextPairs& pairs) {
  const auto file = std::make_shared<const std::string>(path);
  const int64_t needed = std::max({options.source_column, options.target_column, options.document_column});
  const TableKind kind = table_kind(path);
  const char* const separated = kind == TableKind::csv ? "" : "tab-separated ";
  int64_t count = 0, first = 0;  // columns of the first line that is not empty, and its number
  TableSplitter records(kind, [&](const LinePlace& place, const std::vector<TableField>& fields) {
    if (options.header && place.line == 1) return;
    const auto columns = static_cast<int64_t>(fields.size());
    base::require(columns >= needed, "{}: expected at least {} {}columns, found {}", place.at(1), needed, separated,
                  columns);
    if (first == 0) count = columns, first = place.line;
    // A tab inside a text would move the texts to other columns.
    base::require(columns == count, "{}: expected {} {}columns, as in line {}, found {}", place.at(1), count, separated,
                  first, columns);
    const auto column = [&](int64_t number) {
      std::string text = fields[static_cast<size_t>(number) - 1].text;
      std::replace(text.begin(), text.end(), '\n', ' ');  // inside the quotes of CSV
      return text;
    };
    TextPair pair{.source = {}, .target = {}, .document = -1, .file = file, .line = place.line};
    std::string name = document;
    if (options.document_column > 0) (name += '\n') += column(options.document_column);
    if (!name.empty()) pair.document = number_of(documents, name);
    add(pairs, column(options.source_column), column(options.target_column), std::move(pair));
  });
  for_each_pair_line(path, [&](const LinePlace& place, std::string_view line) { records.put(place, line); });
  records.finish();
}

/// The text at a key of an object, on one line.
std::string text_at(const base::Node& record, const std::string& key, const std::string& where) {
  const base::Node* value = member_at(record, key);
  base::require(value != nullptr && value->is_string(), "{}: '{}': expected a text, found {}", where,
                base::printable(key), value == nullptr ? "no such key" : value->found());
  std::string text = value->as_string();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// JSON lines; `document` as read_columns() has it.
void read_records(const std::string& path, const PairTextOptions& options, const std::string& document,
                  Documents& documents, TextPairs& pairs) {
  base::require(options.document_column == 0 && !options.header,
                "{}: 'data.document_column' and 'data.header' go with columns, which JSON lines have none of; a folder "
                "has a file for each document",
                path);
  const auto file = std::make_shared<const std::string>(path);
  const int64_t number = document.empty() ? -1 : number_of(documents, document);
  PairKeys keys{options.source_key, options.target_key};
  for_each_pair_line(path, [&](const LinePlace& place, std::string_view line) {
    if (words_in(line).empty()) return;
    const std::string where = fmt::format("{}:{}", path, place.line);
    const base::Node record = parse_record(line, where);
    if (keys.source.empty()) {
      const std::optional<PairKeys> known = pair_keys(record);
      base::require(known.has_value(),
                    "{}: no two of its keys are known for a pair ({}); name them: data.source_key=KEY and "
                    "data.target_key=KEY, where \"translation.en\" is a key in an object",
                    where, key_names(record));
      keys = *known;
    }
    add(pairs, text_at(record, keys.source, where), text_at(record, keys.target, where),
        {.source = {}, .target = {}, .document = number, .file = file, .line = place.line});
  });
}

/// A file that has both sides.
void read_both(const std::string& path, const PairTextOptions& options, const std::string& document,
               Documents& documents, TextPairs& pairs) {
  const bool records = table_kind(path) == TableKind::json_lines;
  (records ? read_records : read_columns)(path, options, document, documents, pairs);
}

void read_two_files(const std::string& source_path, const std::string& target_path, const PairTextOptions& options,
                    const std::string& document, Documents& documents, TextPairs& pairs) {
  const auto lines = [&](const std::string& path) {
    std::vector<std::string> read;
    for_each_pair_line(path, [&](const LinePlace& place, std::string_view line) {
      if (place.line > 1 || !options.header) read.emplace_back(line);
    });
    return read;
  };
  const std::vector<std::string> source = lines(source_path), target = lines(target_path);
  base::require(source.size() == target.size(), "{}: expected {} lines, as many as {} has, found {}", target_path,
                source.size(), source_path, target.size());
  const auto file = std::make_shared<const std::string>(source_path);
  const int64_t number = document.empty() ? -1 : number_of(documents, document);
  for (size_t i = 0; i < source.size(); ++i)
    add(pairs, source[i], target[i],
        {.source = {},
         .target = {},
         .document = number,
         .file = file,
         .line = static_cast<int64_t>(i) + (options.header ? 2 : 1)});
}

/// The names of a folder's files, but for hidden ones, sorted.
std::vector<std::string> names_in(const std::string& folder) {
  base::require_folder(folder, "a folder, as on the other side");
  std::vector<std::string> names;
  for (const std::string& name : base::list_folder(folder)) {
    if (!name.starts_with(".") && !base::is_folder(base::join_path(folder, name))) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  base::require(!names.empty(), "{}: expected files, a document each, found none", folder);
  return names;
}

TextPairs read_part(const std::string& source, const std::string& target, const PairTextOptions& options) {
  TextPairs pairs;
  Documents documents;
  const bool folder = base::is_folder(source) || (!target.empty() && base::is_folder(target));
  if (!folder && target.empty()) {
    for (const std::string& file : text_files(source)) read_both(file, options, {}, documents, pairs);
    return pairs;
  }
  if (!folder) {
    read_two_files(source, target, options, {}, documents, pairs);
    return pairs;
  }
  const std::vector<std::string> names = names_in(source);
  if (target.empty()) {
    for (const std::string& name : names) read_both(base::join_path(source, name), options, name, documents, pairs);
    return pairs;
  }
  const std::vector<std::string> others = names_in(target);
  std::vector<std::string> alone;
  std::set_symmetric_difference(names.begin(), names.end(), others.begin(), others.end(), std::back_inserter(alone));
  if (!alone.empty()) {
    const bool there = std::binary_search(names.begin(), names.end(), alone[0]);
    base::input_error("{}: expected a file of the same name in {}, found none",
                      base::join_path(there ? source : target, base::printable(alone[0])), there ? target : source);
  }
  for (const std::string& name : names)
    read_two_files(base::join_path(source, name), base::join_path(target, name), options, name, documents, pairs);
  return pairs;
}

/// A number in [0, 1) that depends only on the text (FNV-1a, 64 bits).
double place_of(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccdULL;
  hash ^= hash >> 33;
  return static_cast<double>(hash >> 11) * 0x1.0p-53;
}

/// Moves pairs into the parts that have no files of their own.
void divide(PairSets& sets, const PairTextOptions& options) {
  const double valid = options.valid.empty() ? options.valid_fraction : 0.0;
  const double test = options.test.empty() ? options.test_fraction : 0.0;
  std::vector<TextPair> kept;
  for (TextPair& pair : sets.train.pairs) {
    const double place = place_of(pair.document < 0 ? pair.source : fmt::format("document {}", pair.document));
    if (place < test) {
      sets.test.pairs.push_back(std::move(pair));
    } else if (place < test + valid) {
      sets.valid.pairs.push_back(std::move(pair));
    } else {
      kept.push_back(std::move(pair));
    }
  }
  sets.train.pairs = std::move(kept);
}

}  // namespace

std::string_view words_in(std::string_view line) {
  line = base::trimmed(line, " \t");
  for (std::string_view rest = line; !rest.empty();) {
    const base::Utf8Character one = base::front_character(rest);
    if (!base::is_space(one.code_point)) return line;
    rest.remove_prefix(static_cast<size_t>(one.length));
  }
  return {};
}

void PairTextOptions::validate(const base::Where& where) const {
  where.require(valid_fraction + test_fraction < 1.0, "test_fraction",
                "expected valid_fraction + test_fraction below 1, found {} + {}", valid_fraction, test_fraction);
  where.require(valid_target.empty() || !valid.empty(), "valid_target", "is the target of `valid`, which is empty");
  where.require(test_target.empty() || !test.empty(), "test_target", "is the target of `test`, which is empty");
  where.require(train_target.empty() || document_column == 0, "document_column",
                "requires columns; train_target is set");
  const bool columns = train_target.empty() || (!valid.empty() && valid_target.empty()) ||
                       (!test.empty() && test_target.empty());
  where.require(source_key.empty() == target_key.empty(), source_key.empty() ? "source_key" : "target_key",
                "expected the keys of both sides, or none");
  const PairTextOptions usual;
  for (const auto& [key, set] : {std::pair("source_column", source_column != usual.source_column),
                                 {"target_column", target_column != usual.target_column}})
    where.require(columns || !set, key, "requires columns; train_target is set, so remove it");
}

bool PairTextOptions::has_documents() const { return document_column > 0 || base::is_folder(train); }

std::string TextPair::place() const { return fmt::format("{}:{}", file ? *file : "pairs", line); }

void LeftOut::add(const TextPair& pair) {
  if (count++ >= kNamed) return;
  const std::string place = pair.place();
  places.push_back(place.substr(place.rfind('/') + 1));
}

const TextPairs& PairSets::part(Part part) const {
  return part == Part::train ? train : part == Part::valid ? valid : test;
}

PairSets read_pairs(const PairTextOptions& options) {
  base::require(!options.train.empty(),
                "data.train: expected sentence pairs, found none; use --set data.train=PATH, or train's --data PATH");
  PairSets sets;
  sets.train = read_part(options.train, options.train_target, options);
  if (!options.valid.empty()) sets.valid = read_part(options.valid, options.valid_target, options);
  if (!options.test.empty()) sets.test = read_part(options.test, options.test_target, options);
  divide(sets, options);
  if (options.valid.empty() && options.valid_fraction > 0 && sets.valid.pairs.empty())
    base::log_warning("{}: valid_fraction = {:g} of its {} is none, so nothing is held out for evaluations",
                      base::printable(options.train, 400), options.valid_fraction,
                      options.has_documents() ? "documents" : "pairs");
  const int64_t empty = sets.train.empty.count;
  base::require(!sets.train.pairs.empty(), "{}: expected at least one pair, found none{}", options.train,
                empty == 0 ? "" : fmt::format("; left out: {} with an empty side", empty));
  return sets;
}

}  // namespace mnemo::data
