#include "infer/translator.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/random.h"
#include "base/unicode.h"
#include "base/utf8.h"
#include "bundle/generation_file.h"
#include "bundle/model_folder.h"
#include "distributed/shared_batches.h"
#include "infer/engine_search.h"
#include "models/pair_model.h"
#include "search/side_by_side.h"
#include "text/open_tokenizer.h"

namespace mnemo::infer {

namespace {

data::PairVocabularies read_vocabularies_of(const bundle::Bundle& stored) {
  const bool published = stored.format != nullptr || text::has_tokenizer(stored.folder);
  if (!published) {
    data::PairVocabularies both = data::read_vocabularies(bundle::files_beside(stored.folder), stored.folder);
    base::require(
        both.target != both.source || stored.options().embedding.shared == models::EmbeddingOptions::Shared::all,
        "{0}: expected vocabulary files {1}*, found none; of a model of an earlier version whose sides have one "
        "vocabulary, copy {2}* to {1}*",
        stored.folder, data::kTargetFiles, data::kSourceFiles);
    return both;
  }
  const models::SpecialTokens& special = stored.options().tokens;
  const auto both = std::make_shared<const data::PairVocabulary>(text::open_tokenizer(stored.folder), special.eos,
                                                                 special.pad);
  return {both, both};
}

/// Tokens that would go on with the last word of a prefix: their text begins with a letter that has upper and lower
/// case, a mark or a digit, without a blank before it. (Letters without case may belong to a script without blanks.)
/// Tokens without a text hide the text after them.
std::vector<int64_t> tokens_not_after_prefix(const data::PairVocabulary& vocabulary) {
  std::vector<int64_t> tokens;
  if (!vocabulary.is_published()) tokens.push_back(data::PairVocabulary::kBos);
  for (int64_t id = 0; id < vocabulary.tokenizer().size(); ++id) {
    std::string text = "x";
    vocabulary.tokenizer().append(text, id);
    const std::string_view added = std::string_view(text).substr(1);
    const base::Utf8Character first = added.empty() ? base::Utf8Character{} : base::front_character(added);
    const std::string_view category = first.length > 0 ? base::category(first.code_point) : "";
    const bool has_case = category == "Lu" || category == "Ll" || category == "Lt";
    const bool goes_on = added.empty() || has_case || category.starts_with('M') || category.starts_with('N');
    if (goes_on && vocabulary.of_tokenizer(id) != vocabulary.eos()) tokens.push_back(vocabulary.of_tokenizer(id));
  }
  return tokens;
}

}  // namespace

data::PairVocabularies vocabularies_of(const bundle::Bundle& stored) {
  const core::PairInput& input = stored.pairs()->vocabularies();
  data::PairVocabularies both = read_vocabularies_of(stored);
  const auto require_size = [&](const data::PairVocabulary& vocabulary, int64_t size, const char* side) {
    // Published models have rows that no token has.
    const bool fits = vocabulary.is_published() ? vocabulary.size() <= size : vocabulary.size() == size;
    base::require(fits, "{}: expected a {} vocabulary of {}{} tokens, the model's, found {}", stored.folder, side,
                  vocabulary.is_published() ? "at most " : "", size, vocabulary.size());
  };
  require_size(*both.source, input.source_vocab_size, "source");
  require_size(*both.target, input.target_vocab_size, "target");
  return both;
}

Translator::Translator(const bundle::Bundle& stored, std::optional<ops::Precision> precision) : model_(stored.pairs()) {
  vocabularies_ = vocabularies_of(stored);
  settings_ = generation_settings(stored);
  if (!settings_) not_after_prefix_ = tokens_not_after_prefix(*vocabularies_.target);
  if (precision || unsupported_reason(*model_).empty())
    engine_ = std::make_shared<const Engine>(model_, EngineOptions{precision.value_or(ops::Precision::float32)});
}

std::unique_ptr<search::StepDecoder> Translator::search_decoder() const {
  if (engine_) return std::make_unique<EngineSearch>(engine_);
  return search::make_model_decoder(*model_);
}

std::vector<int64_t> Translator::encode(const std::string& line, const std::string& place, int64_t max_source) const {
  std::vector<int64_t> source = vocabularies_.source->encode(line, place);
  max_source = std::min(max_source, model_->vocabularies().max_source.value_or(max_source));
  if (static_cast<int64_t>(source.size()) > max_source) {
    base::log_warning("{}: {} tokens, cut to {}", place, source.size(), max_source);
    source.resize(static_cast<size_t>(max_source) - 1);
    source.push_back(vocabularies_.source->eos());
  }
  return source;
}

/// of_words: whether the line that it belongs to has words.
std::vector<int64_t> Translator::encode_prefix(const std::string& prefix, const std::string& place,
                                               bool of_words) const {
  const data::PairVocabulary& vocabulary = *vocabularies_.target;
  std::vector<int64_t> tokens = vocabulary.encode(prefix, place);
  tokens.pop_back();  // the end
  base::require(tokens.empty() || of_words, "{}: the line to translate is empty: expected no prefix, found '{}'", place,
                base::printable(prefix, 80));
  const auto unknown = std::count_if(tokens.begin(), tokens.end(),
                                     [&](int64_t token) { return vocabulary.is_unknown(token); });
  base::require(unknown == 0, "{}: expected a prefix of words that the model can write, found '{}' with {} unknown {}",
                place, base::printable(prefix, 80), unknown, text::unit_of(vocabulary.tokenizer()));
  const std::optional<int64_t> places = model_->vocabularies().max_target;
  base::require(!places || static_cast<int64_t>(tokens.size()) < *places,
                "{}: expected a prefix of fewer than {} tokens, the model's positions, found {}", place,
                places.value_or(0), tokens.size());
  return tokens;
}

void Translator::require_fitting(const TranslateOptions& options) const {
  const int64_t words = model_->vocabularies().target_vocab_size;
  base::require(options.prefixes.empty() || !settings_,
                "{}: the search of a published model ({}) does not support prefixes; expected none",
                options.prefixes_name, bundle::kGenerationConfig);
  base::require(
      !options.sampling || !options.sampling->penalises(),
      "sampling: drawn translations have no penalties; expected repetition_penalty 1, frequency_penalty 0 and "
      "presence_penalty 0");
  if (options.sampling) return;
  if (options.generation) {
    search::require_fitting(*options.generation, words);
  } else {
    search::require_fitting(options.search, words);
  }
}

Translator::Found Translator::find(const core::Segment& pairs, std::span<const int64_t> chosen,
                                   const TranslateOptions& options, const ReadLines& lines,
                                   const core::State& read) const {
  const at::Device device = core::device_of(*model_);
  base::stop_if_asked(options.should_stop, "translation");
  const std::unique_ptr<search::StepDecoder> decoder = search::stoppable(search_decoder(), options.should_stop);
  const at::Tensor source = pairs.source.to(device), valid = pairs.source_valid.to(device);
  const models::SpecialTokens& special = model_->options().tokens;
  if (!options.sampling && options.generation)
    return search::generation_search(*decoder, special.first(), special.eos, source, valid, *options.generation);
  std::vector<std::vector<int64_t>> prefixes;
  if (!lines.prefixes.empty()) {
    for (const int64_t line : chosen) prefixes.push_back(lines.prefixes[static_cast<size_t>(line)]);
  }
  search::BeamSearchOptions limits = options.search;
  if (!prefixes.empty()) limits.not_after_prefix = not_after_prefix_;
  if (!options.sampling) {
    limits.wanted = std::min(options.nbest, limits.beam_size);
    return search::beam_search(*decoder, special, source, valid, limits, prefixes, read);
  }
  limits.beam_size = options.nbest;
  const int64_t own_unknown = vocabularies_.target->tokenizer().unknown_id();
  // A published vocabulary without an unknown token has a word at special.unk.
  const int64_t unknown = vocabularies_.target->is_published() && own_unknown < 0 ? -1 : special.unk;
  const Sampler sampler(*options.sampling, unknown);
  const auto pick = [&](const at::Tensor& row, int64_t sentence, int64_t sample, int64_t length) {
    const auto line = static_cast<uint64_t>(lines.first_line + chosen[static_cast<size_t>(sentence)]);
    if (own_unknown >= 0) row[vocabularies_.target->of_tokenizer(own_unknown)].fill_(-INFINITY);
    if (!options.sampling->sample_unknown && unknown >= 0) row[unknown].fill_(-INFINITY);
    if (settings_) {
      for (const int64_t token : settings_->suppressed) row[token].fill_(-INFINITY);
    }
    if (!(row.max() > -INFINITY).item<bool>()) return int64_t{-1};
    return sampler.pick(row, base::Random{line, static_cast<uint64_t>(sample), static_cast<uint64_t>(length)}.next());
  };
  return search::sample_search(*decoder, special, source, valid, limits, pick, prefixes, read);
}

std::vector<std::vector<TranslatedText>> Translator::texts(const Found& found, std::span<const int64_t> chosen,
                                                           std::span<const data::PairSample> samples,
                                                           std::span<const std::string> lines,
                                                           const TranslateOptions& options,
                                                           const core::State& before) const {
  const data::PairVocabulary& vocabulary = *vocabularies_.target;
  const models::SpecialTokens& special = model_->options().tokens;
  std::vector<std::vector<TranslatedText>> all;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto line = static_cast<size_t>(chosen[i]);
    const size_t count = std::min(found[i].size(), static_cast<size_t>(options.nbest));
    std::vector<TranslatedText>& texts = all.emplace_back();
    at::Tensor weights;
    TokenWords source;
    if (options.align || options.replace_unknown) {
      std::vector<data::PairSample> read;
      std::vector<int64_t> rows;
      for (size_t k = 0; k < count; ++k) {
        rows.push_back(static_cast<int64_t>(k));
        read.push_back({samples[line].source, found[i][k].tokens});
      }
      const at::Tensor own = at::full({static_cast<int64_t>(count)}, static_cast<int64_t>(i),
                                      at::TensorOptions(at::kLong).device(device_of(*model_)));
      weights = source_weights(*model_, data::make_pair_batch(read, rows, {special.first(), special.pad}).input,
                               before.empty() ? before : core::select_batch(before, own));
      source = source_words(*vocabularies_.source, lines[line], static_cast<int64_t>(samples[line].source.size()) - 1);
    }
    for (size_t k = 0; k < count; ++k) {
      const search::Hypothesis& hypothesis = found[i][k];
      const auto size = static_cast<int64_t>(hypothesis.tokens.size());
      TranslatedText text{{}, hypothesis.sum, hypothesis.score, size};
      std::vector<int64_t> reads;
      if (weights.defined()) {
        reads = most_read(weights[static_cast<int64_t>(k)], static_cast<int64_t>(source.word_of.size()), size);
      }
      const auto unknown = [&](size_t place) {
        const int64_t token = options.replace_unknown ? reads[place] : -1;
        const int64_t word = token < 0 ? -1 : source.word_of[static_cast<size_t>(token)];
        return word < 0 ? options.unknown : source.words[static_cast<size_t>(word)];
      };
      text.text = vocabulary.decode(hypothesis.tokens, unknown);
      if (options.align) {
        std::span<const int64_t> words = hypothesis.tokens;
        if (!words.empty() && words.back() == vocabulary.eos()) words = words.first(words.size() - 1);
        text.alignment = link_words(source.word_of, target_words(vocabulary, words, unknown), reads);
      }
      texts.push_back(std::move(text));
    }
  }
  return all;
}

Translator::ReadLines Translator::read(std::span<const std::string> lines, const TranslateOptions& options,
                                       std::string_view where, int64_t first_line) const {
  require_fitting(options);
  base::require(options.prefixes.empty() || options.prefixes.size() == lines.size(),
                "{}: expected {} prefixes, one for each line, found {}", options.prefixes_name, lines.size(),
                options.prefixes.size());
  ReadLines all;
  all.first_line = first_line;
  for (size_t i = 0; i < lines.size(); ++i) {
    const int64_t line = first_line + static_cast<int64_t>(i);
    all.samples.push_back(
        {encode(lines[i], fmt::format("{}:{}", where, line), options.max_source), {vocabularies_.target->eos()}});
    const std::vector<int64_t>& ids = all.samples.back().source;
    all.counts.tokens += static_cast<int64_t>(ids.size()) - 1;
    all.counts.unknown += std::count_if(ids.begin(), ids.end(),
                                        [&](int64_t id) { return vocabularies_.source->is_unknown(id); });
    if (options.prefixes.empty()) continue;
    all.prefixes.push_back(
        encode_prefix(options.prefixes[i], fmt::format("{}:{}", options.prefixes_name, line), ids.size() > 1));
  }
  return all;
}

void Translator::report_unknown(const SourceCounts& counts, std::string_view where) const {
  text::report_unknown(vocabularies_.source->tokenizer(), std::string(where), counts.unknown, counts.tokens,
                       text::Unknown::warn);
}

/// Hands results over in the order of their lines.
class Translator::InOrder {
 public:
  /// A line without words has one empty text.
  InOrder(std::span<const data::PairSample> samples, const OnLine& on_line)
      : on_line_(on_line), results_(samples.size()) {
    for (size_t i = 0; i < samples.size(); ++i) {
      if (!has_words(samples[i])) results_[i] = {TranslatedText{}};
    }
    hand_over();
  }
  static bool has_words(const data::PairSample& sample) { return sample.source.size() > 1; }
  void put(std::span<const int64_t> chosen, std::vector<std::vector<TranslatedText>> texts) {
    for (size_t i = 0; i < chosen.size(); ++i) results_[static_cast<size_t>(chosen[i])] = std::move(texts[i]);
    hand_over();
  }

 private:
  void hand_over() {
    for (; done_ < results_.size() && results_[done_]; ++done_) {
      on_line_(done_, *results_[done_]);
      results_[done_]->clear();
    }
  }

  const OnLine& on_line_;
  std::vector<std::optional<std::vector<TranslatedText>>> results_;
  size_t done_ = 0;
};

SourceCounts Translator::translate(std::span<const std::string> lines, const TranslateOptions& options,
                                   const OnLine& on_line, std::string_view where, int64_t first_line) const {
  const ReadLines own = read(lines, options, where, first_line);
  const std::vector<data::PairSample>& samples = own.samples;
  std::vector<int64_t> order;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (InOrder::has_words(samples[i])) order.push_back(static_cast<int64_t>(i));
  }
  const models::SpecialTokens& special = model_->options().tokens;
  InOrder results(samples, on_line);
  const std::vector<std::vector<int64_t>> batches = data::bucket_pairs(
      samples, std::move(order), options.batch_size * options.max_source, options.batch_size);
  const auto work = [&](int64_t batch) {
    const std::vector<int64_t>& chosen = batches[static_cast<size_t>(batch)];
    const Found found = find(data::make_pair_batch(samples, chosen, {special.first(), special.pad}).input, chosen,
                             options, own);
    return pack_translations(texts(found, chosen, samples, lines, options));
  };
  distributed::share_batches(options.ranks.get(), static_cast<int64_t>(batches.size()), work,
                             [&](int64_t batch, const distributed::Texts& packed) {
                               results.put(batches[static_cast<size_t>(batch)], unpack_translations(packed));
                             });
  return own.counts;
}

SourceCounts Translator::translate_documents(std::span<const std::string> lines, const TranslateOptions& options,
                                             core::State& open, const OnLine& on_line, std::string_view where,
                                             int64_t first_line) const {
  base::require(model_->source().carries_memory(),
                "translation by documents: this model has no memory that goes from sentence to sentence; give its "
                "encoder one (model.backbone.encoder.memory) and train it with data.reset = \"documents\"");
  base::require(options.ranks == nullptr || options.ranks->size() == 1,
                "translation by documents: memory is carried from line to line, so it needs one process; found {}",
                options.ranks ? options.ranks->size() : 1);
  base::require(options.sampling || !options.generation,
                "translation by documents: not with the search of a published model; expected a model of this program");
  const ReadLines own = read(lines, options, where, first_line);
  const std::vector<data::PairSample>& samples = own.samples;
  std::vector<std::vector<int64_t>> documents(1);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (InOrder::has_words(samples[i])) {
      documents.back().push_back(static_cast<int64_t>(i));
    } else {
      documents.emplace_back();
    }
  }
  const at::Device device = core::device_of(*model_);
  const models::SpecialTokens& special = model_->options().tokens;
  InOrder results(samples, on_line);
  const c10::InferenceMode inference;
  open = search::side_by_side(
      *model_, documents, options.batch_size,
      [&](const std::vector<int64_t>& chosen, const core::State& before) {
        const core::Segment pairs = data::make_pair_batch(samples, chosen, {special.first(), special.pad}).input;
        core::State read = engine_ ? engine_->read_source(pairs.source, pairs.source_valid, before)
                                   : model_->read_source(pairs.source.to(device), pairs.source_valid.to(device),
                                                         core::Mode::evaluate, before);
        results.put(chosen, texts(find(pairs, chosen, options, own, read), chosen, samples, lines, options, before));
        return read;
      },
      open);
  return own.counts;
}

std::vector<std::vector<TranslatedText>> Translator::operator()(std::span<const std::string> lines,
                                                                const TranslateOptions& options, std::string_view where,
                                                                int64_t first_line) const {
  std::vector<std::vector<TranslatedText>> all;
  const SourceCounts counts = translate(
      lines, options, [&](size_t, const std::vector<TranslatedText>& texts) { all.push_back(texts); }, where,
      first_line);
  report_unknown(counts, where);
  return all;
}

}  // namespace mnemo::infer
