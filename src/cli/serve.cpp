#include <fmt/ranges.h>

#include <ATen/Parallel.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/printable.h"
#include "bundle/bundle.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/signals.h"
#include "infer/open_text.h"
#include "models/model.h"
#include "ops/linear/packed_linear.h"
#include "serve/server.h"

namespace mnemo::cli {
namespace {

struct ServeArguments {
  std::string model;
  std::optional<std::string> checkpoint, precision, kv_precision, name;
  std::optional<int64_t> max_tokens, session_megabytes, session_ttl, save_every;
  bool no_access_log = false;
  serve::ServerOptions server;
};

/// "mine" of runs/mine, runs/mine/model and a checkpoint in it.
std::string served_name(const ServeArguments& arguments) {
  if (arguments.name) {
    base::require(!base::first_invalid_utf8(*arguments.name), "serve: --name: expected UTF-8, found {}",
                  base::in_quotes(base::printable(*arguments.name, 80)));
    return *arguments.name;
  }
  std::filesystem::path path = std::filesystem::absolute(arguments.model).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.filename() == "model") path = path.parent_path();
  return base::printable(path.filename().string());
}

/// Refuses options of texts and of their sessions, which have no effect on answers of other kinds.
void require_no_texts(const ServeArguments& arguments) {
  const serve::SessionOptions& sessions = arguments.server.sessions;
  const std::pair<const char*, bool> of_texts[] = {{"--kv-precision", arguments.kv_precision.has_value()},
                                                   {"--max-tokens", arguments.max_tokens.has_value()},
                                                   {"--session-dir", sessions.folder.has_value()},
                                                   {"--store", sessions.store.has_value()},
                                                   {"--session-memory", arguments.session_megabytes.has_value()},
                                                   {"--session-ttl", arguments.session_ttl.has_value()},
                                                   {"--save-every", arguments.save_every.has_value()},
                                                   {"--durable", sessions.durable},
                                                   {"--log-prompts", arguments.server.log_prompts}};
  for (const auto& [name, given] : of_texts)
    base::require(!given, "serve: {} is for models that continue texts; leave it out", name);
}

bool has_chat_template(const std::string& folder) {
  if (base::path_exists(base::join_path(folder, "chat_template.jinja"))) return true;
  const std::string config = base::join_path(folder, "tokenizer_config.json");
  return base::path_exists(config) && base::read_file(config).find("\"chat_template\"") != std::string::npos;
}

/// Serves until a signal comes, then ends the answers in progress.
int serve_model(ServeArguments arguments) {
  constexpr auto kLook = std::chrono::milliseconds(50);
  constexpr int kDrain = 30 * 20, kWithdraw = 5 * 20;  // looks
  const SignalGuard guard("ending the answers in progress, 30 s at most");
  base::allow_open_files(INT64_MAX);  // a connection each, beside the files of sessions
  arguments.server.access_log = !arguments.no_access_log;
  serve::SessionOptions& sessions = arguments.server.sessions;
  sessions.memory = arguments.session_megabytes.value_or(sessions.memory >> 20) << 20;
  sessions.ttl = arguments.session_ttl.value_or(sessions.ttl);
  sessions.save_every = arguments.save_every.value_or(sessions.save_every);
  arguments.server.requests.max_tokens = arguments.max_tokens.value_or(arguments.server.requests.max_tokens);
  base::require(!sessions.durable || sessions.folder,
                "serve: --durable stores sessions in --session-dir, which is not given");
  base::require(!arguments.server.log_prompts || !arguments.no_access_log,
                "serve: --log-prompts puts prompts into the access log; drop --no-access-log");
  base::require(!sessions.store || !sessions.folder,
                "serve: sessions are kept by --store or in --session-dir; give one of them");
  serve::Server server(arguments.server);
  const std::string& host = arguments.server.host;
  base::log_info("listening on http://{}:{} and reading the model",
                 host.find(':') == std::string::npos ? host : "[" + host + "]", server.port());
  const bundle::Bundle stored = bundle::read_bundle(arguments.model, arguments.checkpoint);
  serve::Served served{.name = served_name(arguments),
                       .answers = serve::open_answers(stored, arguments.precision),
                       .resets_segments = stored.conventions.resets_segments(),
                       .has_chat_template = has_chat_template(stored.folder)};
  if (served.answers) {
    require_no_texts(arguments);
  } else {
    stored.words("serve");
    base::require(!arguments.save_every || (sessions.folder && !sessions.durable),
                  "serve: --save-every goes with --session-dir, without --durable");
    served.text = infer::open_text(
        stored, {.precision = arguments.precision.value_or(""), .kv_precision = arguments.kv_precision.value_or("")});
  }
  choose_threads(stored.model->parameters().count(), served.answers ? 8 : 1);
  served.threads = at::get_num_threads();
  const std::string name = served.name;
  server.open(std::move(served));
  base::log_info("ready, serving '{}'", name);
  for (int looks = 1; pending_signal() == 0; ++looks) {
    std::this_thread::sleep_for(kLook);
    if (looks % 20 == 0) server.sweep();
  }
  if (pending_signal() == SIGTERM) {
    server.withdraw();
    for (int i = 0; i < kWithdraw && !server.gateways_know(); ++i) std::this_thread::sleep_for(kLook);
  }
  server.drain();
  for (int i = 0; i < kDrain && server.answering() > 0; ++i) std::this_thread::sleep_for(kLook);
  const int64_t lost = server.stop();
  base::require(lost == 0, "serve: {} sessions could not be stored; the warnings above say why", lost);
  return base::kDone;
}

}  // namespace

void add_serve(CLI::App& app) {
  auto arguments = std::make_shared<ServeArguments>();
  serve::ServerOptions& server = arguments->server;
  Command(app, "serve", "serve over HTTP: completions as OpenAI's clients ask for them, translation, classes, objects")
      .argument("MODEL", arguments->model, "model folder, run folder or checkpoint")
      .option("--checkpoint", arguments->checkpoint, "WHICH", "checkpoint of a run: latest, best or a step")
      .option("--host", server.host, "ADDRESS", "address to listen on (default 127.0.0.1: this machine alone)")
      .option("--port", server.port, "N", "port; 0 takes one that is free (default 8080)", base::range(0, 65535))
      .option("--api-key-file", server.api_key_file, "FILE", "keys that clients must have, one a line")
      .flag("--insecure", server.insecure, "let other machines in without keys")
      .option("--name", arguments->name, "NAME", "the model's name in requests (default: that of its folder)")
      .option("--precision", arguments->precision, "P",
              fmt::format("weights: {} (default float32)", fmt::join(ops::precision_names(), ", ")))
      .option("--kv-precision", arguments->kv_precision, "P",
              "keys and values of texts: auto, which is float32 or bf16 as the weights, or int8 (default auto)")
      .option("--max-tokens", arguments->max_tokens, "N", "tokens that a request may ask for (default 4096)",
              base::range(1, 1 << 24))
      .option("--max-requests", server.max_requests, "N", "texts that are written at once (default 32)",
              base::range(1, 64))
      .option("--max-queue", server.max_queue, "N", "requests that wait behind them (default 64)",
              base::range(1, 65536))
      .option("--session-dir", server.sessions.folder, "FOLDER", "keep sessions there, beyond memory and this process")
      .option("--store", server.sessions.store, "URL",
              "or in Redis, shared with other servers: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]")
      .option("--session-memory", arguments->session_megabytes, "MB", "sessions in memory at most (default 1024)",
              base::range(1, 1 << 24))
      .option("--session-ttl", arguments->session_ttl, "S", "delete sessions not used for S seconds (default 86400)",
              base::range(1, 1 << 30))
      .option("--save-every", arguments->save_every, "S",
              "with --session-dir: store changed sessions within S seconds (default 30)", base::range(1, 86400))
      .flag("--durable", server.sessions.durable, "store a session before its request is answered")
      .flag("--lenient", server.requests.lenient, "ignore parameters that are not supported, instead of refusing them")
      .flag("--log-prompts", server.log_prompts, "put prompts into the access log")
      .flag("--no-access-log", arguments->no_access_log, "print no line for each request")
      .footer(
          "mnemo serve runs/mine --port 8080\n"
          "curl localhost:8080/v1/completions -d '{\"model\": \"mine\", \"prompt\": \"Once\"}'")
      .action([arguments] { return serve_model(*arguments); });
}

}  // namespace mnemo::cli
