#include "infer/text_session.h"

#include "base/error.h"

namespace mnemo::infer {

TextSession::TextSession(Session session, std::shared_ptr<const data::Tokenizer> tokenizer)
    : session_(std::move(session)), tokenizer_(std::move(tokenizer)), decoder_(tokenizer_) {
  base::ensure(tokenizer_ != nullptr, "a text session needs a tokenizer");
  base::require(tokenizer_->size() <= session_.model().vocab_size(),
                "text session: expected a tokenizer of at most the model's {} tokens, found {}",
                session_.model().vocab_size(), tokenizer_->size());
  session_.set_unknown(tokenizer_->unknown_id());
  for (const int64_t token : session_.recent()) {
    if (token < tokenizer_->size()) decoder_.put(token);
  }
}

void TextSession::feed(std::string_view text, data::Unknown unknown) {
  const std::vector<int32_t> ids = tokenizer_->encode(text, "prompt", unknown);
  const std::vector<int64_t> tokens(ids.begin(), ids.end());
  session_.feed(tokens);
  // The next decoded text depends on the tokens before it (a space between words).
  for (const int64_t token : tokens) decoder_.put(token);
}

int64_t TextSession::generate(const TextLimits& limits, const std::function<bool(std::string_view)>& on_text) {
  return session_.generate(
      limits.max_tokens,
      [&](int64_t token) {
        base::require(token < tokenizer_->size(),
                      "text session: the model picked token {}, but the tokenizer has only {}", token,
                      tokenizer_->size());
        const std::string piece = decoder_.put(token);
        return piece.empty() || on_text(piece);
      },
      limits.stop_tokens);
}

std::string TextSession::generate(const TextLimits& limits) {
  std::string text;
  generate(limits, [&](std::string_view piece) {
    text += piece;
    return true;
  });
  return text;
}

}  // namespace mnemo::infer
