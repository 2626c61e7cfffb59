#pragma once

#include <memory>
#include <optional>
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

/// What a request writes alone, up to `most` tokens, an end token included.
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

}  // namespace mnemo::infer
