#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infer/session.h"
#include "infer/text_stream.h"

namespace mnemo::infer {

/// A token of a given text.
struct ScoredToken {
  int64_t id = 0;
  std::string text;            ///< its bytes; without the space before a word
  double log_probability = 0;  ///< in nats, given the text before it; NaN if there is none
};

/// Bytes that are certainly those of TextSession::save_bytes().
struct OwnBytes {
  std::string_view bytes;
};

/// A session that reads and writes text. It has value semantics, like Session. The special tokens that a published
/// model expects in front of a text (Tokenizer::leading_tokens) are read once, before the first text.
class TextSession {
 public:
  /// A session that already has tokens (such as a loaded one) is continued from its text. end_tokens: as TextStream's.
  /// Throws InputError if the tokenizer has more tokens than the model.
  TextSession(Session session, std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<int64_t> end_tokens = {});

  /// The tokens of a text that is to be read.
  struct Prompt {
    std::vector<int64_t> tokens;
    int64_t leading = 0;  ///< how many of them stand in front of the text
  };
  /// Warns of characters or words that are not in the vocabulary, or refuses them. Throws InputError for text that the
  /// tokenizer does not accept (invalid UTF-8).
  Prompt prompt(std::string_view text, text::Unknown unknown = text::Unknown::warn) const;
  /// Reads text, with the errors of prompt().
  void feed(std::string_view text, text::Unknown unknown = text::Unknown::warn);

  /// Reads text and returns how likely the model finds each of its tokens, whatever the sampling options. Special
  /// tokens in front are context and have no entry.
  std::vector<ScoredToken> score(std::string_view text, text::Unknown unknown = text::Unknown::warn);
  /// Same for tokens of a text, all or the next ones.
  std::vector<ScoredToken> score(std::span<const int64_t> tokens);

  /// Begins a text whose pieces next_piece() returns. Only max_tokens, stop and past_end of the options are used; the
  /// sampling is the session's. A stop text that occurs is part of the sequence, including its whole last token, so a
  /// session continues after it; so is an end token. Where the model has no positions for max_tokens, the text is as
  /// long as it has. Throws InputError if it has none at all.
  void begin(const GenerateOptions& options = {});
  /// Writes until there is text to show and returns it: whole characters of valid UTF-8. Returns nothing once the text
  /// has ended (finish_reason()). A character that is incomplete at the end is kept for the next text, or for finish().
  std::optional<std::string> next_piece();
  /// Begins a text and passes each piece to on_text, which stops the text by returning false. Returns the number of
  /// generated tokens.
  int64_t generate(const GenerateOptions& options, const std::function<bool(std::string_view)>& on_text);
  /// Same, returning the text in one string.
  std::string generate(const GenerateOptions& options);
  /// Why the last text ended; none if it was left before its end.
  FinishReason finish_reason() const { return stream_.finish_reason(); }
  /// Call at the end of a text: U+FFFD if the tokens so far end inside a character, else empty.
  std::string finish() { return stream_.finish(); }
  /// Same, but leaves the character to the next text.
  std::string unfinished() const { return TextStream(stream_).finish(); }
  /// A second session that continues independently, with a seed of its own.
  TextSession fork(int64_t seed) const;

  /// As Session::save; the file also says which tokenizer and end tokens the text has.
  void save(const std::string& path) const;
  std::string save_bytes() const;
  /// A session of the same model, tokenizer and rules that continues from a file, or from memory. Throws InputError as
  /// Session::load does, and if the tokenizer, the end tokens or where memory is reset are other ones; files of earlier
  /// versions do not say.
  TextSession load(const std::string& path) const;
  TextSession load_bytes(std::string_view bytes) const;
  /// Same, sooner: the model does not try them out first.
  TextSession load_bytes(OwnBytes own) const;

  Session& session() { return session_; }
  const Session& session() const { return session_; }
  const std::shared_ptr<const text::Tokenizer>& shared_tokenizer() const { return tokenizer_; }

 private:
  friend class Scheduler;
  /// The tokens in front of the first text; none later.
  std::vector<int64_t> beginning() const;
  /// As begin(), but reads nothing; `read` tokens will be.
  void prepare(GenerateOptions options, size_t read);
  weights::TensorFile to_file() const;
  using Restore = void (Session::*)(const weights::TensorFile& file, const std::string& name);
  TextSession restored(const weights::TensorFile& file, const std::string& name,
                       Restore restore = &Session::restore) const;

  Session session_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  TextStream stream_;
  Fingerprint fingerprint_;  // of the tokenizer and the end tokens
};

}  // namespace mnemo::infer
