#include "data/tokenizers/unigram.h"

#include <algorithm>
#include <cfloat>

#include "base/error.h"
#include "base/utf8.h"

namespace mnemo::data {
namespace {

constexpr std::string_view kMark = "\u2581";
constexpr float kUnknownPenalty = 10.0f;

std::vector<PieceTrie::Entry> entries(const SentencePieceModel& model, bool user_defined_alone) {
  std::vector<PieceTrie::Entry> out;
  for (int64_t id = 0; id < model.pieces.size(); ++id) {
    const PieceType type = model.types[static_cast<size_t>(id)];
    if (type == PieceType::user_defined || (type == PieceType::normal && !user_defined_alone))
      out.push_back({model.pieces[id], static_cast<int32_t>(id)});
  }
  return out;
}

uint32_t word_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

size_t character_length(std::string_view text) {
  return static_cast<size_t>(std::max(1, base::front_character(text).length));
}

}  // namespace

bool UnigramEncoder::supports(const SentencePieceModel& model) {
  return model.kind == SentencePieceModel::Kind::unigram && model.marks_spaces && !model.space_last;
}

UnigramEncoder::UnigramEncoder(const SentencePieceModel& model)
    : model_(model), pieces_(entries(model, false)), user_defined_(entries(model, true)) {
  float lowest = FLT_MAX, highest = FLT_MIN;
  byte_ids_.fill(-1);
  for (int64_t id = 0; id < model.pieces.size(); ++id) {
    const auto at = static_cast<size_t>(id);
    if (model.types[at] == PieceType::normal) {
      lowest = std::min(lowest, model.scores[at]);
      highest = std::max(highest, model.scores[at]);
    } else if (model.types[at] == PieceType::unknown) {
      unknown_ = static_cast<int32_t>(id);
    } else if (model.types[at] == PieceType::user_defined) {
      has_user_defined_ = true;
    } else if (model.types[at] == PieceType::byte) {
      for (int byte = 0; byte < 256; ++byte) {
        if (model.pieces[id] == fmt::format("<0x{:02X}>", byte)) byte_ids_[byte] = static_cast<int32_t>(id);
      }
    }
  }
  unknown_score_ = lowest - kUnknownPenalty;
  for (int64_t id = 0; id < model.pieces.size(); ++id) {
    const auto at = static_cast<size_t>(id);
    // A symbol of the user's is always chosen.
    scores_.push_back(model.types[at] == PieceType::user_defined
                          ? static_cast<float>(static_cast<float>(model.pieces[id].size()) * highest - 0.1)
                          : model.scores[at]);
  }
}

UnigramEncoder::Rule UnigramEncoder::front_rule(std::string_view text) const {
  if (has_user_defined_) {
    size_t longest = 0;
    user_defined_.for_each_prefix(text, [&](size_t length, int32_t) { longest = length; });
    if (longest > 0) return {text.substr(0, longest), longest};
  }
  const std::string_view rules = model_.normaliser;
  if (!rules.empty()) {
    // A double array (Darts-clone) whose indices read_sentencepiece_model() has checked, then the texts.
    const auto unit = [&](size_t at) { return word_at(rules, 4 + 4 * at); };
    const auto offset = [](uint32_t u) { return size_t{u >> 10} << ((u & (1u << 9)) >> 6); };
    size_t longest = 0, found = 0, at = offset(unit(0));
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      at ^= byte;
      const uint32_t node = unit(at);
      if ((node & 0x800000FFu) != byte) break;
      at ^= offset(node);
      if ((node >> 8) & 1) {
        longest = i + 1;
        found = unit(at) & 0x7FFFFFFF;
      }
    }
    if (longest > 0) {
      const std::string_view texts = rules.substr(4 + word_at(rules, 0));
      return {texts.substr(found, texts.find('\0', found) - found), longest};
    }
  }
  const size_t length = character_length(text);
  return {text.substr(0, length), length};
}

std::string UnigramEncoder::normalise(std::string_view text) const {
  std::string out;
  if (model_.single_spaces) {
    while (!text.empty()) {
      const Rule rule = front_rule(text);
      if (rule.text != " ") break;
      text.remove_prefix(rule.length);
    }
  }
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2);
  if (model_.space_first) out += kMark;
  bool after_space = model_.single_spaces;
  while (!text.empty()) {
    Rule rule = front_rule(text);
    text.remove_prefix(rule.length);
    while (after_space && rule.text.starts_with(' ')) rule.text.remove_prefix(1);
    for (const char c : rule.text) {
      if (c == ' ') {
        out += kMark;
      } else {
        out.push_back(c);
      }
    }
    if (!rule.text.empty()) after_space = model_.single_spaces && rule.text.ends_with(' ');
  }
  while (model_.single_spaces && out.ends_with(kMark)) out.resize(out.size() - kMark.size());
  return out;
}

std::vector<UnigramEncoder::Piece> UnigramEncoder::best(std::string_view text) const {
  struct End {
    float score = 0;  // of the best path that ends here; the sums are of floats, as SentencePiece makes them
    int32_t id = -1;
    size_t begin = SIZE_MAX;
  };
  std::vector<End> ends(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const float before = ends[at].score;
    const size_t single = character_length(text.substr(at));
    bool has_single = false;
    const auto offer = [&](size_t length, int32_t id, float score) {
      End& end = ends[at + length];
      // Both sides as floats: of equally good paths the one with the longest last piece stays.
      const float sum = score + before;
      if (end.begin == SIZE_MAX || sum > end.score) end = {sum, id, at};
    };
    pieces_.for_each_prefix(text.substr(at), [&](size_t length, int32_t id) {
      offer(length, id, scores_[static_cast<size_t>(id)]);
      has_single = has_single || length == single;
    });
    if (!has_single) offer(single, unknown_, unknown_score_);
    at += single;
  }
  std::vector<Piece> out;
  for (size_t end = text.size(); end > 0; end = ends[end].begin) {
    base::ensure(ends[end].begin < end, "unigram: no path to byte {} of {}", end, text.size());
    out.push_back({text.substr(ends[end].begin, end - ends[end].begin), ends[end].id});
  }
  std::reverse(out.begin(), out.end());
  return out;
}

void UnigramEncoder::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const std::string normalised = normalise(text);
  bool after_unknown = false;
  for (const Piece& piece : best(normalised)) {
    const bool unknown = piece.id == unknown_;
    if (unknown && model_.byte_fallback) {
      for (const char c : piece.text) {
        const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
        ids.push_back(id < 0 ? unknown_ : id);
      }
    } else if (!unknown || !after_unknown) {
      ids.push_back(piece.id);
    }
    after_unknown = unknown;
  }
}

void UnigramEncoder::encode(std::string_view text, std::vector<std::string>& pieces) const {
  const std::string normalised = normalise(text);
  bool after_unknown = false;
  for (const Piece& piece : best(normalised)) {
    const bool unknown = piece.id == unknown_;
    if (unknown && after_unknown) {
      pieces.back() += piece.text;
    } else {
      pieces.emplace_back(piece.text);
    }
    after_unknown = unknown;
  }
}

}  // namespace mnemo::data
