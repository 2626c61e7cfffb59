#include "data/pairs/pair_options.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "data/tokenizers/open_tokenizer.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"

namespace mnemo::data {
namespace {

/// One side of the pairs, for the vocabulary, in which the separator is as frequent as sentences are.
std::string lines_of(const std::vector<TextPair>& pairs, std::string TextPair::*side, const std::string& separator) {
  std::string text;
  for (const TextPair& pair : pairs) (((text += pair.*side) += separator.empty() ? "" : " ") += separator) += '\n';
  return text;
}

void require_no_separator(const PairSets& sets, const std::string& separator) {
  if (separator.empty()) return;
  for (const TextPairs* part : {&sets.train, &sets.valid, &sets.test}) {
    for (const TextPair& pair : part->pairs) {
      for (const std::string* side : {&pair.source, &pair.target})
        base::require(side->find(separator) == std::string::npos,
                      "data.separator: expected a word that no sentence has, found '{}' in '{}'", separator,
                      base::printable(*side, 80));
    }
  }
}

std::shared_ptr<const PairVocabulary> make_vocabulary(const PairOptions& options, std::string text, const char* side) {
  const TextSource source = TextSource::in_memory(fmt::format("{} ({})", options.train, side), std::move(text));
  return std::make_shared<const PairVocabulary>(
      options.subwords() ? train_sentencepiece(options.unit_name(), {source}, options.max_vocabulary)
                         : make_tokenizer(options.unit_name(), source, {options.min_count, options.max_vocabulary}));
}

/// Windows of sentences of one document; each is one text, its sentences joined by a blank or by the separator.
std::vector<TextPair> windows_of(const std::vector<TextPair>& pairs, const PairOptions& options) {
  const int64_t window = options.window, stride = options.stride;
  if (window == 1) return pairs;
  const std::string between = options.separator.empty() ? " " : " " + options.separator + " ";
  std::vector<TextPair> windows;
  const auto count = static_cast<int64_t>(pairs.size());
  for (int64_t first = 0; first < count;) {
    int64_t last = first;
    const int64_t document = pairs[static_cast<size_t>(first)].document;
    while (last < count && document >= 0 && pairs[static_cast<size_t>(last)].document == document) ++last;
    last = std::max(last, first + 1);
    for (int64_t from = first;; from += stride) {
      TextPair joined{{}, {}, document};
      const int64_t to = std::min(from + window, last);
      for (int64_t i = from; i < to; ++i) {
        const TextPair& pair = pairs[static_cast<size_t>(i)];
        (joined.source += i == from ? "" : between) += pair.source;
        (joined.target += i == from ? "" : between) += pair.target;
      }
      windows.push_back(std::move(joined));
      if (to == last) break;
    }
    first = last;
  }
  return windows;
}

PairPart encode_part(const TextPairs& pairs, const PairCorpus& corpus, const PairOptions& options, bool training) {
  PairPart part;
  part.empty = pairs.empty;
  for (TextPair& pair : windows_of(pairs.pairs, options)) {
    PairSample sample{corpus.source->encode(options.source_prefix + pair.source, "source"),
                      corpus.target->encode(pair.target, "target")};
    const auto longest = static_cast<int64_t>(std::max(sample.source.size(), sample.target.size()));
    if (training && longest > options.max_length) {
      ++part.too_long;
      continue;
    }
    part.samples.push_back(std::move(sample));
    part.texts.push_back(std::move(pair));
  }
  return part;
}

}  // namespace

std::string PairOptions::unit_name() const { return base::write_options(*this).at("unit").as_string(); }

void PairOptions::validate(const base::Where& where) const {
  PairTextOptions::validate(where);
  where.require(tokenizer.empty() || (unit == PairOptions().unit && joint && min_count == 1 && max_vocabulary == 0),
                "tokenizer", "'{}' is one vocabulary for both sides; remove unit, joint, min_count and max_vocabulary",
                tokenizer);
  where.require(!subwords() || (max_vocabulary > 0 && min_count == 1), "max_vocabulary",
                "unit = \"{}\" needs the size of its vocabulary, and has no min_count", unit_name());
  where.require(window == 1 || document_column > 0, "window",
                "requires document_column; pairs without documents stand alone");
  where.require(window > 1 || separator.empty(), "separator", "stands between the sentences of a window; window is 1");
  where.require(reset == Reset::pairs || document_column > 0, "reset", "\"documents\" requires document_column");
  where.require(reset == Reset::pairs || window == 1, "window",
                "reset = \"documents\" reads sentence by sentence: expected 1, found {}", window);
  where.require(batch_tokens >= max_length, "batch_tokens", "expected at least max_length = {}, found {}", max_length,
                batch_tokens);
}

const PairPart& PairCorpus::part(Part part) const {
  return part == Part::train ? train : part == Part::valid ? valid : test;
}

PairCorpus load_pairs(const PairOptions& options) {
  const PairSets sets = read_pairs(options);
  require_no_separator(sets, options.separator);
  PairCorpus corpus;
  const std::vector<TextPair>& training = sets.train.pairs;
  if (!options.tokenizer.empty()) {
    const auto own = open_tokenizer(options.tokenizer);
    const SpecialTokens special = own->special_tokens();
    base::require(special.end >= 0 && special.padding >= 0,
                  "{}: expected a tokenizer with tokens for the end of a text and for padding", options.tokenizer);
    corpus.source = corpus.target = std::make_shared<const PairVocabulary>(own, special.end, special.padding);
  } else if (options.joint) {
    corpus.source = corpus.target = make_vocabulary(options,
                                                    lines_of(training, &TextPair::source, options.separator) +
                                                        lines_of(training, &TextPair::target, options.separator),
                                                    "both sides");
  } else {
    corpus.source = make_vocabulary(options, lines_of(training, &TextPair::source, options.separator), "source");
    corpus.target = make_vocabulary(options, lines_of(training, &TextPair::target, options.separator), "target");
  }
  corpus.train = encode_part(sets.train, corpus, options, true);
  corpus.valid = encode_part(sets.valid, corpus, options, false);
  corpus.test = encode_part(sets.test, corpus, options, false);
  base::require(!corpus.train.samples.empty(),
                "{}: expected pairs of at most data.max_length = {} tokens, but all {} are longer", options.train,
                options.max_length, corpus.train.too_long);
  return corpus;
}

std::map<std::string, std::string> vocabulary_files(const PairCorpus& corpus) {
  if (corpus.source->is_published()) return corpus.source->tokenizer().save();
  std::map<std::string, std::string> files;
  for (const auto& [name, content] : corpus.source->tokenizer().save()) files[kSourceFiles + name] = content;
  if (corpus.target == corpus.source) return files;
  for (const auto& [name, content] : corpus.target->tokenizer().save()) files[kTargetFiles + name] = content;
  return files;
}

PairVocabularies read_vocabularies(const std::map<std::string, std::string>& files, const std::string& where) {
  const auto read = [&](std::string_view prefix) -> std::shared_ptr<const PairVocabulary> {
    Files own;
    for (const auto& [name, content] : files) {
      if (name.starts_with(prefix)) own[name.substr(prefix.size())] = content;
    }
    if (own.empty()) return nullptr;
    return std::make_shared<const PairVocabulary>(open_tokenizer_files(own, where));
  };
  PairVocabularies both{read(kSourceFiles), read(kTargetFiles)};
  base::require(both.source != nullptr, "{}: expected vocabulary files {}*, found none", where, kSourceFiles);
  if (!both.target) both.target = both.source;
  return both;
}

}  // namespace mnemo::data
