#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "infer/generate_options.h"
#include "text/tokenizer.h"

namespace mnemo::infer {

/// Why a text has ended: not yet; at a stop text or an end token; at max_tokens, or where the model's positions end.
enum class FinishReason { none, stop, length };

/// "stop" or "length"; empty for none.
std::string_view name_of(FinishReason reason);

/// Turns the tokens that a model writes into text, one token at a time. It returns whole characters of valid
/// UTF-8, up to a stop text or an end token. It has value semantics and serves one text after the other: a character
/// that is incomplete at the end of a text continues in the next.
class TextStream {
 public:
  /// end_tokens: tokens that end a text and are not part of it (GenerateOptions::past_end).
  explicit TextStream(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<int64_t> end_tokens = {});

  /// A token that precedes the next text: a blank between words and the bytes of a character depend on it.
  void read(int64_t token) { decoder_.put(token); }

  /// Begins a text that ends as max_tokens, stop and past_end say. Throws InputError for a stop text that is empty or
  /// not valid UTF-8.
  void begin(const GenerateOptions& options);
  /// Takes the next token of the text and returns the text that is certain by now, often none: without an incomplete
  /// character, and without an end that may begin a stop text.
  std::string put(int64_t token);
  /// Why the text has ended; none also where no text has begun. put() must not be called once it has ended, or before
  /// it has begun.
  FinishReason finish_reason() const { return reason_; }
  bool ended() const { return !begun_ || reason_ != FinishReason::none; }
  /// The end of the text that waits, since it may begin a stop text.
  const std::string& held() const { return held_; }
  /// Tokens of the text so far. An end token does not count, the last token of a stop text does.
  int64_t count() const { return count_; }
  /// After the last text: U+FFFD if the tokens so far end inside a character, else empty.
  std::string finish() { return decoder_.finish(); }

  const std::vector<int64_t>& end_tokens() const { return end_tokens_; }
  /// Whether a token ends a text with these options.
  bool ends(int64_t token, const GenerateOptions& options) const;

 private:
  std::string until_stop(std::string_view piece);

  std::vector<int64_t> end_tokens_;
  text::StreamDecoder decoder_;
  GenerateOptions options_;
  std::string held_;  // the end of the text that may begin a stop text
  int64_t count_ = 0;
  bool begun_ = false;
  FinishReason reason_ = FinishReason::none;
};

}  // namespace mnemo::infer
