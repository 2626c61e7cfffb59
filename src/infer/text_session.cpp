#include "infer/text_session.h"

#include "base/error.h"

namespace mnemo::infer {

TextSession::TextSession(Session session, std::shared_ptr<const text::Tokenizer> tokenizer,
                         std::vector<int64_t> end_tokens)
    : session_(std::move(session)), tokenizer_(std::move(tokenizer)), stream_(tokenizer_, std::move(end_tokens)) {
  base::ensure(tokenizer_ != nullptr, "a text session needs a tokenizer");
  base::require(tokenizer_->size() <= session_.model().vocab_size(),
                "text session: expected a tokenizer of at most the model's {} tokens, found {}",
                session_.model().vocab_size(), tokenizer_->size());
  session_.set_vocabulary(tokenizer_->unknown_id(), tokenizer_->size());
  for (const int64_t token : session_.recent()) {
    if (token < tokenizer_->size()) stream_.read(token);
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
  for (const int32_t token : ids) stream_.read(token);
}

std::vector<ScoredToken> TextSession::score(std::string_view text, text::Unknown unknown) {
  const std::vector<int32_t> ids = tokenizer_->encode(text, "given text", unknown);
  const std::vector<int64_t> tokens(ids.begin(), ids.end());
  session_.feed(beginning());
  const std::vector<double> scores = session_.score(tokens);
  std::vector<ScoredToken> scored;
  for (size_t i = 0; i < tokens.size(); ++i) {
    stream_.read(tokens[i]);
    scored.push_back({tokens[i], tokenizer_->decode(std::span(tokens).subspan(i, 1)), scores[i]});
  }
  return scored;
}

void TextSession::begin(const GenerateOptions& options) {
  // The end token may also be the unknown token.
  const int64_t unknown = tokenizer_->unknown_id();
  session_.set_vocabulary(stream_.ends(unknown, options) ? -1 : unknown, tokenizer_->size());
  stream_.begin(options);
  session_.feed(beginning());
}

std::optional<std::string> TextSession::next_piece() {
  while (!stream_.ended()) {
    std::string piece = stream_.put(session_.next());
    if (!piece.empty()) return piece;
  }
  return std::nullopt;
}

int64_t TextSession::generate(const GenerateOptions& options, const std::function<bool(std::string_view)>& on_text) {
  begin(options);
  while (const std::optional<std::string> piece = next_piece()) {
    if (!on_text(*piece)) break;
  }
  return stream_.count();
}

std::string TextSession::generate(const GenerateOptions& options) {
  std::string text;
  generate(options, [&](std::string_view piece) {
    text += piece;
    return true;
  });
  return text;
}

TextSession TextSession::fork(int64_t seed) const {
  TextSession copy = *this;
  copy.session_ = session_.fork(seed);
  return copy;
}

}  // namespace mnemo::infer
