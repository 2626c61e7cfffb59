#include <fmt/ranges.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/options.h"
#include "base/output.h"
#include "base/stop.h"
#include "base/text_format.h"
#include "base/utf8.h"
#include "bundle/mapped.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/input_lines.h"
#include "cli/ranks.h"
#include "cli/signals.h"
#include "distributed/shared_batches.h"
#include "experiment/device.h"
#include "infer/open_text.h"
#include "models/model.h"
#include "ops/linear/packed_linear.h"
#include "recipes/recipe.h"
#include "weights/safetensors.h"

namespace mnemo::cli {
namespace {

struct GenerateArguments {
  std::string model;
  std::optional<std::string> checkpoint, prompt, prompt_file, session, save, device, precision, kv_precision, score,
      logits;
  std::optional<int64_t> tokens;
  std::map<std::string, std::optional<double>> numbers;    // of sampling, by key
  std::map<std::string, std::optional<int64_t>> integers;  // likewise
  std::vector<std::string> stop;
  int64_t num_samples = 1;
  bool sample_unknown = false, strict = false, interactive = false, no_stop = false;
  bool json = false;
  Ranks ranks{.command = "generate"};

  text::Unknown unknown() const { return strict ? text::Unknown::refuse : text::Unknown::warn; }
  /// The option with which nothing is written; null: none.
  const char* reads_only() const { return score ? "--score" : logits ? "--logits" : nullptr; }
};

/// The command line as a recipe's [generate], by its rules; sampling options that are not given are those of `usual`.
infer::GenerateOptions asked_text(const GenerateArguments& options, const infer::GenerateOptions& usual) {
  base::Node sampling = base::write_options(usual), node = base::Node::table();
  for (const auto& [key, value] : options.numbers)
    if (value) sampling.set(key, *value);
  for (const auto& [key, value] : options.integers)
    if (value) sampling.set(key, *value);
  if (options.sample_unknown) sampling.set("sample_unknown", true);
  if (options.tokens) node.set("tokens", *options.tokens);
  if (!options.stop.empty()) {
    base::Node stop = base::Node::array();
    for (const std::string& text : options.stop) stop.push_back(text);
    node.set("stop", stop);
  }
  node.set("sampling", sampling);
  node.set_place_deep({std::make_shared<const std::string>("generate"), 0, 0});
  infer::GenerateOptions asked = base::read_options<recipes::Writing>(node).options;
  asked.past_end = options.no_stop;
  asked.precision = options.precision.value_or("");
  asked.kv_precision = options.kv_precision.value_or("");
  return asked;
}

/// A file, or standard input for "-".
std::string read_text(const std::string& path) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  return path == "-" ? read_standard_input(kMaxBytes) : base::read_file(path, kMaxBytes);
}

/// A text that was read, for a model of more than bytes without its byte order mark.
std::string without_mark(std::string text, const text::Tokenizer* tokenizer) {
  const bool bytes = tokenizer != nullptr && tokenizer->type() == "bytes";
  if (!bytes && text.starts_with(base::kByteOrderMark)) text.erase(0, base::kByteOrderMark.size());
  return text;
}

std::string prompt_of(const GenerateArguments& options) {
  base::require(!options.prompt || !options.prompt_file, "generate: expected --prompt or --prompt-file, found both");
  if (options.prompt) return *options.prompt;
  if (options.prompt_file) return read_text(*options.prompt_file);
  return options.session || options.interactive || options.score ? "" : recipes::Writing().prompt;
}

/// Refuses options that only apply to writing. --save keeps the sampling of the session.
void require_for_reading(const GenerateArguments& options) {
  std::vector<std::pair<std::string, bool>> without_effect = {
      {"tokens", options.tokens.has_value()}, {"stop", !options.stop.empty()}, {"no-stop", options.no_stop}};
  if (!options.save) {
    for (const auto& [key, value] : options.numbers) without_effect.emplace_back(key, value.has_value());
    for (const auto& [key, value] : options.integers) without_effect.emplace_back(key, value.has_value());
    without_effect.emplace_back("sample-unknown", options.sample_unknown);
  }
  for (auto& [name, given] : without_effect) {
    std::ranges::replace(name, '_', '-');
    base::require(!given, "generate: {} writes no text, so --{} has no effect; leave it out", options.reads_only(),
                  name);
  }
  base::require(!options.logits || options.prompt || options.prompt_file,
                "generate: --logits: expected a text to read, with --prompt or --prompt-file, found none");
  base::require(options.score != "-" || options.prompt_file != "-",
                "generate: --score - and --prompt-file - both read standard input; use a file");
}

/// Samples differ, and each has a seed.
void require_for_samples(const GenerateArguments& options, const infer::GenerateOptions& sampling) {
  base::require(sampling.temperature > 0.0,
                "generate: temperature 0 always takes the most likely token, so all samples would be equal; leave "
                "--num-samples out");
  base::require(sampling.seed <= std::numeric_limits<int64_t>::max() - options.num_samples,
                "generate: --seed: sample i has the seed --seed + i - 1; expected at most {}, found {}",
                std::numeric_limits<int64_t>::max() - options.num_samples, sampling.seed);
}

void check_modes(const GenerateArguments& options, const infer::GenerateOptions& asked) {
  if (options.reads_only() != nullptr) require_for_reading(options);
  const bool samples = options.num_samples > 1;
  base::require(options.interactive + samples + options.score.has_value() + options.logits.has_value() <= 1,
                "generate: expected one of --interactive, --num-samples, --score and --logits, found several");
  base::require(!options.interactive || !options.json,
                "generate: --interactive prints text as it is written; leave "
                "--json out");
  base::require(!options.interactive || options.prompt_file != "-",
                "generate: --interactive and --prompt-file - both read standard input; use --prompt or a file");
  base::require(!samples || !options.save, "generate: --save keeps one session; leave --num-samples out");
  if (samples) require_for_samples(options, asked);
}

/// A session continues with its own sampling; changes from the command line are reported.
void change_sampling(const GenerateArguments& options, infer::Session& session) {
  const infer::GenerateOptions sampling = asked_text(options, session.sampling());
  const base::Node before = base::write_options(session.sampling()), now = base::write_options(sampling);
  std::string changes;
  for (const auto& [key, value] : now.members()) {
    if (value == before.at(key)) continue;
    changes += fmt::format("{}{} {} -> {}", changes.empty() ? "" : ", ", key, base::to_json(before.at(key), -1),
                           base::to_json(value, -1));
  }
  if (changes.empty()) return;
  session.set_sampling(sampling);
  base::log_info("sampling of the session changes: {}", changes);
}

/// Whether standard output and the log are one file or pipe (`2>&1`), so that a line end has to part them.
bool log_follows_text() {
  struct stat out {
  }, log{};
  return ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &log) == 0 && out.st_dev == log.st_dev &&
         out.st_ino == log.st_ino;
}

/// A text that was written.
struct Sample {
  std::string text;  ///< empty if it was printed piece by piece
  int64_t seed = 0, tokens = 0;
  double seconds = 0;
  bool stopped = false;

  double speed() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
  base::Node to_node() const {
    return base::Node::table({{"text", text}, {"tokens", tokens}, {"seed", seed}, {"stopped", stopped}});
  }
};

/// Writes a text, until a recorded signal at most: prints it piece by piece, `start` before the first one, or, with
/// `keeps`, returns it instead.
Sample write(infer::TextSession& session, const infer::GenerateOptions& asked, std::string start, bool keeps) {
  Sample sample;
  sample.seed = session.session().sampling().seed;
  const auto show = [&](std::string_view piece) {
    if (keeps) {
      sample.text += piece;
    } else {
      base::print(std::exchange(start, {}) + std::string(piece));
    }
    return pending_signal() == 0;
  };
  const auto begin = std::chrono::steady_clock::now();
  sample.tokens = session.generate(asked, show);
  show(session.finish());
  sample.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  sample.stopped = session.finish_reason() == infer::FinishReason::stop;
  if (session.finish_reason() == infer::FinishReason::length && sample.tokens < asked.max_tokens)
    base::log_warning("the text ends after {}: the model has no positions for a longer one",
                      base::counted(sample.tokens, "token"));
  return sample;
}

void log_speed(const Sample& sample, const infer::TextSession& session) {
  base::log_info("{}, {} a second, state of {} bytes", base::counted(sample.tokens, "token"),
                 base::grouped(static_cast<int64_t>(sample.speed())), base::grouped(session.session().state_bytes()));
}

void write_one(const GenerateArguments& options, const infer::GenerateOptions& asked, const std::string& prompt,
               infer::TextSession& session) {
  const Sample sample = write(session, asked, options.session ? "" : prompt, options.json);
  if (options.json) {
    base::Node node = base::Node::table({{"prompt", prompt}});
    const base::Node written = sample.to_node();
    for (const auto& [key, value] : written.members()) node.set(key, value);
    node.set("position", session.session().position());
    node.set("state_bytes", session.session().state_bytes());
    node.set("seconds", sample.seconds);
    node.set("tokens_per_second", base::json_number(sample.speed()));
    node.set("sampling", base::write_options(session.session().sampling()));
    base::print_json(node);
    return;
  }
  if (::isatty(STDOUT_FILENO) == 1 || (base::log_level() <= base::LogLevel::info && log_follows_text()))
    base::print("\n");
  log_speed(sample, session);
}

/// Several texts from the same place; the i-th has the seed + i, so that `--seed` writes it again alone. One process
/// prints while it writes, of several rank 0 prints what is ready.
void write_samples(const GenerateArguments& options, const infer::GenerateOptions& asked, const std::string& prompt,
                   const infer::TextSession& session, distributed::Group* group) {
  base::Node samples = base::Node::array();
  const int64_t first = session.session().sampling().seed;
  const bool streams = !options.json && group == nullptr;
  const auto start = [&](int64_t i) {
    return fmt::format("--- sample {} of {}, seed {} ---\n{}", i + 1, options.num_samples, first + i,
                       options.session ? "" : prompt);
  };
  const auto work = [&](int64_t i) {
    infer::TextSession copy = session.fork(first + i);
    const Sample sample = write(copy, asked, start(i), !streams);
    if (streams) base::print("\n");
    if (!options.json) log_speed(sample, copy);
    return distributed::Texts{sample.text, std::to_string(sample.tokens), sample.stopped ? "stopped" : ""};
  };
  distributed::share_batches(group, options.num_samples, work, [&](int64_t i, const distributed::Texts& written) {
    const Sample sample{
        .text = written[0], .seed = first + i, .tokens = std::stoll(written[1]), .stopped = !written[2].empty()};
    samples.push_back(sample.to_node());
    if (!options.json && !streams) base::print(start(i) + sample.text + "\n");
  });
  if (options.json) {
    base::print_json(base::Node::table(
        {{"prompt", prompt}, {"samples", samples}, {"sampling", base::write_options(session.session().sampling())}}));
  }
}

/// Reads lines and lets the model go on after each. Its memory reaches back to the first.
void converse(const infer::GenerateOptions& asked, infer::TextSession& session, text::Unknown unknown) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  if (terminal)
    base::log_info("type a line and press Enter: the model continues it; Enter alone: it writes on; Ctrl-D ends");
  InputLines input;
  for (std::vector<std::string> lines;;) {
    if (terminal) base::print("> ");
    if (!input.read(1, lines) || pending_signal() != 0) break;
    const std::string& line = lines.front();
    try {
      if (!line.empty() || session.session().position() == 0) session.feed(line + "\n", unknown);
      write(session, asked, "", false);
    } catch (const base::InputError& error) {
      base::log_warning("{}", error.what());  // the session goes on from its last good token
      continue;
    }
    base::print("\n");
  }
  if (terminal) base::print("\n");
}

/// How likely the model finds a given text, token by token.
void score(const GenerateArguments& options, infer::TextSession& session) {
  const std::vector<infer::ScoredToken> tokens = session.score(
      without_mark(read_text(*options.score), session.shared_tokenizer().get()), options.unknown());
  base::require(!tokens.empty(), "{}: the text is empty; expected at least one character", *options.score);
  double sum = 0;
  int64_t predictions = 0;
  base::Node list = base::Node::array();
  std::string lines;
  for (const infer::ScoredToken& token : tokens) {
    const bool predicted = !std::isnan(token.log_probability);
    if (predicted) {
      sum += token.log_probability;
      ++predictions;
    }
    const std::string text = base::json_text(token.text);
    if (options.json) {
      list.push_back(base::Node::table(
          {{"id", token.id}, {"text", text}, {"log_probability", base::json_number(token.log_probability)}}));
    } else {
      lines += fmt::format("{:>12}  {}\n", predicted ? fmt::format("{:.4f}", token.log_probability) : "",
                           base::json_string(text));
    }
  }
  const double nll = predictions == 0 ? std::nan("") : -sum / static_cast<double>(predictions);
  if (options.json) {
    base::print_json(base::Node::table({{"log_probability", base::json_number(sum)},
                                        {"predictions", predictions},
                                        {"nll", base::json_number(nll)},
                                        {"perplexity", base::json_number(std::exp(nll))},
                                        {"tokens", list}}));
    return;
  }
  base::print(lines);
  base::print(fmt::format("log probability {:.4f} nats of {}", sum, base::counted(predictions, "predicted token")));
  base::print(predictions == 0 ? "\n" : fmt::format(": {:.4f} nats a token, perplexity {:.4f}\n", nll, std::exp(nll)));
}

/// The tokens of the prompt, with those in front, and the logits after each, as a safetensors file.
void write_logits(const GenerateArguments& options, const std::string& prompt, infer::TextSession& session) {
  constexpr int64_t kMaxValues = int64_t{1} << 30;
  const std::vector<int64_t> tokens = session.prompt(prompt, options.unknown()).tokens;
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t vocabulary = core::token_input(session.session().model().input()).vocab_size;
  base::require(count <= kMaxValues / vocabulary,
                "generate: --logits: {} numbers a token: expected at most {} tokens, found {}",
                base::grouped(vocabulary), base::grouped(kMaxValues / vocabulary), base::grouped(count));
  const at::Tensor logits = at::empty({count, vocabulary}, at::kFloat);
  for (int64_t i = 0; i < count; ++i) {
    session.session().feed(std::span(tokens).subspan(static_cast<size_t>(i), 1));
    logits[i].copy_(session.session().logits());
  }
  weights::write_safetensors(*options.logits, {{"tokens", at::tensor(tokens, at::kLong)}, {"logits", logits}});
  if (options.json) {
    base::print_json(base::Node::table({{"file", *options.logits}, {"tokens", count}, {"vocabulary", vocabulary}}));
  } else {
    base::print(fmt::format("{}: tokens [{}] and logits [{},{}], row i after token i\n", *options.logits, count, count,
                            vocabulary));
  }
}

int generate(const GenerateArguments& options, const std::shared_ptr<distributed::Group>& group) {
  const infer::GenerateOptions asked = asked_text(options, {});
  check_modes(options, asked);
  const bool several = group && group->size() > 1;
  base::require(!several || options.num_samples > 1,
                "generate: {} processes share the samples of --num-samples; one text is written by one process",
                group ? group->size() : 1);
  const bool reads = !group || group->rank() == 0;  // standard input is there once
  if (!reads) base::set_log_level(base::LogLevel::silent);
  std::string prompt = reads ? prompt_of(options) : "";
  if (group) prompt = group->broadcast(prompt);
  base::require(options.session || options.interactive || options.score || !prompt.empty(),
                "generate: the prompt is empty; expected at least one character");

  for (const auto& file : {options.save, options.logits}) {
    if (file) base::AtomicFile{*file};  // fail before generating if the file cannot be written
  }
  const at::Device device = experiment::device_named(options.device, group.get());
  // A session's file names the model by all of its weights, so they are read again when it is written.
  const bool reads_again = options.session || options.save;
  const bundle::Bundle stored = reads_again ? bundle::read_bundle(options.model, options.checkpoint)
                                            : bundle::map_bundle(options.model, options.checkpoint);
  experiment::move_to(*stored.model, device);
  if (options.prompt_file) prompt = without_mark(std::move(prompt), stored.tokenizer.get());
  begin_sharing(group, "generate", *stored.model);
  infer::TextSession session = options.session ? infer::resume_text(stored, *options.session, asked)
                                               : infer::open_text(stored, asked);
  choose_threads(stored.model->parameters().count(), 1);  // after packing, which all share
  if (options.session) {
    change_sampling(options, session.session());
    if (options.num_samples > 1) require_for_samples(options, session.session().sampling());
  }
  if (!prompt.empty() && !options.logits) session.feed(prompt, options.unknown());

  std::optional<SignalGuard> guard;
  if (options.save && options.reads_only() == nullptr) guard.emplace("stopping after this token");
  if (options.interactive) {
    converse(asked, session, options.unknown());
  } else if (options.logits) {
    write_logits(options, prompt, session);
  } else if (options.score) {
    score(options, session);
  } else if (options.num_samples > 1) {
    write_samples(options, asked, prompt, session, group.get());
  } else {
    write_one(options, asked, prompt, session);
  }
  if (options.save) {
    session.save(*options.save);
    if (const int signal = pending_signal(); signal != 0)
      throw base::Stopped(signal, fmt::format("generate: stopped; the session so far is saved in {}", *options.save));
  }
  if (group) group->leave();
  return base::kDone;
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateArguments>();
  Command command(app, "generate", "generate text with a trained model and stream it");
  command.argument("MODEL", options->model, "model folder, run folder or checkpoint")
      .option(
          "--checkpoint", options->checkpoint, "WHICH",
          "checkpoint of a run: latest, best or a step (default: its model, or the best checkpoint if it has none yet)")
      .option("-p,--prompt", options->prompt, "TEXT", "text to continue (default: the start of a line)")
      .option("--prompt-file", options->prompt_file, "FILE", "read the prompt from a file; - is standard input")
      .option("-n,--tokens", options->tokens, "N", "number of tokens to generate (default 256)")
      .option("--temperature", options->numbers["temperature"], "X",
              "sampling temperature; 0 always takes the most likely token (default 0.8)")
      .option("--top-k", options->integers["top_k"], "K",
              "sample from the K most likely tokens; 0 means all (default 0)")
      .option("--top-p", options->numbers["top_p"], "P",
              "sample from the smallest set of tokens with this total probability (default 1)")
      .option("--min-p", options->numbers["min_p"], "P",
              "sample only from tokens with at least this share of the most likely token's probability (default 0)")
      .option("--repetition-penalty", options->numbers["repetition_penalty"], "X",
              "divide positive logits of tokens read or written before by X, multiply negative ones (default 1)")
      .option("--frequency-penalty", options->numbers["frequency_penalty"], "X",
              "subtract X from a token's logit for each time that it was written (default 0)")
      .option("--presence-penalty", options->numbers["presence_penalty"], "X",
              "subtract X from the logit of every token that was written (default 0)")
      .option("--stop", options->stop, "TEXT", "stop where TEXT occurs, without printing it; may be repeated")
      .flag("--no-stop", options->no_stop,
            "do not stop at a published model's end token (eos_token_id); --stop still applies")
      .option("--seed", options->integers["seed"], "N", "random seed; the same seed gives the same text (default 0)")
      .option("--num-samples", options->num_samples, "N", "write N texts, with the seeds --seed, --seed + 1, …",
              base::range(1, 65536))
      .flag("--sample-unknown", options->sample_unknown, "let the text contain <unk> (default: never)")
      .flag("--strict", options->strict, "refuse a prompt with characters or words outside the vocabulary")
      .option("--session", options->session, "FILE",
              "continue a session written by --save, with its sampling unless options change it")
      .option("--save", options->save, "FILE", "save the session with its memory, for --session")
      .flag("--interactive", options->interactive,
            "read lines from standard input and let the model continue after each; it remembers all of them")
      .option("--score", options->score, "FILE",
              "write nothing, but print the log probability of each token of a given text and their sum, in nats; - is "
              "standard input")
      .option(
          "--logits", options->logits, "FILE",
          "write no text, but the tokens of the prompt and the logits after each, in float32, as a safetensors file")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .option("--precision", options->precision, "P",
              fmt::format("weights on the CPU: {} (default float32)", fmt::join(ops::precision_names(), ", ")))
      .option("--kv-precision", options->kv_precision, "P",
              "keys and values on the CPU: auto, which is float32 or bf16 as the weights, or int8 (default auto)");
  add_ranks(command, options->ranks, "write the texts of --num-samples on N processes of this machine");
  command.flag("--json", options->json, "print one JSON object at the end instead of streaming")
      .footer(
          "mnemo generate runs/mine/model --prompt 'Once upon' --tokens 400\n"
          "mnemo generate models/gpt2 --prompt 'Once upon' --logits logits.safetensors")
      .action([options] {
        return on_ranks(options->ranks, "",
                        [&](const std::shared_ptr<distributed::Group>& group) { return generate(*options, group); });
      });
}

}  // namespace mnemo::cli
