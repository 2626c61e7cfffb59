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
#include "data/pairs/pair_options.h"
#include "infer/engine.h"
#include "search/beam_search.h"

namespace mnemo::infer {

struct TranslateOptions {
  search::BeamSearchOptions search;
  int64_t batch_size = 32;        ///< sentences of a batch
  int64_t max_source = 1024;      ///< a longer source is cut, with a warning
  std::string unknown = "<unk>";  ///< what stands for words that the vocabulary lacks
};

/// A hypothesis as text.
struct TranslatedText {
  std::string text;
  double sum = 0.0;    ///< of log probabilities (natural logarithm), end included
  double score = 0.0;  ///< sum / n^length_penalty
  int64_t tokens = 0;  ///< n, end included
};

/// Translates lines with a translation model. Sentences of similar length share a batch; the result of a sentence does
/// not depend on it.
class Translator {
 public:
  /// precision: of the weights of the decoding engine; unset: float32 if the engine supports the model, else the model
  /// itself decodes. Throws InputError for a model of another kind, a folder without vocabularies, and a precision for
  /// a model that the engine does not support.
  explicit Translator(const bundle::Bundle& stored, std::optional<ops::Precision> precision = {});

  /// The hypotheses of each line, best first, beam_size of them; one empty text for a line without words. Throws
  /// InputError that names `where` and the line, counted from `first_line`, for invalid UTF-8.
  std::vector<std::vector<TranslatedText>> operator()(std::span<const std::string> lines,
                                                      const TranslateOptions& options = {},
                                                      std::string_view where = "source", int64_t first_line = 1) const;

 private:
  std::unique_ptr<search::StepDecoder> search_decoder() const;

  std::shared_ptr<models::Model> model_;
  std::shared_ptr<const Engine> engine_;  ///< null: the model decodes
  data::PairVocabularies vocabularies_;
};

}  // namespace mnemo::infer
