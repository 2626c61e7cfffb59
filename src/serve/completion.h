#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/completion_request.h"
#include "serve/engine_thread.h"
#include "serve/http.h"

namespace mnemo::serve {

/// What a request came to, for the log.
struct Finished {
  int status = 200;
  bool aborted = false;  ///< the client left
  int64_t tokens_in = 0, tokens_out = 0;
  double first_token_s = 0;
};

/// One request of /v1/completions while it is answered: up to 64 texts of the scheduler. All but the constructor is for
/// the engine's thread.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  /// Called with the session after its last token, whole or as far as it came (keep_partial), and with the answer as
  /// JSON; throws ApiError.
  using Commit = std::function<void(infer::TextSession session, const std::string& answer)>;
  struct Surroundings {
    EngineThread& engine;
    Metrics& metrics;
    std::string model;
    std::function<void(const Finished&)> done;  ///< called once
    Headers headers = {};                       ///< of the answer
  };

  /// prompts: those of the request as tokens.
  Completion(Surroundings surroundings, CompletionRequest request, std::vector<infer::TextSession::Prompt> prompts,
             std::shared_ptr<Exchange> exchange);

  /// Begins to write after `text`, which is copied.
  void begin(const infer::TextSession& text, Commit commit = {});
  void refuse(const ApiError& error);
  /// Answers as a request was answered before.
  void replay(const std::string& answer);

 private:
  struct Choice {
    int64_t index = 0;
    infer::Scheduler::Id id = -1;
    std::string text;   // all of it, or what the next chunk has
    std::string frame;  // a chunk with an empty text, which is at `text_at`; empty before the first
    size_t text_at = 0;
    int64_t characters = 0;
    base::Node tokens, token_logprobs, top_logprobs, offsets;  // arrays; null without logprobs
    void note(const base::Node& token, const base::Node& logprob, const base::Node& likely,
              const infer::Scheduler::Event& event);
    infer::FinishReason reason = infer::FinishReason::none;
    std::chrono::steady_clock::time_point last;
  };
  void submit(size_t choice, const infer::TextSession& text, const infer::TextSession::Prompt& prompt);
  void on_event(size_t choice, infer::Scheduler::Event& event);
  void note_token(Choice& choice, const infer::Scheduler::Event& event);
  void send_chunk(Choice& choice);
  void send(const std::string& chunk);
  void finish();
  void fail(int status, const std::string& message);
  void leave();
  void end(const Finished& finished);
  std::string whole_answer() const;
  base::Node choice_node(Choice& choice) const;
  base::Node body(base::Node choices) const;
  base::Node usage() const;
  infer::GenerateOptions options_of(const infer::TextSession& text) const;

  Surroundings around_;
  CompletionRequest request_;
  std::vector<infer::TextSession::Prompt> prompts_;
  std::shared_ptr<Exchange> exchange_;
  Commit commit_;
  std::string id_;
  Choice whole_;  // all that a session's request has written
  int64_t created_;
  std::chrono::steady_clock::time_point begin_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<Choice> choices_;
  std::vector<infer::Scheduler::Id> reading_;  // prompts of which several texts will be written
  size_t left_ = 0;
  bool ended_ = false, held_ = false, started_ = false;
  Finished finished_;
};

/// A seed for who gives none.
int64_t random_seed();
/// Random hexadecimal digits, from the system; two for each byte.
std::string random_hex(size_t bytes);

}  // namespace mnemo::serve
