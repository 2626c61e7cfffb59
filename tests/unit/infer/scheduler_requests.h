#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "infer/scheduler.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/unit/infer/decoding_cases.h"

/// Requests to a scheduler, and what each writes alone.
namespace mnemo::infer {

inline std::shared_ptr<const text::Tokenizer> tokenizer() {
  static const auto shared = std::make_shared<test::PiecesTokenizer>(kVocabulary);
  return shared;
}

inline TextSession open(const std::shared_ptr<const Engine>& engine, const GenerateOptions& options,
                        bool reset = false) {
  Session session(engine, options);
  session.set_reset_segments(reset);
  return {std::move(session), tokenizer(), {5}};
}

struct Request {
  std::vector<int64_t> before = {}, prompt = {};  // read before it is submitted, and after
  GenerateOptions options = {};
  int64_t joins = 0, leaves = INT64_MAX;  // ticks
};

struct Continuation {
  std::vector<int64_t> tokens;
  std::string text;
  FinishReason reason = FinishReason::none;
  std::optional<TextSession> session;
};

/// The text of a request that runs alone, up to `most` tokens, an end token included.
inline Continuation written_alone(const std::shared_ptr<const Engine>& engine, const Request& request, bool reset,
                                  size_t most) {
  TextSession text = open(engine, request.options, reset);
  text.session().feed(request.before);
  text.session().feed(request.prompt);
  TextStream stream(tokenizer(), {5});
  stream.begin(request.options);
  Continuation written;
  while (!stream.ended() && written.tokens.size() < most) {
    written.tokens.push_back(text.session().next());
    written.text += stream.put(written.tokens.back());
  }
  written.reason = stream.finish_reason();
  written.session = std::move(text);
  return written;
}

/// Runs all requests until each has ended or left.
inline std::map<size_t, Continuation> run_all(const std::shared_ptr<const Engine>& engine,
                                              const std::vector<Request>& requests, bool reset,
                                              const Scheduler::Options& options) {
  Scheduler scheduler(engine, options);
  std::map<size_t, Continuation> all;
  std::map<Scheduler::Id, size_t> numbers;
  for (int64_t tick = 0;
       all.empty() || scheduler.running() + scheduler.waiting() > 0 || numbers.size() < requests.size(); ++tick) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].joins == tick) {
        TextSession text = open(engine, requests[i].options, reset);
        text.session().feed(requests[i].before);
        numbers[scheduler.submit(text, {requests[i].prompt}, requests[i].options)] = i;
      }
      if (requests[i].leaves != tick) continue;
      for (const auto& [id, number] : numbers) {
        if (number != i || all[i].session) continue;
        all[i].session = scheduler.cancel(id);
        EXPECT_TRUE(all[i].session.has_value());
      }
    }
    for (Scheduler::Event& event : scheduler.tick()) {
      Continuation& written = all[numbers.at(event.id)];
      EXPECT_EQ(event.error, "");
      if (event.token >= 0) written.tokens.push_back(event.token);
      written.text += event.text;
      written.reason = event.reason;
      if (event.session) written.session = std::move(event.session);
    }
  }
  return all;
}

inline std::vector<Request> random_requests(int64_t count, int64_t longest, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    Request request{.before = text(below(3) == 0 ? below(9) : 0, i), .prompt = text(1 + below(longest), i + 1)};
    request.options = {.max_tokens = 1 + below(20), .temperature = 1.3, .seed = i};
    if (below(4) == 0) request.options.frequency_penalty = 0.5;
    if (below(4) == 0) request.options.stop = {"cd", "q"};
    request.joins = below(12);
    if (below(5) == 0) request.leaves = request.joins + 1 + below(6);
    requests.push_back(std::move(request));
  }
  return requests;
}

inline void expect_all_as_alone(const std::shared_ptr<const Engine>& engine, bool reset, uint64_t seed,
                                const std::string& where) {
  const std::vector<Request> requests = random_requests(64, 40, seed);
  std::map<size_t, Continuation> found = run_all(engine, requests, reset, {});
  ASSERT_EQ(found.size(), requests.size()) << where;
  for (auto& [number, written] : found) {
    const std::string which = where + " request " + std::to_string(number);
    ASSERT_TRUE(written.session.has_value()) << which;
    const bool left = written.reason == FinishReason::none;
    Continuation expected = written_alone(engine, requests[number], reset, left ? written.tokens.size() : SIZE_MAX);
    ASSERT_EQ(written.tokens, expected.tokens) << which;
    EXPECT_EQ(written.text, expected.text) << which;
    EXPECT_EQ(written.reason, expected.reason) << which;
    if (left && written.tokens.empty()) continue;  // it has not read its prompt to the end
    EXPECT_EQ(written.session->session().position(), expected.session->session().position()) << which;
    EXPECT_TRUE(at::equal(written.session->session().logits(), expected.session->session().logits())) << which;
  }
}

}  // namespace mnemo::infer
