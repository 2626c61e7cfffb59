#include <fmt/format.h>

#include <unistd.h>

#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/json_value.h"
#include "base/output.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "experiment/device.h"
#include "infer/translator.h"

namespace mnemo::cli {
namespace {

struct TranslateArguments {
  std::string model;
  std::optional<std::string> checkpoint, device, precision;
  std::optional<double> length_penalty, max_len_a;
  infer::TranslateOptions translate;
  int64_t nbest = 1;
  bool json = false;
};

constexpr size_t kChunk = 1024;  ///< lines that are sorted by length together
constexpr size_t kMaxLine = size_t{1} << 20;

/// Text on one line: what a model makes of its tokens may contain line ends.
std::string on_one_line(std::string text) {
  for (char& byte : text) {
    if (byte == '\n' || byte == '\r') byte = ' ';
  }
  return text;
}

/// Reads up to `count` lines; false at the end of the input.
bool read_lines(size_t count, std::vector<std::string>& lines) {
  lines.clear();
  for (std::string line; lines.size() < count && std::getline(std::cin, line);) {
    base::require(line.size() <= kMaxLine, "standard input: expected lines of at most {} bytes, found one of {}",
                  kMaxLine, line.size());
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(std::move(line));
  }
  return !lines.empty();
}

void show(const std::vector<infer::TranslatedText>& texts, const std::string& source,
          const TranslateArguments& wanted) {
  const size_t count = std::min(texts.size(), static_cast<size_t>(wanted.nbest));
  if (wanted.json) {
    base::Node hypotheses = base::Node::array();
    for (size_t i = 0; i < count; ++i) {
      hypotheses.push_back(base::Node::table({{"text", texts[i].text},
                                              {"score", base::json_number(texts[i].score)},
                                              {"log_probability", base::json_number(texts[i].sum)},
                                              {"tokens", texts[i].tokens}}));
    }
    base::print(base::to_json(base::Node::table({{"source", source}, {"translations", hypotheses}}), -1) + "\n");
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string text = on_one_line(texts[i].text);
    base::print(wanted.nbest == 1 ? text + "\n" : fmt::format("{:.4f}\t{}\n", texts[i].score, text));
  }
}

int translate(const TranslateArguments& arguments) {
  infer::TranslateOptions options = arguments.translate;
  options.search.length_penalty = arguments.length_penalty.value_or(options.search.length_penalty);
  options.search.max_len_a = arguments.max_len_a.value_or(options.search.max_len_a);
  base::require(arguments.nbest >= 1 && arguments.nbest <= options.search.beam_size,
                "translate: --nbest: expected 1 to the beam's {}, found {}", options.search.beam_size, arguments.nbest);
  base::check_options(options.search);
  const at::Device device = experiment::device_named(arguments.device);
  const bundle::Bundle stored = bundle::read_bundle(arguments.model, arguments.checkpoint);
  experiment::move_to(*stored.model, device);
  std::optional<ops::Precision> precision;
  if (arguments.precision) precision = ops::precision_of(*arguments.precision, "translate: --precision");
  const infer::Translator translator(stored, precision);
  choose_threads(stored.model->parameters().count(), options.batch_size * options.search.beam_size);
  std::vector<std::string> lines;
  int64_t line = 1;
  while (read_lines(isatty(STDIN_FILENO) != 0 ? 1 : kChunk, lines)) {
    const auto texts = translator(lines, options, "standard input", line);
    for (size_t i = 0; i < lines.size(); ++i) show(texts[i], lines[i], arguments);
    line += static_cast<int64_t>(lines.size());
  }
  return base::kDone;
}

}  // namespace

void add_translate(CLI::App& app) {
  auto arguments = std::make_shared<TranslateArguments>();
  infer::TranslateOptions& options = arguments->translate;
  Command(app, "translate", "translate lines of standard input")
      .argument("MODEL", arguments->model, "model folder, run folder or checkpoint")
      .option("--checkpoint", arguments->checkpoint, "WHICH",
              "of a run: latest, best or a step (default: its model; before it has one the best checkpoint)")
      .option("--beam", options.search.beam_size, "N", "hypotheses per sentence; 1: greedy (default 5)",
              base::range(1, 1 << 10))
      .option("--nbest", arguments->nbest, "N",
              "print the N best hypotheses of a line, each after its score and a tab (default 1)",
              base::range(1, 1 << 10))
      .option("--length-penalty", arguments->length_penalty, "P",
              "a hypothesis of n tokens scores (sum of log probabilities) / n^P (default 1)")
      .option("--min-len", options.search.min_len, "N", "tokens before a hypothesis may end (default 1)",
              base::range(0, 1 << 20))
      .option("--max-len-a", arguments->max_len_a, "A",
              "a translation has at most A * S + B tokens, S the source's (default 0)")
      .option("--max-len-b", options.search.max_len_b, "B", "see --max-len-a (default 200)", base::range(1, 1 << 20))
      .option("--no-repeat-ngram", options.search.no_repeat_ngram, "N",
              "no sequence of N tokens occurs twice; 0: any may (default 0)", base::range(0, 1 << 10))
      .option("--unknown", options.unknown, "TEXT", "what stands for words the vocabulary lacks (default <unk>)")
      .option("--batch", options.batch_size, "N", "sentences per batch (default 32)", base::range(1, 1 << 16))
      .option("--precision", arguments->precision, "NAME",
              "weights of the decoding engine: float32, bf16 or int8 (default: float32; the model itself if the engine "
              "does not support it)")
      .option("--device", arguments->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .flag("--json", arguments->json, "print a line of JSON for each line, with scores")
      .footer(
          "mnemo translate runs/de-en < letter.de > letter.en\n"
          "echo 'Guten Morgen !' | mnemo translate runs/de-en --beam 5 --nbest 3")
      .action([arguments] { return translate(*arguments); });
}

}  // namespace mnemo::cli
