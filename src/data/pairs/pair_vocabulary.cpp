#include "data/pairs/pair_vocabulary.h"

#include "base/error.h"
#include "base/unicode.h"
#include "base/utf8.h"
#include "data/tokenizers/utf8_error.h"

namespace mnemo::data {

namespace {

/// Without the blanks and tabs around it; empty if nothing but blanks of any script is left.
std::string_view words_in(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t"), last = line.find_last_not_of(" \t");
  if (first == std::string_view::npos) return {};
  line = line.substr(first, last - first + 1);
  for (std::string_view rest = line; !rest.empty();) {
    const base::Utf8Character one = base::front_character(rest);
    if (!base::is_space(one.code_point)) return line;
    rest.remove_prefix(static_cast<size_t>(one.length));
  }
  return {};
}

}  // namespace

std::vector<int64_t> PairVocabulary::encode(std::string_view line, const std::string& where) const {
  require_utf8(where, line);
  line = words_in(line);
  std::vector<int64_t> ids;
  for (const int32_t id : tokenizer_->encode(line, where))
    ids.push_back(id == tokenizer_->unknown_id() ? unknown_ : id + special_);
  ids.push_back(eos_);
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
    join(tokenizer_->decode(known));
    known.clear();
  };
  for (size_t place = 0; place < ids.size(); ++place) {
    const int64_t id = ids[place];
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
