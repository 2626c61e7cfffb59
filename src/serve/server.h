#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/stop.h"
#include "serve/access_log.h"
#include "serve/answers.h"
#include "serve/api_keys.h"
#include "serve/completion.h"
#include "serve/completion_request.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/sessions.h"
#include "serve/task_queue.h"

namespace mnemo::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8080;  ///< 0: any that is free
  std::optional<std::string> api_key_file = {};
  bool insecure = false;      ///< serve other machines without keys
  int64_t max_requests = 32;  ///< texts written at once
  int64_t max_queue = 64;     ///< requests that wait behind them
  int64_t per_key = 64;       ///< requests of one key at a time
  RequestLimits requests = {};
  HttpLimits http = {};
  SessionOptions sessions = {};
  bool access_log = true;  ///< a line of JSON for each request on standard output
  bool log_prompts = false;
};

/// The model that is served: its text, or its answers if it does not continue texts.
struct Served {
  std::string name;                             ///< as /v1/models and requests have it
  std::optional<infer::TextSession> text = {};  ///< without tokens, with a decoding engine
  std::unique_ptr<Answers> answers = {};
  bool resets_segments = false;  ///< the text's memory is reset at every segment
  int threads = 1;               ///< of each pass
  bool has_chat_template = false;
};

/// The HTTP API of one model: completions as OpenAI's clients ask for them, or translations, classes or objects. One
/// thread speaks HTTP, one reads and checks requests, one runs the engine; bounded queues lie between them. Answers
/// that are no completions are made where requests are checked, one after the other. What may take long beside the
/// engine, scores and maps of attention, has a thread of its own.
class Server {
 public:
  /// Listens; requests are answered 503 until open(). Throws InputError for an address that others reach without keys,
  /// and for one that cannot be had.
  explicit Server(const ServerOptions& options);
  ~Server();
  /// Serves the model from now on. Throws InputError if its text has no decoding engine.
  void open(Served served);

  int64_t port() const { return http_->port(); }
  /// Answers /ready with 503 from now on, and requests as before.
  void withdraw() { withdrawn_ = true; }
  /// Whether gateways know: one that asks /ready has been told twice since withdraw(), or none has asked for 10 s.
  bool gateways_know() const;
  /// Takes no more requests; those that are being answered go on.
  void drain();
  /// Requests whose answers are not sent to their last byte.
  int64_t answering() const { return http_->answering(); }
  /// Texts that the engine writes or that wait for it.
  int64_t writing() const { return metrics_.writing(); }
  /// Ends all threads; what is not answered by now is not answered. Stores the sessions, and returns how many could not
  /// be. The destructor calls it.
  int64_t stop();
  /// To be called every second or so: deletes and stores sessions whose time has come.
  void sweep();

 private:
  /// A request while it is answered.
  struct Call {
    std::string method, route, remote, prompts, idempotency_key;
    std::shared_ptr<Exchange> exchange;
    std::optional<size_t> key;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    std::atomic<bool> released = false;  // counted out again
  };
  using CallPointer = std::shared_ptr<Call>;
  /// A text that is being scored.
  struct Scoring {
    CallPointer call;
    std::string id;
    infer::TextSession text;
    infer::TextSession::Prompt prompt;
    std::vector<infer::ScoredToken> scored = {};
  };

  void handle(Request request, std::shared_ptr<Exchange> exchange);
  void route(const Request& request, const CallPointer& call);
  void answer(const CallPointer& call, Response response);
  void refuse(const CallPointer& call, const ApiError& error);
  void log(const Call& call, const Finished& finished);
  void require_key(const Request& request, Call& call) const;
  /// Counts the request in and runs `work` in the thread that checks requests. Throws ApiError if there are too many.
  void admit(const CallPointer& call, std::function<void()> work);
  /// Work whose errors are answered; once the server ends, it is not done.
  TaskQueue::Task guarded(const CallPointer& call, std::function<void()> work);
  /// Whether the answer is for nobody.
  base::ShouldStop gone(const CallPointer& call) const;
  /// Counts it out, however often it is called.
  void release(const CallPointer& call);
  void complete(const CallPointer& call, const std::string& body);
  /// A request of Served::answers.
  void answer_whole(const CallPointer& call, const Request& request);
  void require_model(const base::Node& body) const;
  /// POST /v1/attention {model, prompt}, for the page.
  void show_attention(const CallPointer& call, const std::string& body);
  void complete_session(const std::shared_ptr<Completion>& completion, const CompletionRequest& request,
                        const std::string& key, bool& begun);
  void route_sessions(const Request& request, const CallPointer& call);
  void create_session(const CallPointer& call, const std::string& body);
  void import_session(const CallPointer& call, const std::string& bytes);
  void feed_session(const CallPointer& call, const std::string& id, const std::string& body);
  void score_session(const CallPointer& call, const std::string& id, const std::string& body);
  void score_piece(const std::shared_ptr<Scoring>& work);
  void end_score(const Scoring& work, const Response& failed);
  Response fork_session(const std::string& id, const base::Node& body);
  /// Its tokens; for the log, where that is asked for.
  infer::TextSession::Prompt read_prompt(Call& call, const CompletionRequest::Prompt& prompt) const;
  infer::TextSession::Prompt read_prompt(Call& call, const base::Node& body) const;
  /// Runs `work` in the engine's thread. Throws ApiError if too much waits for it.
  void to_engine(std::function<void()> work, bool urgent = false);
  /// Runs `work` in the engine's thread and answers with what it returns.
  void in_engine(const CallPointer& call, std::function<Response()> work, bool urgent = false);
  void finish(const CallPointer& call, Response response);
  Response response_of(const ApiError& error) const;
  /// The answer to the exception that is being handled. param: that an InputError is about.
  Response caught(const Call& call, const std::string& param = "") const;
  Response facts(const std::string& id, int status = 200);
  void note_sessions();
  Response models(const std::string& id) const;
  Response metrics() const;

  ServerOptions options_;
  ApiKeys keys_;
  Metrics metrics_;
  std::optional<Served> served_;  // from when ready_ is set
  int64_t opened_ = 0;            // Unix time
  std::atomic<bool> ready_ = false, withdrawn_ = false, draining_ = false, stopping_ = false;
  std::atomic<int64_t> ready_asked_ = INT64_MIN / 2, told_ = 0;  // second of the steady clock; answers since withdraw()
  std::atomic<int64_t> in_flight_ = 0;
  std::vector<std::atomic<int64_t>> of_key_;
  std::shared_ptr<base::Console> console_ = base::console();
  AccessLog access_log_{STDOUT_FILENO};
  TaskQueue checks_, long_;
  std::thread checker_, long_worker_;
  std::optional<Sessions> sessions_;  // in the engine's thread
  std::atomic<int64_t> session_count_ = 0, session_bytes_ = 0, session_stored_bytes_ = 0;
  std::unique_ptr<EngineThread> engine_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace mnemo::serve
