#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/output.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "data/text/lines.h"
#include "metrics/bleu.h"
#include "metrics/bootstrap.h"
#include "metrics/chrf.h"
#include "text/utf8_error.h"

namespace mnemo::cli {
namespace {

constexpr int64_t kLongestScoredLine = int64_t{1} << 20;

struct ScoreArguments {
  std::string hypotheses;
  std::vector<std::string> references;
  std::optional<std::string> against;
  std::optional<int64_t> samples, seed;
  bool json = false;
};

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  data::for_each_line(text::TextSource(path).without_byte_order_mark(), kLongestScoredLine,
                      [&](const data::LinePlace& place, std::string_view line) {
                        text::require_utf8(fmt::format("{}:{}", place.file, place.line), line);
                        lines.emplace_back(line);
                      });
  return lines;
}

/// A metric whose counts of sentences add up to those of their corpus.
struct Metric {
  std::string name, signature;
  /// The score of each set of sentences of these hypotheses.
  std::function<metrics::SampleScore(const std::vector<std::string>& hypotheses)> scorer;
};

using References = std::vector<std::vector<std::string>>;

Metric bleu(const References& references) {
  return {"BLEU", metrics::bleu_signature({}, references.size()), [&](const std::vector<std::string>& hypotheses) {
            return [counts = metrics::bleu_counts_of(hypotheses, references)](std::span<const int64_t> sentences) {
              metrics::BleuCounts sum;
              for (const int64_t i : sentences) sum += counts[static_cast<size_t>(i)];
              return metrics::bleu_of(sum, {}).score;
            };
          }};
}

Metric chrf(const References& references) {
  return {"chrF", metrics::chrf_signature({}, references.size()), [&](const std::vector<std::string>& hypotheses) {
            return [counts = metrics::chrf_counts_of(hypotheses, references)](std::span<const int64_t> sentences) {
              std::vector<metrics::ChrfOrder> sum;
              for (const int64_t i : sentences) metrics::add_counts(sum, counts[static_cast<size_t>(i)]);
              return metrics::chrf_of(sum, {});
            };
          }};
}

int score_files(const ScoreArguments& arguments) {
  base::require(base::path_exists(arguments.hypotheses), "score: {}: no such file", arguments.hypotheses);
  base::require(!arguments.references.empty(), "score: expected --references FILE, found none");
  base::require(arguments.against || (!arguments.samples && !arguments.seed),
                "score: --samples and --seed compare two systems; add --against FILE or drop them");
  const int64_t samples = arguments.samples.value_or(1000), seed = arguments.seed.value_or(12345);
  const std::vector<std::string> own = lines_of(arguments.hypotheses);
  base::require(!own.empty(), "{}: expected at least one line, found none", arguments.hypotheses);
  const auto same_length = [&](const std::string& path) {
    std::vector<std::string> lines = lines_of(path);
    base::require(lines.size() == own.size(), "{}: expected {} lines, as many as {} has, found {}", path, own.size(),
                  arguments.hypotheses, lines.size());
    return lines;
  };
  References references;
  for (const std::string& path : arguments.references) references.push_back(same_length(path));
  std::vector<std::string> other;
  if (arguments.against) other = same_length(*arguments.against);

  using Align = base::TextTable::Align;
  base::TextTable table = arguments.against
                              ? base::TextTable(
                                    {"metric", "score", "against", "mean difference", "95 %", "p"},
                                    {Align::left, Align::right, Align::right, Align::right, Align::right, Align::right})
                              : base::TextTable({"metric", "score"}, {Align::left, Align::right});
  base::Node json = base::Node::table(
      {{"hypotheses", arguments.hypotheses}, {"lines", static_cast<int64_t>(own.size())}});
  std::string foot;
  std::vector<int64_t> all(own.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  for (const Metric& metric : {bleu(references), chrf(references)}) {
    const metrics::SampleScore scorer = metric.scorer(own);
    const double value = scorer(all);
    base::Node node = base::Node::table({{"score", value}, {"signature", metric.signature}});
    foot += fmt::format("{}: {}\n", metric.name, metric.signature);
    if (arguments.against) {
      const metrics::PairedBootstrap found = metrics::paired_bootstrap(
          static_cast<int64_t>(own.size()), scorer, metric.scorer(other), samples, static_cast<uint64_t>(seed));
      table.add_row({metric.name, fmt::format("{:.2f}", value), fmt::format("{:.2f}", found.score_b),
                     fmt::format("{:+.2f}", found.mean), fmt::format("{:+.2f} to {:+.2f}", found.low, found.high),
                     fmt::format("{:.4f}", found.p)});
      node.set("against", found.score_b);
      node.set("mean_difference", found.mean);
      node.set("low", found.low);
      node.set("high", found.high);
      node.set("p", found.p);
      node.set("better", found.better_a);
      node.set("worse", found.better_b);
    } else {
      table.add_row({metric.name, fmt::format("{:.2f}", value)});
    }
    json.set(metric.name == "BLEU" ? "bleu" : "chrf", node);
  }
  if (arguments.against) {
    json.set("samples", samples);
    json.set("seed", seed);
    foot += fmt::format("paired bootstrap: {} samples, seed {}\n", samples, seed);
  }
  if (arguments.json) {
    base::print_json(json);
  } else {
    base::print(table.text(base::output_columns()) + foot);
  }
  return base::kDone;
}

}  // namespace

void add_score(CLI::App& app) {
  auto arguments = std::make_shared<ScoreArguments>();
  Command(app, "score", "BLEU and chrF of translations, and whether one system's are better than another's")
      .argument("HYPOTHESES", arguments->hypotheses, "translations, a line each")
      .option("--references", arguments->references, "FILE", "reference translations, line by line; may be repeated")
      .option("--against", arguments->against, "FILE",
              "translations of another system to compare with, by paired bootstrap resampling")
      .option("--samples", arguments->samples, "N", "number of bootstrap samples (default 1000)",
              base::range(1, 1'000'000))
      .option("--seed", arguments->seed, "N", "of the bootstrap (default 12345)", base::at_least(0))
      .flag("--json", arguments->json, "print JSON")
      .footer("mnemo score ours.txt --references test.de --against baseline.txt")
      .action([arguments] { return score_files(*arguments); });
}

}  // namespace mnemo::cli
