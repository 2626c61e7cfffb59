#include "infer/text_session.h"

#include <algorithm>

#include "base/error.h"
#include "infer/stop_text.h"

namespace mnemo::infer {

TextSession::TextSession(Session session, std::shared_ptr<const text::Tokenizer> tokenizer)
    : session_(std::move(session)), tokenizer_(std::move(tokenizer)), decoder_(tokenizer_) {
  base::ensure(tokenizer_ != nullptr, "a text session needs a tokenizer");
  base::require(tokenizer_->size() <= session_.model().vocab_size(),
                "text session: expected a tokenizer of at most the model's {} tokens, found {}",
                session_.model().vocab_size(), tokenizer_->size());
  session_.set_vocabulary(tokenizer_->unknown_id(), tokenizer_->size());
  for (const int64_t token : session_.recent()) {
    if (token < tokenizer_->size()) decoder_.put(token);
  }
}

std::vector<int64_t> TextSession::beginning() const {
  if (session_.position() > 0) return {};
  const std::vector<int32_t> ids = tokenizer_->leading_tokens();
  return {ids.begin(), ids.end()};
}

void TextSession::feed(std::string_view text, text::Unknown unknown) {
  const std::vector<int32_t> ids = tokenizer_->encode(text, "prompt", unknown);
  std::vector<int64_t> tokens = beginning();
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  session_.feed(tokens);
  // The next decoded text depends on the tokens before it (a space between words).
  for (const int32_t token : ids) decoder_.put(token);
}

std::vector<ScoredToken> TextSession::score(std::string_view text, text::Unknown unknown) {
  const std::vector<int32_t> ids = tokenizer_->encode(text, "given text", unknown);
  const std::vector<int64_t> tokens(ids.begin(), ids.end());
  session_.feed(beginning());
  const std::vector<double> scores = session_.score(tokens);
  std::vector<ScoredToken> scored;
  for (size_t i = 0; i < tokens.size(); ++i) {
    decoder_.put(tokens[i]);
    scored.push_back({tokens[i], tokenizer_->decode(std::span(tokens).subspan(i, 1)), scores[i]});
  }
  return scored;
}

int64_t TextSession::generate(const TextLimits& limits, const std::function<bool(std::string_view)>& on_text) {
  // A token that ends texts may be the one that stands for what the vocabulary lacks.
  const int64_t unknown = tokenizer_->unknown_id();
  const bool ends = std::ranges::find(limits.stop_tokens, unknown) != limits.stop_tokens.end();
  session_.set_vocabulary(ends ? -1 : unknown, tokenizer_->size());
  StopText stop(limits.stop);
  stopped_ = false;
  bool wanted = true;
  session_.feed(beginning());
  const int64_t count = session_.generate(
      limits.max_tokens,
      [&](int64_t token) {
        const std::string piece = stop.put(decoder_.put(token));
        if (!piece.empty()) wanted = on_text(piece);
        stopped_ = stop.found();
        return wanted && !stopped_;
      },
      limits.stop_tokens);
  if (stop.found()) decoder_.finish();  // a character that begins behind the stop text is no part of the text
  stopped_ |= count < limits.max_tokens && wanted;
  if (const std::string rest = stop.finish(); wanted && !rest.empty()) on_text(rest);
  return count;
}

TextSession TextSession::fork(int64_t seed) const {
  TextSession copy = *this;
  copy.session_ = session_.fork(seed);
  return copy;
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
