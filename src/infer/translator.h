#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/bundle.h"
#include "data/pairs/pair_batches.h"
#include "data/pairs/pair_options.h"
#include "distributed/group.h"
#include "infer/engine.h"
#include "infer/generation_settings.h"
#include "infer/sampling.h"
#include "infer/translated_text.h"
#include "search/beam_search.h"
#include "search/generation_search.h"

namespace mnemo::infer {

struct TranslateOptions {
  search::BeamSearchOptions search;
  /// Search as transformers defines it, in place of `search`; Translator::settings() has those of a published model.
  std::optional<search::GenerationOptions> generation = {};
  int64_t nbest = 1;                        ///< hypotheses of a line; of a beam search at most beam_size
  std::optional<GenerateOptions> sampling;  ///< set: hypotheses are drawn, nbest of them, instead of searched
  int64_t batch_size = 32;                  ///< sentences of a batch
  int64_t max_source = 1024;  ///< a source longer than this, or than the model has places for, is cut, with a warning
  std::string unknown = "<unk>";  ///< text for words outside the vocabulary
  /// Replace an unknown word by the source's word that the decoder attends to most (Luong et al. 2015).
  bool replace_unknown = false;
  bool align = false;  ///< whether hypotheses have an alignment
  /// The text that the translation of each line begins with; empty: no constraint. No texts: none for any line.
  std::vector<std::string> prefixes = {};
  std::string prefixes_name = "prefix";  ///< name of these texts in messages
  /// Ranks that share the batches of translate(): all of them call it together and get all lines. Null: one process.
  std::shared_ptr<distributed::Group> ranks = {};
};

/// Tokens of lines that were read, without ends, and how many of them the vocabulary lacks.
struct SourceCounts {
  int64_t tokens = 0, unknown = 0;
};

/// The vocabularies of a translation model: its own, or the tokenizer of a published one. Throws InputError for a model
/// of another kind, a folder without them, and vocabularies of another size than the model's; those of published models
/// may be smaller.
data::PairVocabularies vocabularies_of(const bundle::Bundle& stored);

/// Translates lines with a translation model. Sentences of similar length share a batch; the result of a sentence does
/// not depend on it.
class Translator {
 public:
  /// precision: of the weights of the decoding engine; unset: float32 if the engine supports the model, else the model
  /// itself decodes. Throws InputError for a model of another kind, a folder without vocabularies, and a precision for
  /// a model that the engine does not support.
  explicit Translator(const bundle::Bundle& stored, std::optional<ops::Precision> precision = {});

  /// The search that the model was published with; unset: beam search as fairseq defines it.
  const std::optional<search::GenerationOptions>& settings() const { return settings_; }

  /// Throws InputError for a search that the model cannot run, with prefixes for that of a published model.
  void require_fitting(const TranslateOptions& options) const;
  /// Warns if the vocabulary lacks any of these tokens; `where` names their source.
  void report_unknown(const SourceCounts& counts, std::string_view where) const;

  /// Receives the hypotheses of lines[i], best first; one empty text for a line without words.
  using OnLine = std::function<void(size_t i, const std::vector<TranslatedText>& texts)>;

  /// Calls on_line for each line, in their order, as soon as it and those before it are done. Samples depend on the
  /// seed and the line's number, counted from `first_line`. Throws InputError that names `where` and the line for
  /// invalid UTF-8, and InputError as require_fitting(). Also throws InputError for an alignment by a cross-attention
  /// that cannot be inspected, and for wrong prefixes: not one per line, not UTF-8, with words outside the vocabulary,
  /// too long for the model, or of an empty line.
  SourceCounts translate(std::span<const std::string> lines, const TranslateOptions& options, const OnLine& on_line,
                         std::string_view where = "source", int64_t first_line = 1) const;
  /// Translates documents, each followed by an empty line: memory goes from line to line of a document. `open`: the
  /// memory of a document that continues with the first line; on return that of the last one, if no empty line ends it.
  /// Throws InputError for a model without such a memory.
  SourceCounts translate_documents(std::span<const std::string> lines, const TranslateOptions& options,
                                   core::State& open, const OnLine& on_line, std::string_view where = "source",
                                   int64_t first_line = 1) const;
  /// The hypotheses of each line; warns of unknown tokens.
  std::vector<std::vector<TranslatedText>> operator()(std::span<const std::string> lines,
                                                      const TranslateOptions& options = {},
                                                      std::string_view where = "source", int64_t first_line = 1) const;

 private:
  using Found = std::vector<std::vector<search::Hypothesis>>;
  class InOrder;
  std::unique_ptr<search::StepDecoder> search_decoder() const;
  /// Lines as tokens.
  struct ReadLines {
    std::vector<data::PairSample> samples;
    std::vector<std::vector<int64_t>> prefixes;  ///< none, or one for each line
    SourceCounts counts;
    int64_t first_line = 1;
  };
  ReadLines read(std::span<const std::string> lines, const TranslateOptions& options, std::string_view where,
                 int64_t first_line) const;
  std::vector<int64_t> encode(const std::string& line, const std::string& place, int64_t max_source) const;
  std::vector<int64_t> encode_prefix(const std::string& prefix, const std::string& place, bool of_words) const;
  /// The hypotheses of the lines `chosen`.
  Found find(const data::TokenSegment& batch, std::span<const int64_t> chosen, const TranslateOptions& options,
             const ReadLines& lines, const core::State& read = {}) const;
  /// Their texts, and what they read of the lines. before: the state before the lines; empty: documents begin there.
  std::vector<std::vector<TranslatedText>> texts(const Found& found, std::span<const int64_t> chosen,
                                                 std::span<const data::PairSample> samples,
                                                 std::span<const std::string> lines, const TranslateOptions& options,
                                                 const core::State& before = {}) const;

  std::shared_ptr<models::Model> model_;
  std::shared_ptr<const Engine> engine_;  ///< null: the model decodes
  data::PairVocabularies vocabularies_;
  std::optional<search::GenerationOptions> settings_;
  std::vector<int64_t> not_after_prefix_;  ///< tokens that go on with its last word
};

}  // namespace mnemo::infer
