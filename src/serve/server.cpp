#include "serve/server.h"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <ctime>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json_value.h"
#include "base/printable.h"
#include "page/embedded.h"
#include "serve/attention_view.h"

namespace mnemo::serve {
namespace {

const std::string kModels = "/v1/models";
constexpr std::string_view kWarning = "warning: ";

/// The path as logs and metrics name it: without ids.
std::string route_of(const std::string& path) {
  for (const char* known :
       {"/", "/health", "/ready", "/metrics", "/v1/models", "/v1/completions", "/v1/sessions", "/v1/chat/completions",
        "/v1/embeddings", "/v1/translate", "/v1/classify", "/v1/detect", "/v1/attention"}) {
    if (path == known) return path;
  }
  if (path.starts_with("/v1/sessions/")) {
    const size_t verb = path.find('/', std::string("/v1/sessions/").size());
    for (const char* known : {"", "/feed", "/score", "/fork", "/marks", "/rewind", "/state"}) {
      if ((verb == std::string::npos ? "" : path.substr(verb)) == known) return std::string("/v1/sessions/ID") + known;
    }
    return "other";
  }
  return path.starts_with(kModels + "/") ? kModels : "other";
}

void require_method(const Request& request, std::string_view method) {
  if (request.method == method || (method == "GET" && request.method == "HEAD")) return;
  throw ApiError(
      405, fmt::format("{}: expected the method {}, found {}", request.path, method, base::json_text(request.method)));
}

int64_t steady_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Response json(const base::Node& node) { return {.body = base::to_json(node, -1)}; }

/// Whether a body is an image that its header calls one.
bool is_image(const Request& request) {
  const std::string type = base::lower_case(request.header("content-type"));
  if (type.starts_with("image/")) return true;
  const bool like_one = request.body.starts_with("\xFF\xD8\xFF") || request.body.starts_with("\x89PNG");
  if (!like_one && !type.starts_with("multipart/")) return false;
  throw ApiError(
      400,
      fmt::format("expected an image with Content-Type image/jpeg or image/png, or JSON with images as Base64 "
                  "in 'input'; found {} with Content-Type '{}'",
                  like_one ? "an image" : "a body", base::printable(type, 60)),
      "input");
}

[[noreturn]] void refuse_query(const std::string& query) {
  const std::string name = query.substr(0, query.find_first_of("=&"));
  throw ApiError(400,
                 fmt::format("'{}' is not read from the query; send JSON with it, and images as Base64 in 'input'",
                             base::printable(name, 60)),
                 base::json_text(name));
}

[[noreturn]] void refuse_chat(bool has_template) {
  std::string message = "this model continues texts; use POST /v1/completions with the conversation as the prompt";
  if (has_template) message += " (the model's folder has a chat template, which is not applied)";
  throw ApiError(400, message, "", "chat_not_supported");
}

}  // namespace

Server::Server(const ServerOptions& options)
    : options_(options),
      keys_(options.api_key_file ? ApiKeys(*options.api_key_file) : ApiKeys()),
      of_key_(std::max<size_t>(1, keys_.size())),
      checks_(static_cast<size_t>(options.max_queue + options.max_requests)),
      long_(0) {
  base::require(is_loopback(options.host) || keys_.required() || options.insecure,
                "serve: other machines would reach {} without a key; give --api-key-file, or --insecure if a proxy "
                "checks who asks",
                options.host);
  const auto run = [](TaskQueue& queue) {
    const auto quiet = std::make_shared<base::Console>([](std::string_view) {});
    const base::ConsoleScope scope(quiet);  // what tokenizers say of a prompt is not for the log
    for (std::deque<TaskQueue::Task> tasks = queue.take(true); !tasks.empty(); tasks = queue.take(true)) {
      for (const TaskQueue::Task& task : tasks) task();
    }
  };
  checker_ = std::thread([this, run] { run(checks_); });
  long_worker_ = std::thread([this, run] { run(long_); });
  try {
    http_ = std::make_unique<HttpServer>(
        options.host, options.port, options.http,
        [this](const Request& request) { return !keys_.required() || keys_.find(request.header("authorization")); },
        [this](Request request, std::shared_ptr<Exchange> exchange) {
          handle(std::move(request), std::move(exchange));
        },
        [this](int status) { metrics_.request("other", status); });
  } catch (...) {
    checks_.stop();
    long_.stop();
    checker_.join();
    long_worker_.join();
    throw;
  }
}

Server::~Server() { stop(); }

int64_t Server::stop() {
  if (stopping_.exchange(true)) return 0;
  draining_ = true;
  http_->stop();
  checks_.stop();
  long_.stop();
  if (engine_) engine_->stop();
  const int64_t lost = sessions_ ? sessions_->save_all() : 0;  // before the threads end, which may take a while
  checker_.join();
  long_worker_.join();
  engine_.reset();
  return lost;
}

void Server::open(Served served) {
  served_ = std::move(served);
  opened_ = std::time(nullptr);
  if (!served_->text) {
    ready_ = true;
    return;
  }
  const auto engine = served_->text->session().shared_engine();
  base::require(engine != nullptr, "serve: the decoding engine cannot run this model: {}",
                infer::unsupported_reason(served_->text->session().model()));
  infer::Scheduler::Options scheduler;
  scheduler.max_running = options_.max_requests;
  scheduler.turn = 16;
  scheduler.max_waiting = int64_t{64} * (options_.max_queue + options_.max_requests);
  engine_ = std::make_unique<EngineThread>(engine, scheduler, served_->threads,
                                           static_cast<size_t>(options_.max_queue + options_.max_requests), metrics_);
  sessions_.emplace(options_.sessions, *served_->text, open_store(options_.sessions));
  note_sessions();
  ready_ = true;
}

bool Server::gateways_know() const { return told_ >= 2 || steady_seconds() - ready_asked_ > 10; }

void Server::drain() {
  draining_ = true;
  http_->stop_accepting();
}

void Server::handle(Request request, std::shared_ptr<Exchange> exchange) {
  auto call = std::make_shared<Call>();
  call->method = request.method;
  call->route = route_of(request.path);
  call->remote = request.remote;
  call->exchange = std::move(exchange);
  try {
    route(request, call);
  } catch (const ApiError& error) {
    refuse(call, error);
  } catch (const std::exception& error) {
    base::log_warning("serve: {}: {}", call->route, error.what());
    answer(call, error_response(500, "internal error"));
  }
}

void Server::route(const Request& request, const CallPointer& call) {
  const std::string& path = request.path;
  const bool ready = ready_ && !draining_;
  if (path == "/health") {
    require_method(request, "GET");
    return answer(call, json(base::Node::table({{"status", "ok"}})));
  }
  if (path == "/ready") {
    require_method(request, "GET");
    ready_asked_ = steady_seconds();
    if (withdrawn_) ++told_;
    if (!ready || withdrawn_) throw ApiError(503, ready_ ? "stopping" : "loading the model");
    return answer(call, json(base::Node::table({{"status", "ready"}})));
  }
  if (path == "/") {
    require_method(request, "GET");
    return answer(call, {.body = std::string(page::embedded_file("serve.html")), .type = "text/html; charset=utf-8"});
  }
  require_key(request, *call);
  if (path == "/metrics") {
    require_method(request, "GET");
    return answer(call, metrics());
  }
  if (call->route == "other") throw ApiError(404, fmt::format("there is no {}", base::json_text(path)));
  if (!ready) throw ApiError(503, draining_ ? "the server is stopping" : "the model is being loaded");
  if (call->route == kModels) {
    require_method(request, "GET");
    return answer(call, models(path == kModels ? "" : path.substr(kModels.size() + 1)));
  }
  const std::string own = served_->text ? "/v1/completions" : served_->answers->route();
  if (served_->text && call->route.starts_with("/v1/sessions")) return route_sessions(request, call);
  require_method(request, "POST");
  if (served_->text && path == "/v1/chat/completions") refuse_chat(served_->has_chat_template);
  if (served_->text && path == "/v1/attention")
    return admit(call, [this, call, body = request.body] { show_attention(call, body); });
  if (path != own) {
    const std::string what = call->route.substr(std::string("/v1/").size());
    throw ApiError(400, fmt::format("the model '{}' has no {}; use POST {}", served_->name, what, own), "",
                   what.substr(0, what.find('/')) + "_not_supported");
  }
  if (served_->answers) return admit(call, [this, call, request] { answer_whole(call, request); });
  call->idempotency_key = request_key(request.header("idempotency-key"), request.body);
  admit(call, [this, call, body = request.body] { complete(call, body); });
}

void Server::require_key(const Request& request, Call& call) const {
  if (!keys_.required()) return;
  call.key = keys_.find(request.header("authorization"));
  if (!call.key)
    throw ApiError(401, "expected one of the server's keys as 'Authorization: Bearer KEY'", "", "invalid_api_key");
}

void Server::admit(const CallPointer& call, std::function<void()> work) {
  std::atomic<int64_t>& of_key = of_key_[call->key.value_or(0)];
  if (in_flight_ >= options_.max_requests + options_.max_queue)
    throw ApiError(429, fmt::format("{} requests are being answered already; try again later", in_flight_.load()), "",
                   "queue_full");
  if (keys_.required() && of_key >= options_.per_key)
    throw ApiError(429, fmt::format("{} requests of this key are being answered already", of_key.load()), "",
                   "too_many_requests");
  ++in_flight_;
  ++of_key;
  if (checks_.put(guarded(call, std::move(work)))) return;
  release(call);
  throw ApiError(429, "too many requests wait to be read; try again later", "", "queue_full");
}

TaskQueue::Task Server::guarded(const CallPointer& call, std::function<void()> work) {
  return [this, call, work = std::move(work)] {
    try {
      base::stop_if_asked([this] { return stopping_ ? 1 : 0; }, "serve");
      work();
    } catch (const base::Stopped&) {
      release(call);
      log(*call, {.aborted = true});
    } catch (...) {
      release(call);
      answer(call, caught(*call));
    }
  };
}

base::ShouldStop Server::gone(const CallPointer& call) const {
  return [this, call] { return stopping_ || call->exchange->closed() ? 1 : 0; };
}

void Server::release(const CallPointer& call) {
  if (call->released.exchange(true)) return;
  --of_key_[call->key.value_or(0)];
  --in_flight_;
}

void Server::require_model(const base::Node& body) const {
  const base::Node* found = body.find("model");
  const std::string name = found != nullptr && found->is_string() ? found->as_string() : "";
  if (name == served_->name) return;
  throw ApiError(404, fmt::format("'model': expected '{}', found '{}'", served_->name, base::json_text(name)), "model",
                 "model_not_found");
}

void Server::show_attention(const CallPointer& call, const std::string& body) {
  const base::Node node = read_body(body, options_.requests);
  require_model(node);
  const base::Node* prompt = node.find("prompt");
  if (prompt == nullptr || !prompt->is_string()) throw ApiError(400, "'prompt': expected a text", "prompt");
  const auto show = [this, call, text = prompt->as_string()] {
    at::set_num_threads(served_->threads);  // LibTorch counts them for each thread
    Response response = json(last_attention(*served_->text, served_->resets_segments, text, gone(call)));
    release(call);
    answer(call, std::move(response));
  };
  if (!long_.put(guarded(call, show), true)) release(call);
}

void Server::answer_whole(const CallPointer& call, const Request& request) {
  at::set_num_threads(served_->threads);  // LibTorch counts them for each thread
  Question question;
  question.lenient = options_.requests.lenient;
  if (!question.lenient && !request.query.empty()) refuse_query(request.query);
  if (is_image(request)) {
    question.image = request.body;
  } else {
    question.body = read_body(request.body, options_.requests);
    require_model(question.body);
  }
  base::Node warnings = base::Node::array();
  const auto console = std::make_shared<base::Console>([&warnings](std::string_view line) {
    line.remove_suffix(line.ends_with('\n') ? 1 : 0);
    line.remove_prefix(line.starts_with(kWarning) ? kWarning.size() : 0);
    warnings.push_back(base::json_text(line));
  });
  console->set_level(base::LogLevel::warning);
  const base::ConsoleScope scope(console);
  try {
    base::Node answer = served_->answers->answer(question, gone(call));
    answer.set("model", served_->name);
    if (warnings.size() > 0) answer.set("warnings", std::move(warnings));
    Response response = json(answer);
    release(call);
    this->answer(call, std::move(response));
  } catch (const base::NotFinite& error) {
    throw ApiError(500, error.what());  // the model's fault
  } catch (const base::InputError& error) {
    throw ApiError(400, error.what(), "input");
  }
}

infer::TextSession::Prompt Server::read_prompt(Call& call, const CompletionRequest::Prompt& prompt) const {
  if (const auto* ids = std::get_if<std::vector<int64_t>>(&prompt)) {
    if (options_.log_prompts) call.prompts += fmt::format("[{}]", fmt::join(*ids, ","));
    return {*ids, 0};
  }
  const std::string& text = std::get<std::string>(prompt);
  if (options_.log_prompts) call.prompts += text;
  try {
    return served_->text->prompt(text);
  } catch (const base::InputError& error) {
    throw ApiError(400, error.what(), "prompt");
  }
}

void Server::complete(const CallPointer& call, const std::string& body) {
  CompletionRequest request = read_completion(body, options_.requests);
  require_model(base::Node::table({{"model", request.model}}));
  std::vector<infer::TextSession::Prompt> prompts;
  for (const CompletionRequest::Prompt& prompt : request.prompts) prompts.push_back(read_prompt(*call, prompt));
  Completion::Surroundings around{*engine_, metrics_, served_->name, [this, call](const Finished& finished) {
                                    release(call);
                                    log(*call, finished);
                                  }};
  const auto begun = std::make_shared<bool>(false);
  if (!request.session.empty()) {
    around.headers = {{"X-Mnemo-Session", request.session}, {"X-Mnemo-Saved", sessions_->safety()}};
    around.done = [this, call, begun, id = request.session](const Finished& finished) {
      if (*begun) sessions_->release(id);
      note_sessions();
      release(call);
      log(*call, finished);
    };
  }
  const auto completion = std::make_shared<Completion>(std::move(around), request, std::move(prompts), call->exchange);
  to_engine([this, call, completion, request, begun] {
    try {
      if (request.session.empty()) return completion->begin(*served_->text);
      complete_session(completion, request, call->idempotency_key, *begun);
    } catch (const std::exception& error) {
      base::log_warning("serve: {}: {}", call->route, error.what());
      completion->refuse(ApiError(500, "internal error"));
    }
  });
}

Response Server::models(const std::string& id) const {
  if (!id.empty() && percent_decoded(id) != served_->name)
    throw ApiError(404, fmt::format("there is no model '{}'; this server has '{}'", base::json_text(id), served_->name),
                   "model", "model_not_found");
  const base::Node model = base::Node::table(
      {{"id", served_->name}, {"object", "model"}, {"created", opened_}, {"owned_by", "mnemo"}});
  if (!id.empty()) return json(model);
  return json(base::Node::table({{"object", "list"}, {"data", base::Node::array({model})}}));
}

Response Server::metrics() const {
  Metrics::Now now;
  now.ready = ready_ && !withdrawn_ && !draining_;
  now.in_flight = in_flight_;
  now.connections = http_->connections();
  now.sessions = session_count_;
  now.session_bytes = session_bytes_;
  now.stored_bytes = session_stored_bytes_;
  return {.body = metrics_.text(now), .type = "text/plain; version=0.0.4"};
}

void Server::answer(const CallPointer& call, Response response) {
  Finished finished;
  finished.status = response.status;
  call->exchange->respond(std::move(response));
  log(*call, finished);
}

Response Server::response_of(const ApiError& error) const {
  Response response = error_response(error.status, error.what(), error.code, error.param);
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (!error.code.empty() && error.status == 400) response.headers.emplace_back("x-should-retry", "false");
  return response;
}

Response Server::caught(const Call& call, const std::string& param) const {
  const base::ConsoleScope scope(console_);
  try {
    throw;
  } catch (const ApiError& error) {
    return response_of(error);
  } catch (const base::InputError& error) {
    if (!param.empty()) return response_of(ApiError(400, error.what(), param));
    base::log_warning("serve: {}: {}", call.route, error.what());
  } catch (const std::exception& error) {
    base::log_warning("serve: {}: {}", call.route, error.what());
  }
  return error_response(500, "internal error");
}

void Server::refuse(const CallPointer& call, const ApiError& error) { answer(call, response_of(error)); }

void Server::log(const Call& call, const Finished& finished) {
  metrics_.request(call.route, finished.aborted ? 499 : finished.status);
  if (!options_.access_log) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - call.begin).count();
  base::Node line = base::Node::table({{"time", std::time(nullptr)},
                                       {"remote", call.remote},
                                       {"method", base::json_text(call.method)},
                                       {"path", call.route},
                                       {"status", finished.aborted ? 499 : finished.status},
                                       {"seconds", base::rounded(seconds)}});
  if (finished.tokens_in + finished.tokens_out > 0) {
    line.set("tokens_in", finished.tokens_in);
    line.set("tokens_out", finished.tokens_out);
    line.set("first_token_seconds", base::rounded(finished.first_token_s));
  }
  if (!call.prompts.empty()) line.set("prompt", base::json_text(call.prompts));
  access_log_.write(base::to_json(line, -1) + "\n");
}

}  // namespace mnemo::serve
