#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/options.h"
#include "base/output.h"
#include "base/text_format.h"
#include "bundle/bundle.h"
#include "cli/application.h"
#include "cli/command.h"
#include "experiment/device.h"
#include "experiment/recipe.h"
#include "infer/open_text.h"

namespace mnemo::cli {
namespace {

struct GenerateArguments {
  std::string model;
  std::optional<std::string> checkpoint, prompt, prompt_file, session, save, device, precision;
  std::optional<int64_t> tokens, top_k, seed;
  std::optional<double> temperature, top_p;
  bool sample_unknown = false, strict = false;
  bool json = false;
};

/// What the command line says of the recipe's [generate], by its rules; what it does not say of sampling is `usual`.
experiment::GenerateOptions recipe_options(const GenerateArguments& options, const infer::SamplingOptions& usual) {
  base::Node sampling = base::write_options(usual), node = base::Node::table();
  if (options.temperature) sampling.set("temperature", *options.temperature);
  if (options.top_k) sampling.set("top_k", *options.top_k);
  if (options.top_p) sampling.set("top_p", *options.top_p);
  if (options.seed) sampling.set("seed", *options.seed);
  if (options.sample_unknown) sampling.set("sample_unknown", true);
  if (options.tokens) node.set("tokens", *options.tokens);
  node.set("sampling", sampling);
  node.set_place_deep({std::make_shared<const std::string>("generate"), 0, 0});
  return base::read_options<experiment::GenerateOptions>(node);
}

std::string prompt_of(const GenerateArguments& options) {
  base::require(!options.prompt || !options.prompt_file, "generate: expected --prompt or --prompt-file, found both");
  if (options.prompt) return *options.prompt;
  if (!options.prompt_file) return options.session ? "" : experiment::GenerateOptions().prompt;
  if (*options.prompt_file != "-") return base::read_file(*options.prompt_file, uint64_t{1} << 30);
  std::string text;
  char bytes[65536];
  for (ssize_t count; (count = ::read(STDIN_FILENO, bytes, sizeof(bytes))) > 0;)
    text.append(bytes, static_cast<size_t>(count));
  return text;
}

/// A session goes on with its own sampling; what the command line changes of it is said.
void change_sampling(const GenerateArguments& options, infer::Session& session) {
  const infer::SamplingOptions sampling = recipe_options(options, session.sampling()).sampling;
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

int generate(const GenerateArguments& options) {
  const experiment::GenerateOptions asked = recipe_options(options, experiment::GenerateOptions().sampling);
  const std::string prompt = prompt_of(options);
  base::require(options.session.has_value() || !prompt.empty(),
                "generate: expected a prompt of one character or more, found none");

  if (options.save)
    base::AtomicFile(*options.save);  // a place that cannot be written is told before the text, not behind it
  const at::Device device = experiment::device_named(options.device);
  const bundle::Bundle stored = bundle::read_bundle(options.model, options.checkpoint);
  experiment::move_to(*stored.model, device);
  choose_threads(stored.model->parameters().count(), 1);
  infer::TextSession text = infer::open_text(
      stored, {.sampling = options.session ? std::nullopt : std::optional(asked.sampling),
               .precision = options.precision,
               .session = options.session});
  if (options.session) change_sampling(options, text.session());
  if (!prompt.empty()) text.feed(prompt, options.strict ? data::Unknown::refuse : data::Unknown::warn);

  const auto begin = std::chrono::steady_clock::now();
  std::string written = options.json || options.session ? "" : prompt;
  const int64_t made = text.generate({.max_tokens = asked.tokens}, [&](std::string_view piece) {
    written += piece;
    if (!options.json) base::print(std::exchange(written, {}));
    return true;
  });
  const std::string rest = text.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double speed = seconds > 0 ? static_cast<double>(made) / seconds : 0;
  if (options.save) text.session().save(*options.save);
  if (options.json) {
    base::print_json(base::Node::table({{"prompt", prompt},
                                        {"text", written + rest},
                                        {"tokens", made},
                                        {"position", text.session().position()},
                                        {"state_bytes", text.session().num_bytes()},
                                        {"seconds", seconds},
                                        {"tokens_per_second", base::json_number(speed)},
                                        {"sampling", base::write_options(text.session().sampling())}}));
    return base::kDone;
  }
  const bool shown = ::isatty(STDOUT_FILENO) == 1 || (base::log_level() <= base::LogLevel::info && log_follows_text());
  base::print(written + rest + (shown ? "\n" : ""));
  base::log_info("{}, {} a second, state of {} bytes", base::counted(made, "token"),
                 base::grouped(static_cast<int64_t>(speed)), base::grouped(text.session().num_bytes()));
  return base::kDone;
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateArguments>();
  Command(app, "generate", "generate text with a trained model and stream it")
      .argument("MODEL", options->model, "model folder, run folder or checkpoint")
      .option("--checkpoint", options->checkpoint, "WHICH",
              "of a run: latest, best or a step (default: its model; before it has one the best checkpoint)")
      .option("-p,--prompt", options->prompt, "TEXT", "text to continue (default: the start of a line)")
      .option("--prompt-file", options->prompt_file, "FILE", "read the prompt from a file; - is standard input")
      .option("-n,--tokens", options->tokens, "N", "number of tokens to generate (default 256)")
      .option("--temperature", options->temperature, "X",
              "sampling temperature; 0 always takes the most likely token (default 0.8)")
      .option("--top-k", options->top_k, "K", "sample from the K most likely tokens; 0 means all (default 0)")
      .option("--top-p", options->top_p, "P",
              "sample from the smallest set of tokens with this total probability (default 1)")
      .option("--seed", options->seed, "N", "random seed; the same seed gives the same text (default 0)")
      .flag("--sample-unknown", options->sample_unknown, "let the text contain <unk> (default: never)")
      .flag("--strict", options->strict, "refuse a prompt with characters or words outside the vocabulary")
      .option("--session", options->session, "FILE",
              "continue a session written by --save, with its sampling unless options change it")
      .option("--save", options->save, "FILE", "save the session with its memory, for --session")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .option("--precision", options->precision, "P", "weights on the CPU: float32, bf16 or int8 (default float32)")
      .flag("--json", options->json, "print one JSON object at the end instead of streaming")
      .footer("mnemo generate runs/mine/model --prompt 'Once upon' --tokens 400")
      .action([options] { return generate(*options); });
}

}  // namespace mnemo::cli
