#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "infer/session.h"

namespace mnemo::infer {

/// What ends a text.
struct TextLimits {
  int64_t max_tokens = 256;
  std::vector<int64_t> stop_tokens = {};  ///< end the text and are not part of it
};

/// A session that reads and writes text. A value, like Session.
class TextSession {
 public:
  /// A session that has tokens already (one that was loaded) is continued as if its text stood there.
  /// Throws InputError if the tokenizer has more tokens than the model.
  TextSession(Session session, std::shared_ptr<const data::Tokenizer> tokenizer);

  /// Reads text. Throws InputError for what the tokenizer does not take (invalid UTF-8).
  void feed(std::string_view text);

  /// Continues the text. on_text gets each piece as it comes, whole characters of valid UTF-8 only, and stops the text
  /// by returning false. A character that is incomplete at the end waits for the next call, or finish(). Returns the
  /// number of tokens made.
  int64_t generate(const TextLimits& limits, const std::function<bool(std::string_view)>& on_text);
  /// The same in one piece.
  std::string generate(const TextLimits& limits);
  /// For the end of a text: U+FFFD if the tokens so far end inside a character, else nothing.
  std::string finish() { return decoder_.finish(); }

  Session& session() { return session_; }
  const Session& session() const { return session_; }
  const std::shared_ptr<const data::Tokenizer>& shared_tokenizer() const { return tokenizer_; }

 private:
  Session session_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  data::StreamDecoder decoder_;
};

}  // namespace mnemo::infer
