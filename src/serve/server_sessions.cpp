// Sessions of a server: requests of /v1/sessions, and completions that continue one.
#include <ATen/Parallel.h>

#include <algorithm>
#include <ctime>
#include <span>

#include "base/error.h"
#include "base/json_value.h"
#include "base/printable.h"
#include "serve/server.h"

namespace mnemo::serve {
namespace {

int64_t unix_time() { return std::time(nullptr); }

Response answer_of(const base::Node& node, int status = 200) {
  return {.status = status, .body = base::to_json(node, -1)};
}

int64_t number_of(const base::Node& body, const std::string& key, int64_t low, int64_t high, int64_t absent) {
  const base::Node* found = body.find(key);
  if (found == nullptr || found->is_null()) return absent;
  if (!found->is_int() || found->as_int() < low || found->as_int() > high)
    throw ApiError(
        400, fmt::format("'{}': expected an integer from {} to {}, found {}", key, low, high, found->found()), key);
  return found->as_int();
}

std::string name_in(const base::Node& body) {
  const base::Node* found = body.find("name");
  if (found == nullptr || !found->is_string()) throw ApiError(400, "'name': expected a string", "name");
  return found->as_string();
}

void require_keys(const base::Node& body, std::initializer_list<std::string_view> known, bool lenient) {
  for (const auto& [key, value] : body.members()) {
    if (!lenient && std::ranges::find(known, key) == known.end())
      throw ApiError(400, fmt::format("'{}' is not supported", base::printable(key, 60)), base::json_text(key));
  }
}

infer::TextSession::Prompt for_session(infer::TextSession::Prompt prompt, const infer::TextSession& text) {
  if (text.session().position() > 0) {
    prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.begin() + prompt.leading);
    prompt.leading = 0;
  }
  return prompt;
}

std::optional<int64_t> position_in(const base::Node& body) {
  const int64_t position = number_of(body, "if_position", 0, INT64_MAX, -1);
  return position < 0 ? std::nullopt : std::optional(position);
}

}  // namespace

void Server::note_sessions() {
  session_count_ = sessions_->count();
  session_bytes_ = sessions_->bytes();
  session_stored_bytes_ = sessions_->stored_bytes();
}

void Server::sweep() {
  access_log_.flush();
  if (!ready_ || !sessions_) return;
  engine_->post([this] {
    sessions_->sweep(unix_time());
    note_sessions();
  });
}

void Server::finish(const CallPointer& call, Response response) {
  note_sessions();
  release(call);
  answer(call, std::move(response));
}

void Server::to_engine(std::function<void()> work, bool urgent) {
  if (!engine_->post(std::move(work), urgent))
    throw ApiError(429, "the engine has too much to do; try again later", "", "queue_full");
}

void Server::in_engine(const CallPointer& call, std::function<Response()> work, bool urgent) {
  to_engine(
      [this, call, work = std::move(work)] {
        Response response;
        try {
          response = work();
        } catch (const base::InputError& error) {
          response = response_of(ApiError(400, error.what()));
        } catch (...) {
          response = caught(*call);
        }
        finish(call, std::move(response));
      },
      urgent);
}

Response Server::facts(const std::string& id, int status) {
  const base::Node node = sessions_->facts(id, unix_time());
  Response response = answer_of(node, status);
  response.headers = {{"ETag", fmt::format("\"{}\"", node.at("version").as_int())},
                      {"X-Mnemo-Session", id},
                      {"X-Mnemo-Saved", sessions_->safety()}};
  return response;
}

void Server::route_sessions(const Request& request, const CallPointer& call) {
  const std::string& method = request.method;
  const auto other_method = [&] {
    return ApiError(405, fmt::format("{} has no method {}", call->route, base::json_text(method)));
  };
  if (method == "POST" && !request.header("idempotency-key").empty())
    throw ApiError(400, "Idempotency-Key is for /v1/completions; /feed and /score take if_position instead", "",
                   "idempotency_key_not_supported");
  if (request.path == "/v1/sessions") {
    if (method == "POST") return admit(call, [this, call, body = request.body] { create_session(call, body); });
    if (method == "PUT") return admit(call, [this, call, body = request.body] { import_session(call, body); });
    if (method != "GET") throw other_method();
    if (!keys_.required()) throw ApiError(404, "sessions are listed only where --api-key-file is given");
    return admit(call, [this, call] { in_engine(call, [this] { return answer_of(sessions_->list(unix_time())); }); });
  }
  const std::string rest = request.path.substr(std::string("/v1/sessions/").size()),
                    id = rest.substr(0, rest.find('/'));
  const std::string verb = rest.size() == id.size() ? "" : rest.substr(id.size() + 1);
  if (!is_session_id(id)) throw no_session(id);
  const auto now_in_engine = [&](std::function<Response()> work) {
    admit(call, [this, call, work = std::move(work)] { in_engine(call, work); });
  };
  if (verb.empty() || verb == "state") {
    if (method == "DELETE" && verb.empty())
      return now_in_engine([this, id] {
        sessions_->remove(id);
        return answer_of(base::Node::table({{"id", id}, {"object", "session"}, {"deleted", true}}));
      });
    if (method != "GET") throw other_method();
    if (verb.empty()) return now_in_engine([this, id] { return facts(id); });
    return now_in_engine([this, id] {
      const infer::TextSession text = sessions_->begin(id, {}, unix_time());
      sessions_->release(id);
      return Response{.body = text.save_bytes(), .type = "application/octet-stream"};
    });
  }
  if (method != "POST") throw other_method();
  const std::string& body = request.body;
  if (verb == "feed") return admit(call, [this, call, id, body] { feed_session(call, id, body); });
  if (verb == "score") return admit(call, [this, call, id, body] { score_session(call, id, body); });
  const auto with_body = [&](std::function<Response(const base::Node&)> work) {
    admit(call, [this, call, body, work = std::move(work)] {
      const base::Node node = read_body(body.empty() ? "{}" : body, options_.requests);
      in_engine(call, [work, node] { return work(node); });
    });
  };
  if (verb == "fork") return with_body([this, id](const base::Node& node) { return fork_session(id, node); });
  with_body([this, id, marks = verb == "marks"](const base::Node& node) {
    require_keys(node, {"name"}, options_.requests.lenient);
    if (marks) {
      sessions_->mark(id, name_in(node), unix_time());
    } else {
      sessions_->rewind(id, name_in(node), unix_time());
    }
    return facts(id);
  });
}

void Server::create_session(const CallPointer& call, const std::string& body) {
  const base::Node node = read_body(body.empty() ? "{}" : body, options_.requests);
  require_keys(node, {"sampling", "ttl"}, options_.requests.lenient);
  const int64_t ttl = number_of(node, "ttl", 1, options_.sessions.ttl, options_.sessions.ttl);
  CompletionRequest request;
  if (const base::Node* sampling = node.find("sampling"); sampling != nullptr && !sampling->is_null()) {
    if (!sampling->is_table()) throw ApiError(400, "'sampling': expected an object", "sampling");
    request.sampling = read_sampling(*sampling);
    for (const auto& [key, value] : sampling->members()) {
      if (!request.sampling.contains(key))
        throw ApiError(400, fmt::format("'{}' is not supported", base::printable(key, 60)), base::json_text(key));
    }
  }
  infer::TextSession text = *served_->text;
  text.session().set_sampling(request.options({.temperature = 1.0, .seed = random_seed()}));
  in_engine(call, [this, text, ttl] { return facts(sessions_->create(text, ttl, unix_time()), 201); });
}

void Server::import_session(const CallPointer& call, const std::string& bytes) {
  infer::TextSession text = *served_->text;
  try {
    text = served_->text->load_bytes(bytes);
  } catch (const base::InputError& error) {
    throw ApiError(400, error.what(), "", "not_a_session_of_this_model");
  }
  in_engine(call, [this, text] { return facts(sessions_->create(text, {}, unix_time()), 201); });
}

infer::TextSession::Prompt Server::read_prompt(Call& call, const base::Node& body) const {
  const base::Node* prompt = body.find("prompt");
  if (prompt != nullptr && prompt->is_string())
    return read_prompt(call, CompletionRequest::Prompt(prompt->as_string()));
  if (prompt == nullptr || !prompt->is_array()) throw ApiError(400, "'prompt': expected a text or token ids", "prompt");
  std::vector<int64_t> tokens;
  for (const base::Node& token : prompt->items()) {
    if (!token.is_int())
      throw ApiError(400, fmt::format("'prompt': expected token ids, found {}", token.found()), "prompt");
    tokens.push_back(token.as_int());
  }
  return read_prompt(call, CompletionRequest::Prompt(std::move(tokens)));
}

void Server::feed_session(const CallPointer& call, const std::string& id, const std::string& body) {
  const base::Node node = read_body(body, options_.requests);
  require_keys(node, {"prompt", "if_position"}, options_.requests.lenient);
  to_engine([this, call, id, prompt = read_prompt(*call, node), if_position = position_in(node)] {
    bool begun = false;
    try {
      const infer::TextSession& text = sessions_->begin(id, if_position, unix_time());
      begun = true;
      const auto own = for_session(prompt, text);
      const auto request = engine_->scheduler().submit(text, own, {.max_tokens = 0});
      engine_->listen(request, [this, call, id, count = static_cast<int64_t>(own.tokens.size())](auto& event) {
        try {
          if (!event.error.empty()) throw ApiError(500, event.error);
          if (!event.session) return;
          sessions_->commit(id, std::move(*event.session), "", "", unix_time());
          metrics_.tokens(count, 0);
          finish(call, facts(id));
        } catch (...) {
          sessions_->release(id);
          finish(call, caught(*call));
        }
      });
      call->exchange->on_close([this, call, id, request] {
        engine_->post(
            [this, call, id, request] {
              if (!engine_->cancel(request)) return;  // it has just ended
              sessions_->release(id);
              finish(call, response_of(ApiError(408, "the client has left")));
            },
            true);
      });
    } catch (...) {
      if (begun) sessions_->release(id);
      finish(call, caught(*call, "prompt"));
    }
  });
}

void Server::score_session(const CallPointer& call, const std::string& id, const std::string& body) {
  const base::Node node = read_body(body, options_.requests);
  require_keys(node, {"prompt", "if_position"}, options_.requests.lenient);
  const base::Node* said = node.find("prompt");
  if (said == nullptr || !said->is_string()) throw ApiError(400, "'prompt': expected a text", "prompt");
  to_engine([this, call, id, prompt = read_prompt(*call, node), if_position = position_in(node)] {
    bool begun = false;
    try {
      const infer::TextSession& text = sessions_->begin(id, if_position, unix_time());
      begun = true;
      const auto work = std::make_shared<Scoring>(Scoring{call, id, text, for_session(prompt, text)});
      if (!long_.put([this, work] { score_piece(work); }, true)) throw ApiError(503, "the server is stopping");
    } catch (...) {
      if (begun) sessions_->release(id);
      finish(call, caught(*call));
    }
  });
}

/// Scores as many tokens as a pass of the engine has at most. What is left comes after others' pieces, so that short
/// texts do not wait for long ones. Not in the engine's thread, so that its passes go on.
void Server::score_piece(const std::shared_ptr<Scoring>& work) {
  Response failed;
  try {
    base::stop_if_asked(gone(work->call), "score");
    at::set_num_threads(served_->threads);  // LibTorch counts them for each thread
    auto& [tokens, leading] = work->prompt;
    const auto all = std::span<const int64_t>(tokens).subspan(static_cast<size_t>(leading));
    if (work->scored.empty()) work->text.session().feed(std::span(tokens).first(static_cast<size_t>(leading)));
    const auto left = all.subspan(work->scored.size());
    const std::vector<infer::ScoredToken> next = work->text.score(
        left.first(std::min(left.size(), static_cast<size_t>(infer::Engine::kRows))));
    work->scored.insert(work->scored.end(), next.begin(), next.end());
    if (next.size() < left.size()) {
      if (long_.put([this, work] { score_piece(work); }, true)) return;
      throw base::Stopped(1, "score: stopped");
    }
  } catch (const base::Stopped&) {
    failed = response_of(ApiError(408, "the client has left"));
  } catch (...) {
    failed = caught(*work->call, "prompt");
  }
  if (!engine_->post([this, work, failed] { end_score(*work, failed); }, true)) release(work->call);
}

void Server::end_score(const Scoring& work, const Response& failed) {
  try {
    if (!failed.body.empty()) {
      sessions_->release(work.id);
      return finish(work.call, failed);
    }
    base::Node list = base::Node::array();
    for (const infer::ScoredToken& token : work.scored)
      list.push_back(base::Node::table({{"id", token.id},
                                        {"text", base::json_text(token.text)},
                                        {"log_probability", base::json_number(token.log_probability)}}));
    sessions_->commit(work.id, work.text, "", "", unix_time());
    metrics_.tokens(static_cast<int64_t>(work.scored.size()), 0);
    Response response = facts(work.id);
    response.body = base::to_json(base::Node::table({{"tokens", list}, {"position", work.text.session().position()}}),
                                  -1);
    finish(work.call, std::move(response));
  } catch (...) {
    sessions_->release(work.id);
    finish(work.call, caught(*work.call));
  }
}

Response Server::fork_session(const std::string& id, const base::Node& body) {
  require_keys(body, {"seed", "n"}, options_.requests.lenient);
  const int64_t n = number_of(body, "n", 1, 8, 1), seed = number_of(body, "seed", 0, INT64_MAX - 8, -1);
  const infer::TextSession text = sessions_->begin(id, {}, unix_time());
  const int64_t ttl = std::min(sessions_->ttl(id), options_.sessions.ttl);
  sessions_->release(id);
  base::Node all = base::Node::array();
  std::vector<std::string> made;
  try {
    for (int64_t i = 0; i < n; ++i) {
      made.push_back(sessions_->create(seed < 0 ? text : text.fork(seed + i), ttl, unix_time()));
      all.push_back(sessions_->facts(made.back(), unix_time()));
    }
  } catch (...) {  // nobody would learn the ids of the others
    for (const std::string& copy : made) sessions_->remove(copy);
    throw;
  }
  Response response = answer_of(base::Node::table({{"object", "list"}, {"data", all}}), 201);
  response.headers = {{"X-Mnemo-Saved", sessions_->safety()}};
  return response;
}

void Server::complete_session(const std::shared_ptr<Completion>& completion, const CompletionRequest& request,
                              const std::string& key, bool& begun) {
  const std::string& id = request.session;
  try {
    if (!key.empty()) {
      if (const auto known = sessions_->result(id, key, unix_time())) return completion->replay(*known);
    }
    const infer::TextSession& text = sessions_->begin(id, request.if_position, unix_time());
    begun = true;
    const infer::GenerateOptions sampling = text.session().sampling();
    completion->begin(text, [this, id, key, sampling](infer::TextSession next, const std::string& answer) {
      next.session().set_sampling(sampling);  // a request's own is for itself
      sessions_->commit(id, std::move(next), key, answer, unix_time());
    });
  } catch (const ApiError& error) {
    completion->refuse(error);
  }
}

}  // namespace mnemo::serve
