#include "data/pairs/pair_options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/choice_name.h"
#include "base/error.h"
#include "base/printable.h"
#include "text/open_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"

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
  const text::TextSource source = text::TextSource::in_memory(fmt::format("{} ({})", options.train, side),
                                                              std::move(text));
  return std::make_shared<const PairVocabulary>(
      options.subwords()
          ? text::train_sentencepiece(options.unit_name(), {source}, options.max_vocabulary)
          : text::make_tokenizer(options.unit_name(), source, {options.min_count, options.max_vocabulary}));
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
    for (int64_t from = first; from < last; from += stride) {
      TextPair joined = pairs[static_cast<size_t>(from)];
      joined.source = joined.target = {};
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
  // The tokens of a side that is empty after SentencePiece's normalisation.
  const std::vector<int64_t> no_source = corpus.source->encode(options.source_prefix, "data.source_prefix"),
                             no_target = corpus.target->encode({}, "target");
  for (TextPair& pair : windows_of(pairs.pairs, options)) {
    const std::string place = pair.place();
    PairSample sample{corpus.source->encode(options.source_prefix + pair.source, place + " (source)"),
                      corpus.target->encode(pair.target, place + " (target)")};
    // Without the end of the sentence, which every side has.
    const auto [shorter, longer] = std::minmax({sample.source.size() - 1, sample.target.size() - 1});
    if (sample.source == no_source || sample.target == no_target) {
      part.empty.add(pair);
    } else if (training && static_cast<int64_t>(longer) + 1 > options.max_length) {
      part.too_long.add(pair);
    } else if (training && options.max_ratio > 0 &&
               static_cast<double>(longer) > options.max_ratio * static_cast<double>(shorter)) {
      part.unequal.add(pair);
    } else {
      part.samples.push_back(std::move(sample));
      part.texts.push_back(std::move(pair));
    }
  }
  return part;
}

/// A word that is no word is found by its line; vocabularies are made of all lines together.
void require_words(const PairOptions& options, const std::vector<TextPair>& pairs) {
  if (options.unit != PairOptions::Unit::words || !options.tokenizer.empty()) return;
  for (const TextPair& pair : pairs) {
    text::check_words(pair.source, pair.place() + " (source)");
    text::check_words(pair.target, pair.place() + " (target)");
  }
}

}  // namespace

std::string PairOptions::unit_name() const { return base::choice_name(*this, &PairOptions::unit); }

void PairOptions::validate(const base::Where& where) const {
  PairTextOptions::validate(where);
  where.require(
      tokenizer.empty() || (unit == PairOptions().unit && joint && min_count == 1 && max_vocabulary == 0), "tokenizer",
      "'{}' is the vocabulary; remove unit, joint, min_count and max_vocabulary (--set data.unit=unset)", tokenizer);
  where.require(target_tokenizer.empty() || !tokenizer.empty(), "target_tokenizer",
                "is for the target only; give the source's under tokenizer");
  where.require(max_ratio == 0 || max_ratio >= 1, "max_ratio", "expected 0 or at least 1, found {}", max_ratio);
  where.require(!subwords() || (max_vocabulary > 0 && min_count == 1), "max_vocabulary",
                "unit = \"{}\" needs the size of its vocabulary, and has no min_count", unit_name());
  where.require(window > 1 || separator.empty(), "separator", "separates the sentences of a window, but window is 1");
  where.require(window > 1 || stride == 1, "stride",
                "is the step from window to window, but window is 1: expected 1, found {}", stride);
  where.require(stride <= window, "stride", "expected at most window = {}, found {}; sentences between would be lost",
                window, stride);
  where.require(reset == Reset::pairs || window == 1, "window",
                "reset = \"documents\" reads sentence by sentence: expected 1, found {}", window);
  where.require(batch_tokens >= max_length, "batch_tokens", "expected at least max_length = {}, found {}", max_length,
                batch_tokens);
}

const PairPart& PairCorpus::part(Part part) const {
  return part == Part::train ? train : part == Part::valid ? valid : test;
}

std::string PairPart::why_left_out(const PairOptions& options) const {
  std::string text;
  const auto say = [&](const LeftOut& pairs, const std::string& why) {
    if (pairs.count == 0) return;
    const char* more = pairs.count > LeftOut::kNamed ? ", ..." : "";
    text += fmt::format("{}{} {} ({}{})", text.empty() ? "" : ", ", pairs.count, why, fmt::join(pairs.places, ", "),
                        more);
  };
  say(empty, "with an empty side");
  say(too_long, fmt::format("longer than {} tokens", options.max_length));
  say(unequal, fmt::format("with one side over {} times the other", options.max_ratio));
  return text;
}

uint64_t PairPart::fingerprint() const {
  base::Fingerprint hash;
  const auto mix = [&](int64_t value) { hash.mix(static_cast<uint64_t>(value)); };
  for (size_t i = 0; i < samples.size(); ++i) {
    mix(texts[i].document);
    for (const std::vector<int64_t>* side : {&samples[i].source, &samples[i].target}) {
      mix(static_cast<int64_t>(side->size()));
      for (const int64_t token : *side) mix(token);
    }
  }
  return hash.value();
}

namespace {

/// Vocabularies of the data's own.
PairVocabularies make_vocabularies(const PairOptions& options, const std::vector<TextPair>& training) {
  if (!options.target_tokenizer.empty())
    return {std::make_shared<const PairVocabulary>(text::open_tokenizer(options.tokenizer)),
            std::make_shared<const PairVocabulary>(text::open_tokenizer(options.target_tokenizer))};
  if (!options.tokenizer.empty()) {
    const auto own = text::open_tokenizer(options.tokenizer);
    const text::SpecialTokens special = own->special_tokens();
    base::require(special.end >= 0 && special.padding >= 0,
                  "{}: expected a tokenizer with tokens for the end of a text and for padding, found none for {}",
                  options.tokenizer,
                  special.end >= 0       ? "padding (<pad>)"
                  : special.padding >= 0 ? "the end of a text (</s>)"
                                         : "either (</s>, <pad>)");
    const auto both = std::make_shared<const PairVocabulary>(own, special.end, special.padding);
    return {both, both};
  }
  const std::string source = lines_of(training, &TextPair::source, options.separator),
                    target = lines_of(training, &TextPair::target, options.separator);
  if (options.joint) {
    const auto both = make_vocabulary(options, source + target, "both sides");
    return {both, both};
  }
  return {make_vocabulary(options, source, "source"), make_vocabulary(options, target, "target")};
}

void require_pairs(const PairCorpus& corpus, const char* what, const PairOptions& options) {
  base::require(!corpus.train.samples.empty(), "{}: expected at least one pair{}, found none; left out: {}",
                options.train, what, corpus.train.why_left_out(options));
}

}  // namespace

PairCorpus load_pairs(const PairOptions& options, const PairVocabularies& vocabularies) {
  const bool documents = options.has_documents();
  base::require(
      documents || options.window == 1,
      "data.window: requires document_column or a folder of documents; without documents, pairs are independent");
  base::require(documents || options.reset == PairOptions::Reset::pairs,
                "data.reset: \"documents\" requires document_column or a folder of documents");
  const PairSets sets = read_pairs(options);
  require_no_separator(sets, options.separator);
  const std::vector<TextPair>& training = sets.train.pairs;
  require_words(options, training);
  PairCorpus corpus{vocabularies.source ? vocabularies : make_vocabularies(options, training), {}, {}, {}};
  corpus.train = encode_part(sets.train, corpus, options, true);
  corpus.valid = encode_part(sets.valid, corpus, options, false);
  corpus.test = encode_part(sets.test, corpus, options, false);
  require_pairs(corpus, " for training", options);
  return corpus;
}

PairCorpus read_pair_set(PairOptions options, const std::string& path, const PairVocabularies& vocabularies) {
  options.train = path;
  options.train_target = options.valid = options.test = {};
  options.valid_fraction = options.test_fraction = 0;
  PairCorpus corpus{vocabularies, {}, {}, {}};
  const PairSets sets = read_pairs(options);
  require_no_separator(sets, options.separator);
  corpus.train = encode_part(sets.train, corpus, options, false);
  require_pairs(corpus, "", options);
  return corpus;
}

namespace {

using FilesOf = text::Files (text::Tokenizer::*)() const;

text::Files prefixed(const PairVocabulary& vocabulary, FilesOf files_of, const char* prefix) {
  text::Files files;
  for (const auto& [name, content] : (vocabulary.tokenizer().*files_of)()) files[prefix + name] = content;
  return files;
}

text::Files files_of_sides(const PairVocabularies& both, FilesOf files_of, bool one_table) {
  if (both.source->is_published()) return (both.source->tokenizer().*files_of)();
  text::Files files = prefixed(*both.source, files_of, kSourceFiles);
  if (!one_table) files.merge(prefixed(*both.target, files_of, kTargetFiles));
  return files;
}

/// The vocabulary of one side; null where it has no files.
std::shared_ptr<const PairVocabulary> read_side(const text::Files& files, std::string_view prefix,
                                                const std::string& where) {
  text::Files own;
  for (const auto& [name, content] : files) {
    if (name.starts_with(prefix)) own[name.substr(prefix.size())] = content;
  }
  if (own.empty()) return nullptr;
  try {
    return std::make_shared<const PairVocabulary>(text::open_tokenizer_files(own, ""));
  } catch (const base::InputError& error) {
    base::input_error("{}/{}{}", where, prefix, error.what());  // the file's name, as it is in the folder
  }
}

}  // namespace

text::Files vocabulary_files(const PairVocabularies& vocabularies, bool one_table) {
  return files_of_sides(vocabularies, &text::Tokenizer::save, one_table);
}

text::Files defining_files(const PairVocabularies& vocabularies) {
  return files_of_sides(vocabularies, &text::Tokenizer::defining_files, vocabularies.target == vocabularies.source);
}

PairVocabularies read_vocabularies(const text::Files& files, const std::string& where) {
  PairVocabularies both{read_side(files, kSourceFiles, where), read_side(files, kTargetFiles, where)};
  base::require(both.source != nullptr, "{}: expected vocabulary files {}*, found none", where, kSourceFiles);
  if (!both.target) both.target = both.source;
  return both;
}

}  // namespace mnemo::data
