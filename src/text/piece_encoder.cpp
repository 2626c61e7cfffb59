#include "text/piece_encoder.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/sentencepiece_bpe.h"
#include "text/unigram.h"

namespace mnemo::text {
namespace {

constexpr std::string_view kMark = "\u2581";
// Limit of the size of a normalised text: bytes per byte, plus a constant. Unicode's rules make up to 13 of one.
constexpr size_t kMaxGrowth = 32, kFreeGrowth = 1024;

std::vector<PieceTrie::Entry> user_defined(const SentencePieceModel& model) {
  std::vector<PieceTrie::Entry> out;
  for (int64_t id = 0; id < model.pieces.size(); ++id) {
    if (model.types[static_cast<size_t>(id)] == PieceType::user_defined)
      out.push_back({model.pieces[id], static_cast<int32_t>(id)});
  }
  return out;
}

uint32_t word_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

}  // namespace

PieceEncoder::PieceEncoder(const SentencePieceModel& model, const std::string& where)
    : model_(model), where_(where), user_defined_(user_defined(model)) {
  byte_ids_.fill(-1);
  for (int64_t id = 0; id < model.pieces.size(); ++id) {
    const PieceType type = model.types[static_cast<size_t>(id)];
    if (type == PieceType::unknown) unknown_ = static_cast<int32_t>(id);
    if (type == PieceType::user_defined) has_user_defined_ = true;
    if (type != PieceType::byte) continue;
    for (int byte = 0; byte < 256; ++byte) {
      if (model.pieces[id] == fmt::format("<0x{:02X}>", byte)) byte_ids_[byte] = static_cast<int32_t>(id);
    }
  }
}

size_t PieceEncoder::character_length(std::string_view text) {
  return static_cast<size_t>(std::max(1, base::front_character(text).length));
}

size_t PieceEncoder::user_defined_length(std::string_view text) const {
  size_t longest = 0;
  if (has_user_defined_) user_defined_.for_each_prefix(text, [&](size_t length, int32_t) { longest = length; });
  return longest;
}

PieceEncoder::Rule PieceEncoder::front_rule(std::string_view text) const {
  if (const size_t length = user_defined_length(text); length > 0) return {text.substr(0, length), length};
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

void PieceEncoder::require_growth(size_t after, size_t before) const {
  base::require(after <= kMaxGrowth * before + kFreeGrowth,
                "{}: the normalisation rules make more than {} bytes of each byte of a text", where_, kMaxGrowth);
}

std::string PieceEncoder::apply_rules(std::string_view text) const {
  std::string out;
  const size_t size = text.size();
  while (!text.empty()) {
    const Rule rule = front_rule(text);
    out += rule.text;
    require_growth(out.size(), size);
    text.remove_prefix(rule.length);
  }
  return out;
}

std::string PieceEncoder::normalise(std::string_view text, bool space_first) const {
  std::string out;
  if (model_.single_spaces) {
    while (!text.empty()) {
      const Rule rule = front_rule(text);
      if (rule.text != " ") break;
      text.remove_prefix(rule.length);
    }
  }
  if (text.empty()) return out;
  const size_t size = text.size();
  space_first = space_first && model_.space_first;
  out.reserve(text.size() + text.size() / 2);
  const std::string_view mark = model_.marks_spaces ? kMark : " ";
  if (space_first && !model_.space_last && !model_.space_where_missing) out += mark;
  bool after_space = model_.single_spaces;
  while (!text.empty()) {
    Rule rule = front_rule(text);
    text.remove_prefix(rule.length);
    while (after_space && rule.text.starts_with(' ')) rule.text.remove_prefix(1);
    for (const char c : rule.text) {
      if (c == ' ') {
        out += mark;
      } else {
        out.push_back(c);
      }
    }
    require_growth(out.size(), size);
    if (!rule.text.empty()) after_space = model_.single_spaces && rule.text.ends_with(' ');
  }
  while (model_.single_spaces && out.ends_with(mark)) out.resize(out.size() - mark.size());
  if (space_first && model_.space_last) out += mark;
  if (space_first && model_.space_where_missing && !out.starts_with(mark)) out.insert(0, mark);
  return out;
}

/// Calls use(text, id, joins): whether an unknown piece continues the one before it.
template <class Use>
void PieceEncoder::for_each_piece(std::string_view normalised, Use&& use) const {
  base::require(normalised.size() < UINT32_MAX, "a text of {} bytes, at most {} are supported", normalised.size(),
                UINT32_MAX - 1);
  bool after_unknown = false;
  size_t begin = 0;
  for (const Piece& piece : segment(normalised)) {
    const std::string_view text = normalised.substr(begin, piece.end - begin);
    begin = piece.end;
    const bool unknown = piece.id == unknown_;
    if (unknown && model_.byte_fallback) {
      for (size_t i = 0; i < text.size(); ++i) {
        const int32_t id = byte_ids_[static_cast<unsigned char>(text[i])];
        use(id < 0 ? text.substr(i, 1) : model_.pieces[id], id < 0 ? unknown_ : id, false);
      }
    } else {
      use(text, piece.id, unknown && after_unknown);
    }
    after_unknown = unknown;
  }
}

void PieceEncoder::encode(std::string_view text, std::vector<int32_t>& ids, bool space_first) const {
  for_each_piece(normalise(text, space_first), [&](std::string_view, int32_t id, bool joins) {
    if (!joins) ids.push_back(id);
  });
}

void PieceEncoder::encode(std::string_view text, std::vector<std::string>& pieces, bool space_first) const {
  for_each_piece(normalise(text, space_first), [&](std::string_view piece, int32_t, bool joins) {
    if (joins) {
      pieces.back() += piece;
    } else {
      pieces.emplace_back(piece);
    }
  });
}

std::unique_ptr<const PieceEncoder> make_piece_encoder(const SentencePieceModel& model, const std::string& where) {
  if (model.kind == SentencePieceModel::Kind::bpe) return std::make_unique<SentencePieceBpe>(model, where);
  return std::make_unique<UnigramEncoder>(model, where);
}

}  // namespace mnemo::text
