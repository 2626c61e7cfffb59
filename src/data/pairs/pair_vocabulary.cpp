#include "data/pairs/pair_vocabulary.h"

#include "base/error.h"
#include "base/utf8.h"
#include "data/pairs/pair_text.h"
#include "text/utf8_error.h"

namespace mnemo::data {

std::vector<int64_t> PairVocabulary::encode(std::string_view line, const std::string& where) const {
  text::require_utf8(where, line);
  std::vector<int64_t> ids = encode_part(words_in(line), where);
  ids.push_back(eos_);
  return ids;
}

std::vector<int64_t> PairVocabulary::encode_part(std::string_view part, const std::string& where) const {
  std::vector<int64_t> ids;
  for (const int32_t id : tokenizer_->encode(part, where))
    ids.push_back(id == tokenizer_->unknown_id() ? unknown_ : id + special_);
  return ids;
}

std::string PairVocabulary::decode(std::span<const int64_t> ids, std::string_view unknown) const {
  return decode(ids, [&](size_t) { return std::string(unknown); });
}

std::string PairVocabulary::decode(std::span<const int64_t> ids,
                                   const std::function<std::string(size_t place)>& unknown) const {
  std::string line;
  const auto join = [&](const std::string& text) {
    const bool touches = !line.empty() && !text.empty() && !line.ends_with(' ') && !text.starts_with(' ');
    (line += touches ? " " : "") += text;
  };
  std::vector<int64_t> known;  // since the last unknown token
  const auto flush = [&] {
    if (known.empty()) return;
    std::string text = tokenizer_->decode(known);  // of bytes: any
    join(base::take_valid_utf8(text, true));
    known.clear();
  };
  for (size_t place = 0; place < ids.size(); ++place) {
    const int64_t id = ids[place];
    if (id >= size() && is_published()) continue;  // a row of the model that no token has
    base::require(id >= 0 && id < size(), "decoding: expected tokens from 0 to {}, found {}", size() - 1, id);
    if (!is_unknown(id)) {
      if (id >= special_ && id != eos_ && id != pad_) known.push_back(id - special_);
      continue;
    }
    flush();
    join(unknown(place));
  }
  flush();
  return line;
}

}  // namespace mnemo::data
