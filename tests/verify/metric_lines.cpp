#include "base/printable.h"
#include "metrics/agreement.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"
#include "tests/verify/line_file.h"

namespace mnemo::verify {
namespace {

constexpr double kScoreTolerance = 1e-9;

std::string quoted(const std::string& text) { return base::in_quotes(base::printable(text, 200)); }

template <size_t n>
std::vector<int64_t> list_of(const std::array<int64_t, n>& values) {
  return {values.begin(), values.end()};
}

void compare_signature(LineObject& object, const std::string& path, const std::string& found,
                       LineComparison& comparison) {
  const std::string expected = object.text("signature");
  comparison.equal(
      "signature", path + "signature", expected == found, [&] { return quoted(expected); },
      [&] { return quoted(found); });
}

/// One entry of "results": the options, and the corpus's BLEU with them.
void compare_result(LineObject& result, const std::string& path, const std::vector<std::string>& hypotheses,
                    const std::vector<std::vector<std::string>>& references, LineComparison& comparison) {
  metrics::BleuOptions options{.lowercase = result.boolean("lowercase"),
                               .smooth_value = result.optional_number("smooth_value")};
  try {
    options.tokenizer = metrics::bleu_tokenizer(result.text("tokenize"));
    options.smoothing = metrics::bleu_smoothing(result.text("smooth"));
  } catch (const base::InputError& error) {
    base::input_error("{}: {}", result.where(), error.what());
  }
  const metrics::BleuScore found = metrics::corpus_bleu(hypotheses, references, options);
  const auto near = [&](const char* field, double value) {
    comparison.near(field, path + field, result.number(field), value, kScoreTolerance);
  };
  const auto equal = [&](const char* field, const std::vector<int64_t>& value) {
    const std::vector<int64_t> expected = result.at(field).is_array() ? result.integers(field)
                                                                      : std::vector{result.integer(field)};
    comparison.equal(
        field, path + field, expected == value, [&] { return list_text(expected, value); },
        [&] { return list_text(value, expected); });
  };
  near("score", found.score);
  near("bp", found.brevity_penalty);
  const std::vector<double> precisions = result.numbers("precisions");
  base::require(precisions.size() == metrics::kBleuOrder, "{}: precisions: expected {} numbers, found {}",
                result.where(), metrics::kBleuOrder, precisions.size());
  for (size_t n = 0; n < metrics::kBleuOrder; ++n)
    comparison.near("precisions", fmt::format("{}precisions[{}]", path, n), precisions[n], found.precisions[n],
                    kScoreTolerance);
  equal("counts", list_of(found.counts.matches));
  equal("totals", list_of(found.counts.totals));
  equal("sys_len", {found.counts.length});
  equal("ref_len", {found.counts.reference_length});
  compare_signature(result, path, metrics::bleu_signature(options, references.size()), comparison);
}

struct LineCorpus {
  std::vector<std::string> hypotheses = {};
  std::vector<std::vector<std::string>> references = {};
};

LineCorpus corpus_of(LineObject& line, const char* metric) {
  LineCorpus out{.hypotheses = line.texts("hypotheses")};
  for (const base::Node& set : line.at("references").items()) {
    std::vector<std::string>& lines = out.references.emplace_back();
    for (const base::Node& text : set.items()) lines.push_back(text.as_string());
  }
  try {
    metrics::require_reference_sets(metric, out.hypotheses.size(), out.references);
  } catch (const base::InputError& error) {
    base::input_error("{}: {}", line.where(), error.what());
  }
  return out;
}

/// A score of each sentence: one list of the line, as long as the hypotheses.
template <class Score>
void compare_sentences(LineObject& line, const char* field, size_t count, Score&& score, LineComparison& comparison) {
  const std::vector<double> scores = line.numbers(field);
  base::require(scores.size() == count, "{}: {}: expected {} numbers, one for each hypothesis, found {}", line.where(),
                field, count, scores.size());
  for (size_t i = 0; i < count; ++i)
    comparison.near(field, fmt::format("{}[{}]", field, i), scores[i], score(i), kScoreTolerance);
}

}  // namespace

void compare_bleu(LineObject& line, LineComparison& comparison) {
  line.text("case");
  const auto [hypotheses, references] = corpus_of(line, "BLEU");
  const base::Node::Array& results = line.at("results").items();
  for (size_t i = 0; i < results.size(); ++i) {
    LineObject result(results[i], fmt::format("{}: results[{}]", line.where(), i));
    compare_result(result, fmt::format("results[{}].", i), hypotheses, references, comparison);
    result.require_all_read();
  }
  const metrics::BleuOptions sentence{.effective_order = true};
  const std::vector<metrics::BleuCounts> counts = metrics::bleu_counts_of(hypotheses, references, sentence);
  compare_sentences(
      line, "sentence_scores", counts.size(), [&](size_t i) { return metrics::bleu_of(counts[i], sentence).score; },
      comparison);
}

void compare_chrf(LineObject& line, LineComparison& comparison) {
  line.text("case");
  const auto [hypotheses, references] = corpus_of(line, "chrF");
  const metrics::ChrfOptions options{.char_order = line.integer("char_order"),
                                     .word_order = line.integer("word_order"),
                                     .beta = line.number("beta"),
                                     .lowercase = line.boolean("lowercase"),
                                     .whitespace = line.boolean("whitespace")};
  comparison.near("chrf", "chrf", line.number("chrf"), metrics::corpus_chrf(hypotheses, references, options),
                  kScoreTolerance);
  const auto sentence = [&, &hypotheses = hypotheses, &references = references](size_t i) {
    std::vector<std::string_view> own;
    for (const auto& set : references) own.push_back(set[i]);
    return metrics::chrf_of(metrics::chrf_counts(hypotheses[i], own, options), options);
  };
  compare_sentences(line, "sentence_chrf", hypotheses.size(), sentence, comparison);
  compare_signature(line, "", metrics::chrf_signature(options, references.size()), comparison);
}

void compare_metrics(LineObject& line, LineComparison& comparison) {
  line.text("case");
  const std::string kind = line.text("kind");
  const auto near = [&](const char* field, std::optional<double> value) {
    comparison.near(field, field, line.optional_number(field), value, kScoreTolerance);
  };
  try {
    if (kind == "classification") {
      const metrics::ClassScores found = metrics::class_scores(line.integers("predictions"), line.integers("labels"));
      near("accuracy", found.accuracy);
      near("f1", found.f1);
      near("macro_f1", found.macro_f1);
      near("matthews", found.matthews);
      return;
    }
    base::require(kind == "regression", "kind: expected \"classification\" or \"regression\", found {}", quoted(kind));
    const std::vector<double> predictions = line.numbers("predictions"), labels = line.numbers("labels");
    near("pearson", metrics::pearson(predictions, labels));
    near("spearman", metrics::spearman(predictions, labels));
  } catch (const base::InputError& error) {
    const std::string text = error.what();
    if (text.starts_with(line.where())) throw;
    base::input_error("{}: {}", line.where(), text);
  }
}

}  // namespace mnemo::verify
