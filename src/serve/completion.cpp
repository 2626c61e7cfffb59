#include "serve/completion.h"

#include <algorithm>
#include <ctime>
#include <random>

#include "base/error.h"
#include "base/json_value.h"
#include "base/text_format.h"
#include "base/utf8.h"

namespace mnemo::serve {
namespace {

// Bytes of an answer that are unsent: its texts wait from the first border between segments after kManyUnsent, and from
// kMostUnsent anywhere.
constexpr size_t kManyUnsent = 48 << 10, kMostUnsent = 64 << 10;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int64_t random_seed() { return static_cast<int64_t>(std::random_device()()); }

std::string random_hex(size_t bytes) {
  std::random_device random;
  std::string out;
  while (out.size() < 2 * bytes) out += fmt::format("{:08x}", random());
  out.resize(2 * bytes);
  return out;
}

Completion::Completion(Surroundings surroundings, CompletionRequest request,
                       std::vector<infer::TextSession::Prompt> prompts, std::shared_ptr<Exchange> exchange)
    : around_(std::move(surroundings)),
      request_(std::move(request)),
      prompts_(std::move(prompts)),
      exchange_(std::move(exchange)),
      id_("cmpl-" + random_hex(12)),
      created_(std::time(nullptr)),
      begin_(std::chrono::steady_clock::now()) {}

infer::GenerateOptions Completion::options_of(const infer::TextSession& text) const {
  const infer::GenerateOptions otherwise = request_.session.empty()
                                               ? infer::GenerateOptions{.temperature = 1.0, .seed = random_seed()}
                                               : text.session().sampling();
  return request_.options(otherwise);
}

void Completion::begin(const infer::TextSession& text, Commit commit) {
  if (exchange_->closed()) return leave();
  commit_ = std::move(commit);
  tokenizer_ = text.shared_tokenizer();
  choices_.resize(prompts_.size() * static_cast<size_t>(request_.n));
  left_ = choices_.size();
  exchange_->on_close([weak = weak_from_this(), &engine = around_.engine] {
    engine.post(
        [weak] {
          if (const auto self = weak.lock()) self->leave();
        },
        true);
  });
  try {
    infer::TextSession opened = text;
    for (infer::TextSession::Prompt& prompt : prompts_) {
      if (text.session().position() == 0) continue;  // what stands in front of a text has been read
      prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.begin() + prompt.leading);
      prompt.leading = 0;
    }
    for (size_t p = 0; p < prompts_.size(); ++p) {
      // Where no seed is given each prompt has one of its own, so equal prompts get different texts.
      const infer::GenerateOptions options = options_of(text);
      opened.session().set_sampling(options);
      finished_.tokens_in += static_cast<int64_t>(prompts_[p].tokens.size());
      const size_t first = p * static_cast<size_t>(request_.n);
      for (size_t i = 0; i < static_cast<size_t>(request_.n); ++i) {
        Choice& choice = choices_[first + i];
        choice.index = static_cast<int64_t>(first + i);
        if (request_.echo) {
          const auto& said = request_.prompts[p];
          choice.text = std::holds_alternative<std::string>(said)
                            ? std::get<std::string>(said)
                            : base::json_text(tokenizer_->decode(std::get<std::vector<int64_t>>(said)));
        }
        choice.characters = base::count_characters(choice.text);
        whole_ = choice;
      }
      if (request_.n == 1) {
        submit(first, opened, prompts_[p]);
        continue;
      }
      // The prompt is read once; then it is forked.
      infer::GenerateOptions reads = options;
      reads.max_tokens = 0;
      const auto id = around_.engine.scheduler().submit(opened, prompts_[p], reads);
      reading_.push_back(id);
      around_.engine.listen(id, [self = shared_from_this(), first, seed = options.seed](auto& event) {
        if (self->ended_) return;
        if (!event.error.empty()) return self->fail(500, event.error);
        if (!event.session) return;
        try {
          for (int64_t i = 0; i < self->request_.n; ++i)
            self->submit(first + static_cast<size_t>(i), event.session->fork(seed + i), {});
        } catch (const base::InputError& error) {
          self->fail(400, error.what());
        }
      });
    }
  } catch (const ApiError& error) {
    refuse(error);
  } catch (const base::InputError& error) {
    refuse(ApiError(400, error.what(), "prompt"));
  }
}

void Completion::submit(size_t choice, const infer::TextSession& text, const infer::TextSession::Prompt& prompt) {
  infer::GenerateOptions options = text.session().sampling();
  options.max_tokens = request_.max_tokens;
  options.stop = request_.stop;
  const auto id = around_.engine.scheduler().submit(text, prompt, options, request_.logprobs);
  choices_[choice].id = id;
  choices_[choice].last = std::chrono::steady_clock::now();
  around_.engine.listen(id, [self = shared_from_this(), choice](auto& event) { self->on_event(choice, event); });
  if (held_) around_.engine.scheduler().hold(id, true);
}

void Completion::on_event(size_t number, infer::Scheduler::Event& event) {
  if (ended_) return;
  Choice& choice = choices_[number];
  if (!event.error.empty()) return fail(500, event.error);
  if (event.token >= 0) note_token(choice, event);
  const std::string text = event.text + (event.session ? event.session->unfinished() : "");
  choice.text += text;
  choice.reason = event.reason;
  whole_.text += commit_ ? text : "";
  whole_.reason = choice.reason;
  if (event.session) {
    choice.id = -1;
    --left_;
    if (commit_) {
      try {
        commit_(std::move(*event.session), whole_answer());
      } catch (const ApiError& error) {
        return refuse(error);
      }
    }
  }
  if (request_.stream && (!choice.text.empty() || event.session)) send_chunk(choice);
  if (left_ == 0) finish();
}

void Completion::note_token(Choice& choice, const infer::Scheduler::Event& event) {
  const auto now = std::chrono::steady_clock::now();
  if (finished_.tokens_out++ == 0) {
    finished_.first_token_s = seconds_since(begin_);
    around_.metrics.first_token(finished_.first_token_s);
  } else {
    around_.metrics.token_gap(std::chrono::duration<double>(now - choice.last).count());
  }
  choice.last = now;
  if (request_.logprobs < 0) return;
  const auto text_of = [&](int64_t token) {
    return base::Node(token < tokenizer_->size() ? base::json_text(tokenizer_->decode(std::span(&token, 1))) : "");
  };
  base::Node likely = base::Node::table();
  for (size_t i = 1; i < event.likely.size(); ++i)
    likely.set(text_of(event.likely[i].first).as_string(), base::json_number(event.likely[i].second));
  const base::Node token = text_of(event.token), logprob = base::json_number(event.likely.front().second);
  choice.note(token, logprob, likely, event);
  if (commit_) whole_.note(token, logprob, likely, event);
}

void Completion::Choice::note(const base::Node& token, const base::Node& logprob, const base::Node& likely,
                              const infer::Scheduler::Event& event) {
  tokens.push_back(token);
  token_logprobs.push_back(logprob);
  top_logprobs.push_back(likely);
  offsets.push_back(characters + event.held);
  characters += base::count_characters(event.text);
}

base::Node Completion::choice_node(Choice& choice) const {
  base::Node logprobs;
  if (!choice.tokens.is_null()) {
    logprobs = base::Node::table({{"tokens", std::exchange(choice.tokens, {})},
                                  {"token_logprobs", std::exchange(choice.token_logprobs, {})},
                                  {"top_logprobs", std::exchange(choice.top_logprobs, {})},
                                  {"text_offset", std::exchange(choice.offsets, {})}});
  }
  const std::string_view reason = infer::name_of(choice.reason);
  return base::Node::table({{"index", choice.index},
                            {"text", std::exchange(choice.text, {})},
                            {"logprobs", logprobs},
                            {"finish_reason", reason.empty() ? base::Node() : base::Node(reason)}});
}

base::Node Completion::body(base::Node choices) const {
  return base::Node::table({{"id", id_},
                            {"object", "text_completion"},
                            {"created", created_},
                            {"model", around_.model},
                            {"choices", std::move(choices)}});
}

base::Node Completion::usage() const {
  return base::Node::table({{"prompt_tokens", finished_.tokens_in},
                            {"completion_tokens", finished_.tokens_out},
                            {"total_tokens", finished_.tokens_in + finished_.tokens_out}});
}

std::string Completion::whole_answer() const {
  Choice all = whole_;
  // A part that is kept: the client's leaving has limited its length.
  if (all.reason == infer::FinishReason::none) all.reason = infer::FinishReason::length;
  base::Node whole = body(base::Node::array({choice_node(all)}));
  whole.set("usage", usage());
  return base::to_json(whole, -1);
}

void Completion::replay(const std::string& answer) {
  if (exchange_->closed()) return leave();
  around_.headers.emplace_back("X-Mnemo-Replayed", "true");
  if (!request_.stream) {
    exchange_->respond({.body = answer, .headers = around_.headers});
    return end(finished_);
  }
  base::Node chunk = base::parse_json(answer, "answer", {.max_bytes = answer.size()});
  const base::Node used = chunk.at("usage");
  chunk.erase("usage");
  send(base::to_json(chunk, -1));
  if (request_.include_usage) {
    chunk.set("choices", base::Node::array());
    chunk.set("usage", used);
    send(base::to_json(chunk, -1));
  }
  exchange_->write("data: [DONE]\n\n");
  exchange_->finish();
  end(finished_);
}

void Completion::send_chunk(Choice& choice) {
  const bool plain = choice.reason == infer::FinishReason::none && choice.tokens.is_null();
  if (plain && !choice.frame.empty()) {
    const std::string text = base::json_string(std::exchange(choice.text, {}));
    return send(std::string(choice.frame).replace(choice.text_at, 2, text));
  }
  // All chunks but the last differ in their texts alone: the first, with an empty text, is kept for the others.
  std::string text = plain ? std::exchange(choice.text, {}) : "";
  base::Node chunk = body(base::Node::array({choice_node(choice)}));
  if (request_.include_usage) chunk.set("usage", base::Node());
  if (!plain) return send(base::to_json(chunk, -1));
  choice.frame = base::to_json(chunk, -1);
  constexpr std::string_view kEmpty = R"("text":"")";
  choice.text_at = choice.frame.find(kEmpty) + kEmpty.size() - 2;
  choice.text = std::move(text);
  send_chunk(choice);
}

void Completion::send(const std::string& chunk) {
  if (!started_) {
    started_ = true;
    Headers headers = around_.headers;
    headers.emplace_back("Cache-Control", "no-store");
    headers.emplace_back("X-Accel-Buffering", "no");
    exchange_->start(200, "text/event-stream", std::move(headers));
  }
  exchange_->write("data: " + chunk + "\n\n");
  const size_t unsent = exchange_->unsent();
  const auto may_wait = [this](const Choice& choice) {
    return choice.id < 0 || around_.engine.scheduler().between_segments(choice.id);
  };
  if (held_ || unsent <= kManyUnsent || (unsent <= kMostUnsent && !std::ranges::all_of(choices_, may_wait))) return;
  // The client reads more slowly than the model writes.
  held_ = true;
  const auto hold = [](Completion& self, bool holds) {
    self.held_ = holds;
    for (const Choice& choice : self.choices_) {
      if (choice.id >= 0) self.around_.engine.scheduler().hold(choice.id, holds);
    }
  };
  hold(*this, true);
  exchange_->on_drained([weak = weak_from_this(), hold, &engine = around_.engine] {
    engine.post(
        [weak, hold] {
          if (const auto self = weak.lock(); self && self->held_) hold(*self, false);
        },
        true);
  });
}

void Completion::finish() {
  if (!request_.stream) {
    base::Node choices = base::Node::array();
    for (Choice& choice : choices_) choices.push_back(choice_node(choice));
    base::Node whole = body(std::move(choices));
    whole.set("usage", usage());
    exchange_->respond({.body = base::to_json(whole, -1), .headers = around_.headers});
  } else {
    if (request_.include_usage) {
      base::Node last = body(base::Node::array());
      last.set("usage", usage());
      send(base::to_json(last, -1));
    }
    exchange_->write("data: [DONE]\n\n");
    exchange_->finish();
  }
  end(finished_);
}

void Completion::refuse(const ApiError& error) {
  if (ended_) return;
  for (const Choice& choice : choices_) {
    if (choice.id >= 0) around_.engine.cancel(choice.id);
  }
  for (const auto id : reading_) around_.engine.cancel(id);
  Response response = error_response(error.status, error.what(), error.code, error.param);
  if (error.status == 500) response.headers.emplace_back("x-should-retry", "false");
  if (!started_) {
    exchange_->respond(std::move(response));
  } else {
    exchange_->write("data: " + response.body + "\n\n");
    exchange_->finish();
  }
  finished_.status = error.status;
  end(finished_);
}

void Completion::fail(int status, const std::string& message) { refuse(ApiError(status, message)); }

/// The client has left.
void Completion::leave() {
  if (ended_) return;
  finished_.aborted = true;
  for (const auto id : reading_) around_.engine.cancel(id);
  for (const Choice& choice : choices_) {
    if (choice.id < 0) continue;
    auto partial = around_.engine.cancel(choice.id);
    // Without a token the prompt may have been read in part: then the session stays as it was.
    if (!partial || !commit_ || !request_.keep_partial || finished_.tokens_out == 0) continue;
    try {
      commit_(std::move(*partial), whole_answer());
    } catch (const ApiError&) {  // there is nobody to tell
    }
  }
  end(finished_);
}

void Completion::end(const Finished& finished) {
  ended_ = true;
  around_.metrics.tokens(finished.tokens_in, finished.tokens_out);
  around_.done(finished);
}

}  // namespace mnemo::serve
