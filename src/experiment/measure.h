#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/stop.h"
#include "bundle/bundle.h"
#include "distributed/group.h"

namespace mnemo::experiment {

/// Options of measure(). Messages name an option as the command line does: --segment-size.
struct MeasureOptions {
  std::optional<std::string> data =
      {};  ///< a text, pairs, labelled texts, or of a model of images the folder of a set; unset: the run's own
  std::optional<std::string> part = {};  ///< "valid", "test" or "train" of the run's own data or of a set of images
  std::optional<std::string> documents = {};  ///< of a text: "none", "blank_line", "heading" or "line"
  std::optional<std::string> separator = {};  ///< the line that ends a document, for documents = "line"
  std::optional<std::string> reset = {};      ///< "documents" or "segments"; unset: as the model was trained
  std::optional<std::string> precision =
      {};  ///< by the decoding engine: "float32", "bf16", "int8", "w8a8", "int4" or "int4_offset"
  std::optional<std::string> kv_precision = {};  ///< likewise: "auto" or "int8" (infer::GenerateOptions)
  std::optional<std::string> task = {};          ///< of a model of images: the head that is measured
  std::optional<int64_t> segment_size = {};      ///< tokens a segment; unset: the model's
  std::optional<int64_t> context = {};           ///< tokens in front of the scored ones; unset: as the run evaluated
  /// What stands in the place of the model's memory at the start of each segment: "zeros" or "noise"
  /// (models::replaced_memory); unset: the memory itself.
  std::optional<std::string> memory = {};
  std::optional<int64_t> translated = {};  ///< of a model of pairs: how many are translated; unset: as the recipe says
  bool strict = false;                     ///< refuse a text that is not all in the vocabulary
  int64_t batch = 1;                       ///< parts of a text, or samples, side by side
  base::ShouldStop should_stop = {};       ///< asked before every batch or segment; a rank that stops ends the others
  /// Ranks that share the measurement, with the same options; null: one process.
  std::shared_ptr<distributed::Group> group = {};

  /// Whether the decoding engine runs the model.
  bool by_engine() const { return precision || kv_precision; }
  /// Throws InputError for a value out of range, and for options that exclude each other.
  void validate() const;
};

/// Result of measure().
struct Measured {
  std::string what;         ///< the data, in a few words
  int64_t predictions = 0;  ///< targets that were predicted
  std::vector<std::pair<std::string, double>> metrics;
  int64_t unknown = 0;                                         ///< in a text: unknown tokens
  std::vector<std::pair<std::string, base::Node>> notes = {};  ///< tasks::Evaluation::notes
};

/// Measures a model on held-out data, with its memory carried along and reset as it was trained. Throws InputError for
/// data that do not fit the model, NotFinite for a result that is not finite, and base::Stopped.
Measured measure(const bundle::Bundle& stored, const MeasureOptions& options = {});

}  // namespace mnemo::experiment
