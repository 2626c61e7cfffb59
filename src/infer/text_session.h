#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "infer/session.h"
#include "text/tokenizer.h"

namespace mnemo::infer {

/// When to end a text.
struct TextLimits {
  int64_t max_tokens = 256;
  std::vector<int64_t> stop_tokens = {};  ///< end the text; not part of it
  std::vector<std::string> stop = {};     ///< texts that end the text where they occur; not part of it
};

/// A token of a given text.
struct ScoredToken {
  int64_t id = 0;
  std::string text;            ///< its bytes; without the space before a word
  double log_probability = 0;  ///< in nats, given the text before it; NaN if there is none
};

/// A session that reads and writes text. It has value semantics, like Session. The special tokens that a published
/// model expects in front of a text (Tokenizer::leading_tokens) are read once, before the first text.
class TextSession {
 public:
  /// A session that already has tokens (such as a loaded one) is continued from its text. Throws InputError if the
  /// tokenizer has more tokens than the model.
  TextSession(Session session, std::shared_ptr<const text::Tokenizer> tokenizer);

  /// Reads text. Warns of characters or words that are not in the vocabulary, or refuses them. Throws InputError for
  /// text that the tokenizer does not accept (invalid UTF-8).
  void feed(std::string_view text, text::Unknown unknown = text::Unknown::warn);

  /// Reads text and returns how likely the model finds each of its tokens, whatever the sampling options. Special
  /// tokens in front are context and have no entry.
  std::vector<ScoredToken> score(std::string_view text, text::Unknown unknown = text::Unknown::warn);

  /// Continues the text. on_text receives each piece as it is generated, always whole characters of valid UTF-8, and
  /// stops the text by returning false. A character that is incomplete at the end is kept for the next call, or for
  /// finish(). Returns the number of generated tokens. A stop text that occurs is part of the sequence, with the whole
  /// of its last token, so a session goes on behind it.
  int64_t generate(const TextLimits& limits, const std::function<bool(std::string_view)>& on_text);
  /// Same, returning the text in one string.
  std::string generate(const TextLimits& limits);
  /// Whether the last text ended at a stop text or token.
  bool stopped() const { return stopped_; }
  /// A second session that continues independently, with a seed of its own.
  TextSession fork(int64_t seed) const;
  /// Call at the end of a text: U+FFFD if the tokens so far end inside a character, else empty.
  std::string finish() { return decoder_.finish(); }

  Session& session() { return session_; }
  const Session& session() const { return session_; }
  const std::shared_ptr<const text::Tokenizer>& shared_tokenizer() const { return tokenizer_; }

 private:
  /// The tokens in front of the first text; none later.
  std::vector<int64_t> beginning() const;

  Session session_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  text::StreamDecoder decoder_;
  bool stopped_ = false;
};

}  // namespace mnemo::infer
