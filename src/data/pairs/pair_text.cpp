#include "data/pairs/pair_text.h"

#include <map>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "data/text/lines.h"
#include "data/tokenizers/utf8_error.h"

namespace mnemo::data {
namespace {

constexpr int64_t kMaxLine = int64_t{1} << 20;

void require_utf8_line(const LinePlace& place, std::string_view line) {
  if (base::first_invalid_utf8(line)) require_utf8(fmt::format("{}:{}", place.file, place.line), line);
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first, last - first + 1);
}

/// The column with that number, from 1. Throws InputError if the line has fewer.
std::string_view column(const LinePlace& place, std::string_view line, int64_t number) {
  std::string_view rest = line;
  for (int64_t at = 1; at < number; ++at) {
    const size_t tab = rest.find('\t');
    base::require(tab != std::string_view::npos, "{}: expected at least {} tab-separated columns, found {}",
                  place.at(1), number, at);
    rest.remove_prefix(tab + 1);
  }
  return rest.substr(0, rest.find('\t'));
}

void add(TextPairs& pairs, std::string_view source, std::string_view target, int64_t document) {
  source = trimmed(source);
  target = trimmed(target);
  if (source.empty() || target.empty()) {
    ++pairs.empty;
    return;
  }
  pairs.pairs.push_back({std::string(source), std::string(target), document});
}

TextPairs read_columns(const std::string& path, const PairTextOptions& options) {
  TextPairs pairs;
  std::map<std::string, int64_t, std::less<>> documents;
  for_each_line(TextSource(path), kMaxLine, [&](const LinePlace& place, std::string_view line) {
    if (line.empty()) return;
    require_utf8_line(place, line);
    int64_t document = -1;
    if (options.document_column > 0) {
      const std::string_view name = column(place, line, options.document_column);
      document = documents.try_emplace(std::string(name), static_cast<int64_t>(documents.size())).first->second;
    }
    add(pairs, column(place, line, options.source_column), column(place, line, options.target_column), document);
  });
  return pairs;
}

TextPairs read_two_files(const std::string& source_path, const std::string& target_path) {
  const auto lines = [](const std::string& path) {
    std::vector<std::string> read;
    for_each_line(TextSource(path), kMaxLine, [&](const LinePlace& place, std::string_view line) {
      require_utf8_line(place, line);
      read.emplace_back(line);
    });
    return read;
  };
  const std::vector<std::string> source = lines(source_path), target = lines(target_path);
  base::require(source.size() == target.size(), "{}: expected {} lines, as many as {} has, found {}", target_path,
                source.size(), source_path, target.size());
  TextPairs pairs;
  for (size_t i = 0; i < source.size(); ++i) add(pairs, source[i], target[i], -1);
  return pairs;
}

TextPairs read_part(const std::string& source, const std::string& target, const PairTextOptions& options) {
  return target.empty() ? read_columns(source, options) : read_two_files(source, target);
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

void PairTextOptions::validate(const base::Where& where) const {
  where.require(valid_fraction + test_fraction < 1.0, "test_fraction",
                "expected valid_fraction + test_fraction below 1, found {} + {}", valid_fraction, test_fraction);
  where.require(train_target.empty() || document_column == 0, "document_column",
                "requires tab-separated columns; train_target is set");
}

const TextPairs& PairSets::part(Part part) const {
  return part == Part::train ? train : part == Part::valid ? valid : test;
}

PairSets read_pairs(const PairTextOptions& options) {
  PairSets sets;
  sets.train = read_part(options.train, options.train_target, options);
  if (!options.valid.empty()) sets.valid = read_part(options.valid, options.valid_target, options);
  if (!options.test.empty()) sets.test = read_part(options.test, options.test_target, options);
  divide(sets, options);
  base::require(!sets.train.pairs.empty(),
                "{}: expected at least one pair for training, found none; {} lines have an empty side", options.train,
                sets.train.empty);
  return sets;
}

}  // namespace mnemo::data
