#include "infer/text_session.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/printable.h"
#include "weights/safetensors.h"

namespace mnemo::infer {
namespace {

constexpr const char* kTokenizer = "tokenizer";

std::string text_fingerprint(const text::Tokenizer& tokenizer, std::span<const int64_t> end_tokens) {
  base::Sha256 hash;
  hash.update(tokenizer.type());
  for (const auto& [name, content] : tokenizer.defining_files()) {
    hash.update(fmt::format("\n{} {}\n", name, content.size()));
    hash.update(content);
  }
  hash.update("\nend");
  for (const int64_t token : end_tokens) hash.update(fmt::format(" {}", token));
  return hash.hex();
}

}  // namespace

TextSession::TextSession(Session session, std::shared_ptr<const text::Tokenizer> tokenizer,
                         std::vector<int64_t> end_tokens)
    : session_(std::move(session)),
      tokenizer_(std::move(tokenizer)),
      stream_(tokenizer_, end_tokens),
      fingerprint_([tokenizer = tokenizer_, ends = end_tokens] { return text_fingerprint(*tokenizer, ends); }) {
  base::ensure(tokenizer_ != nullptr, "a text session needs a tokenizer");
  base::require(tokenizer_->size() <= core::token_input(session_.model().input()).vocab_size,
                "text session: expected a tokenizer of at most the model's {} tokens, found {}",
                core::token_input(session_.model().input()).vocab_size, tokenizer_->size());
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

TextSession::Prompt TextSession::prompt(std::string_view text, text::Unknown unknown) const {
  const std::vector<int32_t> ids = tokenizer_->encode(text, "prompt", unknown);
  Prompt prompt{beginning()};
  prompt.leading = static_cast<int64_t>(prompt.tokens.size());
  prompt.tokens.insert(prompt.tokens.end(), ids.begin(), ids.end());
  return prompt;
}

void TextSession::feed(std::string_view text, text::Unknown unknown) {
  const Prompt read = prompt(text, unknown);
  session_.feed(read.tokens);
  for (const int64_t token : std::span(read.tokens).subspan(static_cast<size_t>(read.leading))) stream_.read(token);
}

std::vector<ScoredToken> TextSession::score(std::string_view text, text::Unknown unknown) {
  const std::vector<int32_t> ids = tokenizer_->encode(text, "given text", unknown);
  session_.feed(beginning());
  return score(std::vector<int64_t>(ids.begin(), ids.end()));
}

std::vector<ScoredToken> TextSession::score(std::span<const int64_t> tokens) {
  const std::vector<double> scores = session_.score(tokens);
  std::vector<ScoredToken> scored;
  for (size_t i = 0; i < tokens.size(); ++i) {
    stream_.read(tokens[i]);
    scored.push_back({tokens[i], tokenizer_->decode(tokens.subspan(i, 1)), scores[i]});
  }
  return scored;
}

void TextSession::begin(const GenerateOptions& options) {
  const std::vector<int64_t> read = beginning();
  prepare(options, read.size());
  session_.feed(read);
}

void TextSession::prepare(GenerateOptions options, size_t read) {
  options.max_tokens = session_.can_write(static_cast<int64_t>(read), options.max_tokens);
  // A token that ends texts may be the one that stands for what the vocabulary lacks.
  const int64_t unknown = tokenizer_->unknown_id();
  session_.set_vocabulary(stream_.ends(unknown, options) ? -1 : unknown, tokenizer_->size());
  stream_.begin(options);
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

weights::TensorFile TextSession::to_file() const {
  weights::TensorFile file = session_.to_file();
  file.metadata[kTokenizer] = fingerprint_.text();
  return file;
}

TextSession TextSession::restored(const weights::TensorFile& file, const std::string& name, Restore restore) const {
  if (const auto said = file.metadata.find(kTokenizer); said != file.metadata.end()) {
    base::require(
        said->second == fingerprint_.text(),
        "{}: this session was saved with another tokenizer or other end tokens (fingerprint {}, this model's is {}); "
        "load it with the model folder it was saved with",
        name, base::printable(said->second, 64), fingerprint_.text());
  }
  Session session = session_.fresh();
  (session.*restore)(file, name);
  base::require(session.progress_.reset_segments == session_.progress_.reset_segments,
                "{}: this session was saved by a model that resets its memory at {}; load it with the model folder it "
                "was saved with",
                name, session.progress_.reset_segments ? "every segment" : "documents only");
  TextSession text(std::move(session), tokenizer_, stream_.end_tokens());
  text.fingerprint_ = fingerprint_;
  return text;
}

void TextSession::save(const std::string& path) const {
  const weights::TensorFile file = to_file();
  weights::write_safetensors(path, file.tensors, file.metadata);
}

std::string TextSession::save_bytes() const {
  const weights::TensorFile file = to_file();
  return weights::encode_safetensors(file.tensors, file.metadata);
}

TextSession TextSession::load(const std::string& path) const { return restored(weights::read_safetensors(path), path); }

TextSession TextSession::load_bytes(std::string_view bytes) const {
  return restored(weights::read_safetensors(bytes, "session"), "session");
}

TextSession TextSession::load_bytes(OwnBytes own) const {
  return restored(weights::read_safetensors(own.bytes, "session"), "session", &Session::restore_own);
}

}  // namespace mnemo::infer
