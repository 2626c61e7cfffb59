#include "text/sentencepiece_model.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/node.h"
#include "base/printable.h"

namespace mnemo::text {
namespace {

/// One field of a message in the wire format of protocol buffers.
struct Field {
  uint64_t number = 0;
  int wire_type = 0;       // 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
  uint64_t value = 0;      // of the first, second and last kind
  std::string_view bytes;  // of the third
};

class MessageReader {
 public:
  MessageReader(std::string_view message, const std::string& where) : rest_(message), where_(where) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const uint64_t tag = varint();
    field = {.number = tag >> 3, .wire_type = static_cast<int>(tag & 7), .value = 0, .bytes = {}};
    switch (field.wire_type) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.value = fixed(4);
        break;
      default:
        base::input_error("{}: not a SentencePiece model: wire type {} of a field", where_, field.wire_type);
    }
    base::require(field.number > 0, "{}: not a SentencePiece model: a field of number 0", where_);
    return true;
  }

 private:
  std::string_view take(uint64_t count) {
    base::require(count <= rest_.size(), "{}: not a SentencePiece model, or cut off: expected {} more bytes, found {}",
                  where_, count, rest_.size());
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }

  uint64_t fixed(size_t count) {
    const std::string_view bytes = take(count);
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return value;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    base::input_error("{}: not a SentencePiece model: a number of more than 64 bits", where_);
  }

  std::string_view rest_;
  const std::string& where_;
};

void require_wire(const Field& field, int wire_type, const std::string& where) {
  base::require(field.wire_type == wire_type,
                "{}: not a SentencePiece model: field {}: expected wire type {}, found {}", where, field.number,
                wire_type, field.wire_type);
}

void read_piece(std::string_view message, SentencePieceModel& model, const std::string& where) {
  std::string_view text;
  float score = 0;
  uint64_t type = 1;
  MessageReader reader(message, where);
  for (Field field; reader.next(field);) {
    if (field.number == 1) {
      require_wire(field, 2, where);
      text = field.bytes;
    } else if (field.number == 2) {
      require_wire(field, 5, where);
      score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    } else if (field.number == 3) {
      require_wire(field, 0, where);
      type = field.value;
    }
  }
  const int64_t id = model.pieces.size();
  base::require(!text.empty() && !base::first_invalid_utf8(text), "{}: piece {}: expected UTF-8 text, found {}", where,
                id, base::in_quotes(text));
  base::require(text.find('\0') == std::string_view::npos, "{}: piece {}: expected no byte 0, found {}", where, id,
                base::in_quotes(text));
  base::require(std::isfinite(score), "{}: piece {} ({}): expected a finite score, found {}", where, id,
                base::in_quotes(text), score);
  base::require(type >= 1 && type <= 6, "{}: piece {} ({}): expected a type from 1 to 6, found {}", where, id,
                base::in_quotes(text), type);
  model.pieces.push_back(text);
  model.scores.push_back(score);
  model.types.push_back(static_cast<PieceType>(type));
}

/// Maximum bytes of a normalisation rule's result; Unicode's longest takes 33.
constexpr size_t kMaxRuleText = 256;

/// The rules are a double array (Darts-clone) and the texts it points to: a length of four bytes, the units, the texts.
void check_rules(std::string_view rules, const std::string& where) {
  if (rules.empty()) return;
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(rules[at + i])} << (8 * i);
    return value;
  };
  const char* broken = "{}: the compiled normalisation rules are damaged: {}";
  const auto require = [&](bool good, const char* what) { base::require(good, fmt::runtime(broken), where, what); };
  require(rules.size() > 4, "they are too short");
  const size_t bytes = word(0);
  require(bytes % 1024 == 0 && bytes > 0 && bytes < rules.size() - 4, "the length of the array");
  const size_t units = bytes / 4, texts = rules.size() - 4 - bytes;
  require(rules.back() == '\0', "the last text does not end");
  for (size_t i = 0; i < units; ++i) {
    const uint32_t unit = word(4 + 4 * i);
    if (i > 0 && unit >> 31) continue;  // a value, no node; the library follows the root without looking
    const size_t child = i ^ (size_t{unit >> 10} << ((unit & (1u << 9)) >> 6));
    // The next node is this one with any byte in its last eight bits.
    require((child | 0xFF) < units, "a node beyond the array");
    if ((unit >> 8) & 1) {
      const size_t text = word(4 + 4 * child) & 0x7FFFFFFF;
      require(text < texts, "a text beyond the file");
      const std::string_view start = rules.substr(4 + bytes + text, kMaxRuleText + 1);
      require(start.find('\0') != std::string_view::npos, "a text of more than 256 bytes");
    }
  }
}

void read_normaliser(std::string_view message, SentencePieceModel& model, const std::string& where) {
  MessageReader reader(message, where);
  for (Field field; reader.next(field);) {
    if (field.number == 2) {
      require_wire(field, 2, where);
      model.normaliser = field.bytes;
      check_rules(field.bytes, where);
    } else if (field.number >= 3 && field.number <= 5) {
      require_wire(field, 0, where);
      (field.number == 3   ? model.space_first
       : field.number == 4 ? model.single_spaces
                           : model.marks_spaces) = field.value != 0;
    }
  }
}

void read_trainer(std::string_view message, SentencePieceModel& model, const std::string& where) {
  MessageReader reader(message, where);
  for (Field field; reader.next(field);) {
    if (field.number != 3 && field.number != 24 && field.number != 35) continue;
    require_wire(field, 0, where);
    if (field.number == 3) {
      base::require(field.value == 1 || field.value == 2,
                    "{}: expected a model of type 1 (unigram) or 2 (BPE), found type {}", where, field.value);
      model.kind = static_cast<SentencePieceModel::Kind>(field.value);
    } else {
      (field.number == 24 ? model.space_last : model.byte_fallback) = field.value != 0;
    }
  }
}

void write_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void write_number(std::string& out, int field, uint64_t value) {
  write_varint(out, static_cast<uint64_t>(field) << 3);
  write_varint(out, value);
}

void write_bytes(std::string& out, int field, std::string_view bytes) {
  write_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  write_varint(out, bytes.size());
  out += bytes;
}

void write_float(std::string& out, int field, float value) {
  write_varint(out, static_cast<uint64_t>(field) << 3 | 5);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view file, const std::string& where) {
  SentencePieceModel model;
  MessageReader reader(file, where);
  for (Field field; reader.next(field);) {
    if (field.number > 5) continue;
    require_wire(field, 2, where);
    switch (field.number) {
      case 1:
        read_piece(field.bytes, model, where);
        break;
      case 2:
        read_trainer(field.bytes, model, where);
        break;
      case 3:
        read_normaliser(field.bytes, model, where);
        break;
      case 5: {  // rules for decoding
        SentencePieceModel ignored;
        read_normaliser(field.bytes, ignored, where);
        break;
      }
    }
  }
  base::require(model.pieces.size() > 0, "{}: not a SentencePiece model: it has no pieces", where);
  return model;
}

std::string write_sentencepiece_model(const SentencePieceModel& model) {
  std::string out;
  int64_t unknown = 0;
  for (int64_t id = 0; id < model.pieces.size(); ++id) {
    const auto at = static_cast<size_t>(id);
    std::string piece;
    write_bytes(piece, 1, model.pieces[id]);
    write_float(piece, 2, model.scores[at]);
    write_number(piece, 3, static_cast<uint64_t>(model.types[at]));
    write_bytes(out, 1, piece);
    if (model.types[at] == PieceType::unknown) unknown = id;
  }
  std::string trainer, normaliser;
  write_number(trainer, 3, static_cast<uint64_t>(model.kind));
  write_number(trainer, 24, model.space_last ? 1 : 0);
  write_number(trainer, 35, model.byte_fallback ? 1 : 0);
  write_number(trainer, 40, static_cast<uint64_t>(unknown));
  write_bytes(out, 2, trainer);
  if (!model.normaliser.empty()) write_bytes(normaliser, 2, model.normaliser);
  write_number(normaliser, 3, model.space_first ? 1 : 0);
  write_number(normaliser, 4, model.single_spaces ? 1 : 0);
  write_number(normaliser, 5, model.marks_spaces ? 1 : 0);
  write_bytes(out, 3, normaliser);
  return out;
}

}  // namespace mnemo::text
