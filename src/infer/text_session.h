#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "infer/session.h"

namespace mnemo::infer {

/// When to end a text.
struct TextLimits {
  int64_t max_tokens = 256;
  std::vector<int64_t> stop_tokens = {};  ///< end the text; not part of it
};

/// A session that reads and writes text. It has value semantics, like Session.
class TextSession {
 public:
  /// A session that already has tokens (such as a loaded one) is continued from its text. Throws InputError if the
  /// tokenizer has more tokens than the model.
  TextSession(Session session, std::shared_ptr<const data::Tokenizer> tokenizer);

  /// Reads text. Warns of characters or words that are not in the vocabulary, or refuses them. Throws InputError for
  /// text that the tokenizer does not accept (invalid UTF-8).
  void feed(std::string_view text, data::Unknown unknown = data::Unknown::warn);

  /// Continues the text. on_text receives each piece as it is generated, always whole characters of valid UTF-8, and
  /// stops the text by returning false. A character that is incomplete at the end is kept for the next call, or for
  /// finish(). Returns the number of generated tokens.
  int64_t generate(const TextLimits& limits, const std::function<bool(std::string_view)>& on_text);
  /// Same, returning the text in one string.
  std::string generate(const TextLimits& limits);
  /// Call at the end of a text: U+FFFD if the tokens so far end inside a character, else empty.
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
