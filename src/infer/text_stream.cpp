#include "infer/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace mnemo::infer {

std::string_view name_of(FinishReason reason) {
  constexpr std::string_view kNames[] = {"", "stop", "length"};
  return kNames[static_cast<size_t>(reason)];
}

TextStream::TextStream(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<int64_t> end_tokens)
    : end_tokens_(std::move(end_tokens)), decoder_(std::move(tokenizer)) {}

void TextStream::begin(const GenerateOptions& options) {
  for (const std::string& stop : options.stop) {
    base::require(!stop.empty(), "stop: expected at least one character, found ''");
    base::require(!base::first_invalid_utf8(stop), "stop: expected valid UTF-8, found '{}'", base::printable(stop, 80));
  }
  options_ = options;
  begun_ = true;
  held_.clear();
  count_ = 0;
  reason_ = options.max_tokens > 0 ? FinishReason::none : FinishReason::length;
}

bool TextStream::ends(int64_t token, const GenerateOptions& options) const {
  return !options.past_end && std::ranges::find(end_tokens_, token) != end_tokens_.end();
}

std::string TextStream::put(int64_t token) {
  base::ensure(!ended(), "a text that has ended takes no more tokens");
  if (ends(token, options_)) {
    reason_ = FinishReason::stop;
    return std::exchange(held_, {});
  }
  ++count_;
  std::string piece = until_stop(decoder_.put(token));
  if (ended()) {
    decoder_.finish();  // a character that begins behind the stop text is not part of the text
  } else if (count_ >= options_.max_tokens) {
    reason_ = FinishReason::length;
    piece += std::exchange(held_, {});
  }
  return piece;
}

/// Returns what is certain to come before any stop text. Once one has occurred, everything before it has been returned.
std::string TextStream::until_stop(std::string_view piece) {
  held_ += piece;
  // The one that is complete first, wherever the pieces end; of several the longest.
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& stop : options_.stop) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos || std::pair(at + stop.size(), at) >= std::pair(end, begin)) continue;
    begin = at;
    end = at + stop.size();
  }
  if (begin != std::string::npos) {
    reason_ = FinishReason::stop;
    held_.resize(begin);
    return std::exchange(held_, {});
  }
  // Held back is the longest end of the text that begins a stop text.
  size_t kept = 0;
  for (const std::string& stop : options_.stop) {
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > kept; --size) {
      if (held_.ends_with(std::string_view(stop).substr(0, size))) kept = size;
    }
  }
  std::string certain = held_.substr(0, held_.size() - kept);
  held_.erase(0, certain.size());
  return certain;
}

}  // namespace mnemo::infer
