#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/output.h"
#include "base/progress.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/input_lines.h"
#include "cli/ranks.h"
#include "data/text/lines.h"
#include "experiment/device.h"
#include "experiment/experiment.h"
#include "experiment/translation_search.h"
#include "infer/translator.h"
#include "models/model.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::cli {
namespace {

struct TranslateArguments {
  std::string model;
  std::optional<std::string> checkpoint, device, precision, prefix;
  std::optional<double> length_penalty, max_len_a, temperature, top_p;
  std::optional<int64_t> beam, min_len, max_len_b, no_repeat_ngram, top_k, seed;
  infer::TranslateOptions translate;
  bool json = false, sample = false, documents = false;
  Ranks ranks{.command = "translate"};
};

constexpr const char* kInput = "standard input";
constexpr size_t kChunk = 1024;  ///< lines that are sorted by length together

/// Text on one line: decoded tokens may contain line ends.
std::string on_one_line(std::string text) {
  for (char& byte : text) {
    if (byte == '\n' || byte == '\r') byte = ' ';
  }
  return text;
}

/// The next lines of standard input, which rank 0 reads for all. False at the end.
bool read_lines(InputLines& input, distributed::Group* group, std::vector<std::string>& lines) {
  if (group == nullptr) return input.read(kChunk, lines);
  std::string text;
  if (group->rank() == 0 && input.read(kChunk, lines)) text = fmt::format("{}\n", fmt::join(lines, "\n"));
  text = group->broadcast(text);
  lines.clear();
  for (size_t from = 0; from < text.size();) {
    const size_t end = text.find('\n', from);
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return !lines.empty();
}

std::string alignment_text(const infer::WordLinks& links) {
  std::string text;
  for (const auto& [source, target] : links) text += fmt::format("{}{}-{}", text.empty() ? "" : " ", source, target);
  return text;
}

void show(const std::vector<infer::TranslatedText>& texts, const std::string& source,
          const TranslateArguments& wanted) {
  const bool align = wanted.translate.align;
  if (wanted.json) {
    base::Node hypotheses = base::Node::array();
    for (const infer::TranslatedText& text : texts) {
      base::Node hypothesis = base::Node::table({{"text", text.text},
                                                 {"score", base::json_number(text.score)},
                                                 {"log_probability", base::json_number(text.sum)},
                                                 {"tokens", text.tokens}});
      if (align) {
        base::Node links = base::Node::array();
        for (const auto& [from, to] : text.alignment) links.push_back(base::Node::array({from, to}));
        hypothesis.set("alignment", links);
      }
      hypotheses.push_back(hypothesis);
    }
    base::print(base::to_json(base::Node::table({{"source", source}, {"translations", hypotheses}}), -1) + "\n");
    return;
  }
  // A line without words has no translations, and a search may find fewer than are wanted: lines stay empty for them.
  size_t found = 0;
  for (const infer::TranslatedText& text : texts) {
    if (text.tokens == 0) continue;
    ++found;
    base::print(fmt::format("{}{}{}\n", wanted.translate.nbest == 1 ? "" : fmt::format("{:.4f}\t", text.score),
                            on_one_line(text.text), align ? "\t" + alignment_text(text.alignment) : ""));
  }
  base::print(std::string(static_cast<size_t>(wanted.translate.nbest) - found, '\n'));
}

/// The model's beam search with the changes of the command line.
search::BeamSearchOptions beam_search(const TranslateArguments& arguments, search::BeamSearchOptions search) {
  search.length_penalty = arguments.length_penalty.value_or(search.length_penalty);
  search.max_len_a = arguments.max_len_a.value_or(search.max_len_a);
  search.beam_size = arguments.beam.value_or(search.beam_size);
  search.min_len = arguments.min_len.value_or(search.min_len);
  search.max_len_b = arguments.max_len_b.value_or(search.max_len_b);
  search.no_repeat_ngram = arguments.no_repeat_ngram.value_or(search.no_repeat_ngram);
  base::require(
      search.max_len_a > 0.0 || search.min_len <= search.max_len_b,
      "translate: --min-len: expected at most {}, the tokens of the longest hypothesis (--max-len-b), found {}",
      search.max_len_b, search.min_len);
  base::check_options(search);
  return search;
}

/// Options of the command line besides the search.
infer::TranslateOptions asked_options(const TranslateArguments& arguments) {
  infer::TranslateOptions options = arguments.translate;
  const bool draws = arguments.temperature || arguments.top_k || arguments.top_p || arguments.seed;
  base::require(arguments.sample || !draws,
                "translate: --temperature, --top-k, --top-p and --seed are for drawn translations; add --sample");
  base::require(!arguments.sample || !arguments.beam,
                "translate: --sample draws instead of searching; expected --nbest without --beam");
  if (arguments.sample) {
    infer::GenerateOptions sampling;
    sampling.temperature = arguments.temperature.value_or(1.0);
    sampling.top_k = arguments.top_k.value_or(sampling.top_k);
    sampling.top_p = arguments.top_p.value_or(sampling.top_p);
    sampling.seed = arguments.seed.value_or(sampling.seed);
    base::require(sampling.temperature > 0.0 || options.nbest == 1,
                  "translate: temperature 0 always takes the most likely token, so all {} would be equal; leave out "
                  "--nbest or set a temperature above 0",
                  options.nbest);
    base::check_options(sampling);
    options.sampling = sampling;
  }
  return options;
}

/// The search of a published model's folder with the changes of the command line.
search::GenerationOptions folder_search(const TranslateArguments& arguments, search::GenerationOptions search) {
  base::require(!arguments.max_len_a,
                "translate: --max-len-a goes with [data.search] of a run's recipe; the search of a published model, "
                "also in a run that started from it, takes --max-len-b");
  search.num_beams = arguments.beam.value_or(search.num_beams);
  search.length_penalty = arguments.length_penalty.value_or(search.length_penalty);
  search.max_new_tokens = arguments.max_len_b.value_or(search.max_new_tokens);
  search.min_new_tokens = arguments.min_len.value_or(search.min_new_tokens);
  search.no_repeat_ngram = arguments.no_repeat_ngram.value_or(search.no_repeat_ngram);
  base::check_options(search);
  base::require(
      !arguments.min_len || search.min_new_tokens <= search.max_new_tokens,
      "translate: --min-len: expected at most the {} tokens of the longest translation (--max-len-b), found {}",
      search.max_new_tokens, search.min_new_tokens);
  return search;
}

/// The limits of drawn translations that such a search has. Lengths count the end there, here they do not.
search::BeamSearchOptions limits_of(const search::GenerationOptions& search) {
  const int64_t longest = std::max<int64_t>(1, search.max_new_tokens - 1);
  return {.length_penalty = search.length_penalty,
          .min_len = std::min(search.min_new_tokens, longest),
          .max_len_b = longest,
          .no_repeat_ngram = search.no_repeat_ngram};
}

/// The lines of the file of --prefix: translations of the lines of standard input begin with them.
class Prefixes {
 public:
  explicit Prefixes(const std::optional<std::string>& file) : file_(file) {
    if (!file) return;
    data::for_each_line(text::TextSource(*file).without_byte_order_mark(), InputLines::kMaxLine,
                        [&](const data::LinePlace&, std::string_view line) { lines_.emplace_back(line); });
  }
  /// Sets the prefixes of lines from number `first` on, counted from 1. Lines beyond the end of the file are removed.
  void give(int64_t first, std::vector<std::string>& lines, infer::TranslateOptions& options) const {
    if (!file_) return;
    const auto begin = lines_.begin() + (first - 1);
    lines.resize(std::min(lines.size(), static_cast<size_t>(lines_.end() - begin)));
    options.prefixes.assign(begin, begin + static_cast<std::ptrdiff_t>(lines.size()));
  }
  /// Throws InputError unless the file has `count` lines; more: whether standard input has more than that.
  void require_count(int64_t count, bool more) const {
    if (!file_) return;
    base::require(!more && count == static_cast<int64_t>(lines_.size()),
                  "{}: expected a line for each line of standard input, {}{}, found {}", *file_,
                  more ? "at least " : "", count + (more ? 1 : 0), lines_.size());
  }

 private:
  std::optional<std::string> file_;
  std::vector<std::string> lines_;
};

int translate(const TranslateArguments& arguments, const std::shared_ptr<distributed::Group>& group) {
  infer::TranslateOptions options = asked_options(arguments);
  const at::Device device = experiment::device_named(arguments.device, group.get());
  const bundle::Bundle stored = bundle::read_bundle(arguments.model, arguments.checkpoint);
  experiment::move_to(*stored.model, device);
  std::optional<ops::Precision> precision;
  if (arguments.precision) precision = ops::precision_of(*arguments.precision, "translate: --precision");
  const infer::Translator translator(stored, precision);
  const auto own = experiment::own_search(stored);
  if (!own && translator.settings()) {
    const search::GenerationOptions published = folder_search(arguments, *translator.settings());
    if (arguments.sample) {
      options.search = limits_of(published);
    } else {
      options.generation = published;
    }
  } else {
    options.search = beam_search(arguments, own.value_or(search::BeamSearchOptions()));
  }
  if (!options.generation) base::check_options(options.search);
  const int64_t beams = arguments.sample     ? options.nbest
                        : options.generation ? options.generation->num_beams
                                             : options.search.beam_size;
  base::require(options.nbest <= beams, "translate: --nbest: expected 1 to the beam's {}, found {}", beams,
                options.nbest);
  const Prefixes prefixes(arguments.prefix);
  if (arguments.prefix) {
    options.prefixes = {""};
    options.prefixes_name = *arguments.prefix;
  }
  translator.require_fitting(options);
  choose_threads(stored.model->parameters().count(), options.batch_size * beams);
  begin_sharing(group, "translate", *stored.model);
  options.ranks = group;
  if (group && group->rank() > 0)
    base::set_log_level(base::LogLevel::silent);  // all ranks read the same lines; one tells of long ones
  InputLines input;
  std::vector<std::string> lines;
  // A bar only where it does not stand between the translations, and no log lines without a terminal.
  std::optional<base::Progress> progress;
  if (isatty(STDERR_FILENO) != 0 && isatty(STDOUT_FILENO) == 0 && !(group && group->rank() > 0))
    progress.emplace("translate", 0, base::ProgressOptions{.unit = "lines"});
  int64_t line = 1;
  core::State open;  // the memory of the document being read
  infer::SourceCounts counts;
  bool more = false;  // lines than prefixes
  while (!more && read_lines(input, group.get(), lines)) {
    const size_t all = lines.size();
    prefixes.give(line, lines, options);
    more = lines.size() < all;
    if (lines.empty()) break;
    const auto on_line = [&](size_t i, const std::vector<infer::TranslatedText>& texts) {
      show(texts, lines[i], arguments);
      if (progress) progress->update(line + static_cast<int64_t>(i));
    };
    const infer::SourceCounts read = arguments.documents
                                         ? translator.translate_documents(lines, options, open, on_line, kInput, line)
                                         : translator.translate(lines, options, on_line, kInput, line);
    counts.tokens += read.tokens;
    counts.unknown += read.unknown;
    line += static_cast<int64_t>(lines.size());
  }
  translator.report_unknown(counts, kInput);
  prefixes.require_count(line - 1, more);
  if (group) group->leave();
  return base::kDone;
}

}  // namespace

void add_translate(CLI::App& app) {
  auto arguments = std::make_shared<TranslateArguments>();
  infer::TranslateOptions& options = arguments->translate;
  Command command(app, "translate", "translate lines of standard input");
  command.argument("MODEL", arguments->model, "model folder, run folder or checkpoint")
      .option(
          "--checkpoint", arguments->checkpoint, "WHICH",
          "checkpoint of a run: latest, best or a step (default: its model, or the best checkpoint if it has none yet)")
      .option("--beam", arguments->beam, "N", "hypotheses per sentence; 1: greedy (default: the model's own, else 5)",
              base::range(1, 1 << 10))
      .option("--nbest", options.nbest, "N",
              "print the N best hypotheses for each line, each after its score and a tab (default 1)",
              base::range(1, 1 << 10))
      .option("--length-penalty", arguments->length_penalty, "P",
              "a hypothesis of n tokens, its end included, scores (sum of the natural logarithms of their "
              "probabilities) / n^P (default: the model's own, else 1)")
      .option("--min-len", arguments->min_len, "N",
              "tokens before a hypothesis may end (default: the model's own, else 1)", base::range(0, 1 << 20))
      .option("--max-len-a", arguments->max_len_a, "A",
              "a translation has at most A * S + B tokens and its end; S: tokens of the source, its end included "
              "(default: the model's own, else 0)")
      .option("--max-len-b", arguments->max_len_b, "B",
              "see --max-len-a (default: the model's own, else 200); for a published model the maximum tokens of a "
              "translation, its end included",
              base::range(1, 1 << 20))
      .option("--no-repeat-ngram", arguments->no_repeat_ngram, "N",
              "no sequence of N tokens occurs twice; 0: no limit (default: the model's own, else 0)",
              base::range(0, 1 << 10))
      .option("--prefix", arguments->prefix, "FILE",
              "prefixes of the translations: one line of FILE for each line; empty: none")
      .flag("--sample", arguments->sample, "draw translations, --nbest of them, instead of searching for the best")
      .option("--temperature", arguments->temperature, "X", "with --sample: divides the logits (default 1)")
      .option("--top-k", arguments->top_k, "K", "with --sample: from the K most likely tokens; 0: all (default 0)")
      .option("--top-p", arguments->top_p, "P",
              "with --sample: from the smallest set of tokens with this total probability (default 1)")
      .option("--seed", arguments->seed, "N", "with --sample: the same seed draws the same translations (default 0)")
      .flag("--documents", arguments->documents,
            "carry the encoder's memory from line to line of a document; an empty line ends it")
      .flag("--alignment", options.align,
            "print the word alignment after a tab: S-T aligns word S of the source with word T of the translation, "
            "from 0")
      .flag("--replace-unknown", options.replace_unknown,
            "replace words outside the vocabulary by the source's word that the model attends to")
      .option("--unknown", options.unknown, "TEXT", "text for words outside the vocabulary (default <unk>)")
      .option("--batch", options.batch_size, "N", "sentences per batch (default 32)", base::range(1, 1 << 16))
      .option("--max-source", options.max_source, "N",
              "cut sources beyond this many tokens, or beyond the model's positions, with a warning (default 1024)",
              base::range(2, 1 << 20))
      .option("--precision", arguments->precision, "NAME",
              fmt::format("weights of the decoding engine: {} (default: float32; the model itself if the engine does "
                          "not support it)",
                          fmt::join(ops::precision_names(), ", ")))
      .option("--device", arguments->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)");
  add_ranks(command, arguments->ranks, "translate on N processes of this machine, each with its share of the batches");
  command.flag("--json", arguments->json, "print a line of JSON for each line, with scores")
      .footer(
          "mnemo translate runs/de-en < letter.de > letter.en\n"
          "echo 'Guten Morgen !' | mnemo translate runs/de-en --beam 5 --nbest 3")
      .action([arguments] {
        return on_ranks(arguments->ranks, "",
                        [&](const std::shared_ptr<distributed::Group>& group) { return translate(*arguments, group); });
      });
}

}  // namespace mnemo::cli
