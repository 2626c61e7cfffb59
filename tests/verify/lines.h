#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mnemo::verify {

/// How one field of a JSON-lines file compares with this build.
struct FieldReport {
  std::string name;        ///< "score", "ids", ...
  int64_t compared = 0;    ///< values; a list that must be equal as a whole is one
  int64_t wrong = 0;       ///< of these, beyond the tolerance
  int64_t skipped = 0;     ///< values that are no result of this build
  double error = 0.0;      ///< the largest; infinity for a value of another kind
  double tolerance = 0.0;  ///< 0: equal
  std::string first = {};  ///< the first wrong one: "line 3: results[1].score: expected 12.5, found 12.25"
};

struct LinesReport {
  std::string file, what;  ///< what: "BLEU", "chrF", "metrics", "tokenizer"
  int64_t lines = 0;
  std::vector<FieldReport> fields;
  bool passed() const;
};

/// Whether the name is that of a JSON-lines file: it ends in ".jsonl".
bool is_lines_file(const std::string& path);

/// Compares a JSON-lines file of expected results, a JSON object a line, with what this build computes. The fields of
/// the first line say what the file is about:
///   hypotheses, references, results, sentence_scores    BLEU with its options, counts and signature, 1e-9
///   hypotheses, references, chrf, sentence_chrf         chrF with its options and signature, 1e-9
///   kind, predictions, labels                           accuracy, F1, Matthews, or Pearson and Spearman, 1e-9
///   text, ids                                           a tokenizer, exactly; also decoded, input_ids with the special
///                                                       tokens around the text, roberta_ids and comma_ids of the same
///                                                       folder; tokenizers_ids are those of another library
/// `tokenizer`: the folder of a tokenizer (see text::open_tokenizer), for such a file alone.
/// Throws InputError with line and field for a file of another kind, an unknown or missing field, or broken JSON.
LinesReport verify_lines(const std::string& path, const std::optional<std::string>& tokenizer = {});

}  // namespace mnemo::verify
