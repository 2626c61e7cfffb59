#include "text/tokenizer_json.h"

#include <algorithm>

#include "base/base64.h"
#include "base/error.h"
#include "text/bpe_tokenizer.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/text_splitter.h"
#include "text/tokenizer_settings.h"
#include "text/word_index.h"
#include "text/word_piece.h"

namespace mnemo::text {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

/// A part of the file with the path that errors name: "normalizer.normalizers[0]".
struct JsonPart {
  const base::Node* node = nullptr;  // null: absent or null
  std::string where;

  bool empty() const { return node == nullptr; }

  JsonPart at(std::string_view key) const {
    const base::Node* found = node == nullptr ? nullptr : node->find(key);
    return {found != nullptr && !found->is_null() ? found : nullptr, fmt::format("{}.{}", where, key)};
  }

  std::vector<JsonPart> items() const {
    std::vector<JsonPart> out;
    if (node == nullptr) return out;
    base::require(node->is_array(), "{}: expected an array, found {}", where, node->found());
    for (size_t i = 0; i < node->items().size(); ++i)
      out.push_back({&node->items()[i], fmt::format("{}[{}]", where, i)});
    return out;
  }

  std::string text(const std::string& missing = {}) const {
    if (node == nullptr) return missing;
    base::require(node->is_string(), "{}: expected a string, found {}", where, node->found());
    return node->as_string();
  }

  bool flag(bool missing) const {
    if (node == nullptr) return missing;
    base::require(node->is_bool(), "{}: expected true or false, found {}", where, node->found());
    return node->as_bool();
  }

  int64_t integer(int64_t missing) const {
    if (node == nullptr) return missing;
    base::require(node->is_int(), "{}: expected a whole number, found {}", where, node->found());
    return node->as_int();
  }

  std::string type() const { return at("type").text(); }

  [[noreturn]] void unsupported(std::string_view what) const {
    base::input_error("{}: unsupported: {}", where,
                      empty() ? fmt::format("no {}", what) : fmt::format("{} {}", what, base::in_quotes(type())));
  }

  /// Throws InputError unless the key is absent, null, or has that value.
  void require_flag(std::string_view key, bool expected) const {
    const JsonPart found = at(key);
    base::require(found.flag(expected) == expected, "{}: unsupported: {}", found.where, !expected);
  }
};

/// The parts of a Sequence, or the one part itself.
std::vector<JsonPart> sequence(const JsonPart& part, std::string_view list) {
  if (part.empty()) return {};
  if (part.type() != "Sequence") return {part};
  std::vector<JsonPart> out;
  for (const JsonPart& one : part.at(list).items()) {
    for (JsonPart& inner : sequence(one, list)) out.push_back(std::move(inner));
  }
  return out;
}

/// A pattern {"String": "x"} or {"Regex": "x"}.
std::string pattern(const JsonPart& part, std::string_view kind) {
  const JsonPart found = part.at("pattern").at(kind);
  base::require(!found.empty(), "{}.pattern: expected {{\"{}\": ...}}", part.where, kind);
  return found.text();
}

/// The vocabulary by id, with the added tokens after it or in its gaps.
EntryList all_tokens(TokenizerJson& json, const std::string& where) {
  std::vector<std::pair<int64_t, int64_t>> order;  // id, place
  for (size_t i = 0; i < json.ids.size(); ++i) order.emplace_back(json.ids[i], static_cast<int64_t>(i));
  std::sort(order.begin(), order.end());
  const size_t known = order.size();
  for (size_t i = 0; i < json.added.size(); ++i) {
    const int64_t id = json.added.ids[i];
    const std::string_view text = json.added.text(i);
    const auto found = std::lower_bound(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(known),
                                        std::pair<int64_t, int64_t>(id, -1));
    const bool there = found != order.begin() + static_cast<std::ptrdiff_t>(known) && found->first == id;
    if (!there) {
      json.tokens.push_back(text);
      json.ids.push_back(id);
    } else {
      base::require(json.tokens[found->second] == text, "{}: added token {}: its id {} is that of {}", where,
                    base::in_quotes(text), id, base::in_quotes(json.tokens[found->second]));
    }
  }
  return tokens_by_id(json.tokens, json.ids, where);
}

// ---- Post-processors

using TemplatePart = SequenceTemplate::Part;

constexpr int64_t kTokenTypes = 256;  // they are stored in a byte each

int32_t id_from(const JsonPart& number) {
  const int64_t id = number.integer(-1);
  base::require(id >= 0 && id <= INT32_MAX, "{}: expected an id, found {}", number.where, id);
  return static_cast<int32_t>(id);
}

int32_t id_of(const JsonPart& pair) {  // ["[SEP]", 102]
  const std::vector<JsonPart> items = pair.items();
  base::require(items.size() == 2, "{}: expected a token and its id", pair.where);
  return id_from(items[1]);
}

int32_t type_id_of(const JsonPart& part) {
  const JsonPart number = part.at("type_id");
  const int64_t type = number.integer(0);
  base::require(type >= 0 && type < kTokenTypes, "{}: expected 0 to {}, found {}", number.where, kTokenTypes - 1, type);
  return static_cast<int32_t>(type);
}

std::vector<TemplatePart> template_parts(const JsonPart& list, const JsonPart& specials) {
  std::vector<TemplatePart> out;
  for (const JsonPart& item : list.items()) {
    if (const JsonPart text = item.at("Sequence"); !text.empty()) {
      const std::string name = text.at("id").text();
      base::require(name == "A" || name == "B", "{}: expected \"A\" or \"B\", found {}", text.where,
                    base::in_quotes(name));
      out.push_back({.kind = name == "A" ? TemplatePart::Kind::first : TemplatePart::Kind::second,
                     .id = 0,
                     .type = type_id_of(text)});
      continue;
    }
    const JsonPart token = item.at("SpecialToken");
    base::require(!token.empty(), "{}: expected Sequence or SpecialToken", item.where);
    const JsonPart known = specials.at(token.at("id").text());
    base::require(!known.empty(), "{}: special_tokens has no {}", token.where, base::in_quotes(token.at("id").text()));
    for (const JsonPart& id : known.at("ids").items())
      out.push_back({.kind = TemplatePart::Kind::token, .id = id_from(id), .type = type_id_of(token)});
  }
  return out;
}

SequenceTemplate sequences_of(const JsonPart& root, int64_t size) {
  SequenceTemplate out;
  for (const JsonPart& part : sequence(root.at("post_processor"), "processors")) {
    const std::string type = part.type();
    if (type == "ByteLevel") continue;  // moves offsets alone
    if (type == "BertProcessing") {
      out = SequenceTemplate::bert(id_of(part.at("cls")), id_of(part.at("sep")));
    } else if (type == "RobertaProcessing") {
      out = SequenceTemplate::roberta(id_of(part.at("cls")), id_of(part.at("sep")));
    } else if (type == "TemplateProcessing") {
      out = {.single = template_parts(part.at("single"), part.at("special_tokens")),
             .pair = template_parts(part.at("pair"), part.at("special_tokens"))};
    } else {
      part.unsupported("post-processor");
    }
  }
  for (const auto* list : {&out.single, &out.pair}) {
    for (const TemplatePart& part : *list)
      base::require(part.id >= 0 && part.id < size, "{}.post_processor: expected ids below {}, found {}", root.where,
                    size, part.id);
  }
  const auto second = [](const TemplatePart& part) { return part.kind == TemplatePart::Kind::second; };
  base::require(std::none_of(out.single.begin(), out.single.end(), second),
                "{}.post_processor.single: expected one sequence, found two", root.where);
  return out;
}

/// What the files beside a tokenizer.json say, and the folder that errors about them name.
struct Beside {
  const TokenizerSettings& settings;
  const std::string& folder;

  /// Whether the config names that class of tokenizers, which sets up itself what the settings say.
  bool is_class(std::string_view name) const {
    const base::Node* found = settings.plain.find("tokenizer_class");
    return found != nullptr && found->is_string() && found->as_string().starts_with(name);
  }
  /// A setting of the config for a class that follows it.
  bool flag(std::string_view key, bool otherwise) const {
    const base::Node* found = settings.plain.find(key);
    if (found == nullptr || found->is_null()) return otherwise;
    base::require(found->is_bool(), "{}/tokenizer_config.json: {}: expected true or false, found {}", folder, key,
                  found->found());
    return found->as_bool();
  }
};

/// The special tokens, where they stand, and all added tokens.
AddedTokens set_special(const JsonPart& root, const EntryList& tokens, const AddedTokens& added, const Beside& beside,
                        PretrainedParts& parts) {
  const WordIndex index(tokens);
  const ResolvedTokens all = resolve_tokens(
      beside.settings, {}, added, [&](std::string_view token) { return index.find(token); }, tokens.size(),
      beside.folder);
  parts.special = all.special;
  parts.sequences = sequences_of(root, tokens.size());
  const auto cls = static_cast<int32_t>(all.cls()), sep = static_cast<int32_t>(all.sep());
  if (cls >= 0 && sep >= 0 && beside.is_class("Bert")) parts.sequences = SequenceTemplate::bert(cls, sep);
  if (cls >= 0 && sep >= 0 && beside.is_class("Roberta")) parts.sequences = SequenceTemplate::roberta(cls, sep);
  if (all.eos() >= 0 && beside.is_class("T5"))
    parts.sequences = SequenceTemplate::ending(static_cast<int32_t>(all.eos()));
  return all.added;
}

// ---- WordPiece

std::shared_ptr<const Tokenizer> word_piece(const JsonPart& root, TokenizerJson& json, PretrainedParts parts,
                                            const Beside& beside, const std::string& where) {
  const JsonPart model = root.at("model"), normalizer = root.at("normalizer"), splitter = root.at("pre_tokenizer"),
                 decoder = root.at("decoder");
  WordPieceOptions options{.unknown = model.at("unk_token").text("[UNK]"),
                           .prefix = model.at("continuing_subword_prefix").text("##"),
                           .max_word_characters = model.at("max_input_chars_per_word").integer(100)};
  if (normalizer.type() != "BertNormalizer") normalizer.unsupported("normalizer");
  if (splitter.type() != "BertPreTokenizer") splitter.unsupported("pre-tokenizer");
  options.lowercase = normalizer.at("lowercase").flag(true);
  options.strip_accents = normalizer.at("strip_accents").flag(options.lowercase);
  options.split_cjk = normalizer.at("handle_chinese_chars").flag(true);
  options.clean = normalizer.at("clean_text").flag(true);
  if (!decoder.empty()) {
    if (decoder.type() != "WordPiece") decoder.unsupported("decoder");
    decoder.require_flag("cleanup", true);
  }
  if (beside.is_class("Bert")) {
    options.lowercase = beside.flag("do_lower_case", true);
    options.strip_accents = beside.flag("strip_accents", options.lowercase);
    options.split_cjk = beside.flag("tokenize_chinese_chars", true);
    if (const std::string* unknown = beside.settings.token("unk_token")) options.unknown = *unknown;
  }
  const auto in_vocabulary = static_cast<std::ptrdiff_t>(json.ids.size());
  EntryList tokens = all_tokens(json, where);
  options.no_pieces.assign(json.ids.begin() + in_vocabulary, json.ids.end());
  if (const int64_t twice = WordIndex(tokens).duplicate(); twice >= 0)
    base::input_error("{}: the token {} appears twice", where, base::in_quotes(tokens[twice]));
  const AddedTokens added = set_special(root, tokens, json.added, beside, parts);
  return make_word_piece(std::move(tokens), std::move(options), std::move(parts), where, added);
}

// ---- BPE

void read_byte_level(const JsonPart& part, BpeOptions& options) {
  const bool adds_space = part.at("add_prefix_space").flag(true);
  base::require(!adds_space || options.patterns.empty(),
                "{}.add_prefix_space: unsupported: a space in front of every piece that a pattern has split",
                part.where);
  if (adds_space) options.first_space = BpeOptions::FirstSpace::where_missing;
  if (part.at("use_regex").flag(true)) options.patterns.push_back(TextSplitter::gpt2_pattern());
}

void read_metaspace(const JsonPart& part, BpeOptions& options) {
  const std::string scheme = part.at("prepend_scheme")
                                 .text(part.at("add_prefix_space").flag(true) ? "always" : "never");
  base::require(scheme == "first" || scheme == "always" || scheme == "never", "{}.prepend_scheme: unsupported: {}",
                part.where, base::in_quotes(scheme));
  part.require_flag("split", false);
  base::require(!part.at("split").empty(), "{}: unsupported: a Metaspace that splits", part.where);
  options.space_mark = part.at("replacement").text(std::string(kSpaceMark));
  options.first_space_once = scheme == "first";
  options.first_space = scheme == "never" ? BpeOptions::FirstSpace::never : BpeOptions::FirstSpace::where_missing;
}

/// Llama's, or NFC before byte-level BPE.
void read_bpe_normalizer(const JsonPart& root, BpeOptions& options) {
  for (const JsonPart& part : sequence(root.at("normalizer"), "normalizers")) {
    const std::string type = part.type();
    if (type == "NFC") {
      options.compose = true;
    } else if (type == "Prepend" && part.at("prepend").text() == kSpaceMark) {
      options.first_space = BpeOptions::FirstSpace::always;
    } else if (type == "Replace" && pattern(part, "String") == " " && part.at("content").text() == kSpaceMark) {
      options.space_mark = kSpaceMark;
    } else {
      part.unsupported("normalizer");
    }
  }
}

void read_bpe_splitter(const JsonPart& root, BpeOptions& options) {
  for (const JsonPart& part : sequence(root.at("pre_tokenizer"), "pretokenizers")) {
    const std::string type = part.type();
    if (type == "ByteLevel") {
      options.bytes = true;
      read_byte_level(part, options);
    } else if (type == "Split") {
      base::require(part.at("behavior").text() == "Isolated", "{}.behavior: unsupported: {}", part.where,
                    base::in_quotes(part.at("behavior").text()));
      part.require_flag("invert", false);
      options.patterns.push_back(pattern(part, "Regex"));
    } else if (type == "Metaspace") {
      read_metaspace(part, options);
    } else {
      part.unsupported("pre-tokenizer");
    }
  }
}

void check_bpe_decoder(const JsonPart& root, const BpeOptions& options) {
  for (const JsonPart& part : sequence(root.at("decoder"), "decoders")) {
    const std::string type = part.type();
    const bool known = options.bytes ? type == "ByteLevel"
                                     : type == "Replace" || type == "ByteFallback" || type == "Fuse" ||
                                           type == "Strip" || type == "Metaspace";
    if (!known) part.unsupported("decoder");
  }
}

/// The class has rules of its own for spaces and unknown characters, whatever the file says.
void set_llama(const Beside& beside, BpeOptions& options) {
  options.compose = false;
  options.patterns.clear();
  options.space_mark = kSpaceMark;
  options.first_space = beside.flag("add_prefix_space", true) ? BpeOptions::FirstSpace::where_missing
                                                              : BpeOptions::FirstSpace::never;
  options.first_space_once = !beside.flag("legacy", false);
  options.byte_fallback = options.fuse_unknown = true;
  options.ignore_merges = false;
}

/// The normalizer Prepend puts its mark in front of each text between tokens that are not normalized, before it looks
/// for those that are.
void require_no_normalised(const AddedTokens& added, const std::string& where) {
  for (size_t i = 0; i < added.size(); ++i)
    base::require(!added.rules[i].normalised || added.rules[i].special,
                  "{}: unsupported: the added token {} with \"normalized\": true beside the normalizer Prepend", where,
                  base::in_quotes(added.text(i)));
}

std::shared_ptr<const Tokenizer> bpe(const JsonPart& root, TokenizerJson& json, PretrainedParts parts,
                                     const Beside& beside, const std::string& where) {
  const JsonPart model = root.at("model");
  BpeOptions options{.bytes = false,
                     .byte_fallback = model.at("byte_fallback").flag(false),
                     .fuse_unknown = model.at("fuse_unk").flag(false),
                     .ignore_merges = model.at("ignore_merges").flag(false),
                     .unknown = model.at("unk_token").text()};
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    base::require(model.at(key).text().empty(), "{}.{}: unsupported: {}", model.where, key,
                  base::in_quotes(model.at(key).text()));
  base::require(model.at("dropout").empty(), "{}.dropout: unsupported", model.where);
  read_bpe_normalizer(root, options);
  read_bpe_splitter(root, options);
  if (!options.bytes && beside.is_class("Llama")) set_llama(beside, options);
  check_bpe_decoder(root, options);
  base::require(!options.bytes || options.space_mark.empty(), "{}: unsupported: bytes and a mark for spaces", where);
  const bool own_spaces = beside.is_class("GPT2") || beside.is_class("Roberta") || beside.is_class("GPTNeoX") ||
                          beside.is_class("Qwen2");
  if (options.bytes && own_spaces)
    options.first_space = beside.flag("add_prefix_space", false) ? BpeOptions::FirstSpace::where_missing
                                                                 : BpeOptions::FirstSpace::never;
  BpeVocabulary vocabulary{all_tokens(json, where), std::move(json.left), std::move(json.right)};
  AddedTokens added = set_special(root, vocabulary.tokens, json.added, beside, parts);
  if (options.first_space == BpeOptions::FirstSpace::always) require_no_normalised(added, where);
  return make_bpe(std::move(vocabulary), std::move(added), std::move(options), {}, std::move(parts), where);
}

// ---- Unigram

/// SentencePiece drops and joins nothing but spaces. Strip and WhitespaceSplit take all white space of Unicode, which
/// is the same only where the rules of characters have made spaces of it.
void require_charsmap(const JsonPart& part, const SentencePieceModel& model) {
  base::require(!model.normaliser.empty(), "{}: unsupported: {} without Precompiled in front of it", part.where,
                part.type());
}

/// Whether spaces are dropped at the ends of a text and joined inside it.
bool read_unigram_normalizer(const JsonPart& root, SentencePieceModel& model, bool& strips_left) {
  bool strips = false, joins = false;
  for (const JsonPart& part : sequence(root.at("normalizer"), "normalizers")) {
    const std::string type = part.type();
    if (type == "Precompiled") {
      model.normaliser = base::from_base64(part.at("precompiled_charsmap").text(), part.where);
    } else if (type == "Strip") {
      require_charsmap(part, model);
      part.require_flag("strip_right", true);
      strips_left = part.at("strip_left").flag(true);
      strips = true;
    } else if (type == "Replace" && strips && pattern(part, "Regex") == " {2,}") {
      const JsonPart content = part.at("content");
      base::require(content.text() == " " || content.text() == kSpaceMark, "{}: unsupported: {}", content.where,
                    base::in_quotes(content.text()));
      joins = true;
    } else {
      part.unsupported("normalizer");
    }
  }
  base::require(strips == joins, "{}.normalizer: unsupported: Strip without Replace \" {{2,}}\" after it", root.where);
  return joins;
}

/// Reads how spaces are treated. Returns whether only the start of a text has one in front.
bool read_unigram_spaces(const JsonPart& root, SentencePieceModel& model) {
  bool strips_left = true;
  const bool joins = read_unigram_normalizer(root, model, strips_left);
  bool splits = false;
  std::string scheme;
  for (const JsonPart& part : sequence(root.at("pre_tokenizer"), "pretokenizers")) {
    if (part.type() == "Metaspace") {
      scheme = part.at("prepend_scheme").text(part.at("add_prefix_space").flag(true) ? "always" : "never");
    } else if (part.type() == "WhitespaceSplit") {
      require_charsmap(part, model);
      splits = true;
    } else {
      part.unsupported("pre-tokenizer");
    }
  }
  base::require(!scheme.empty(), "{}.pre_tokenizer: expected Metaspace", root.where);
  base::require(!splits || scheme == "always",
                "{}.pre_tokenizer: unsupported: WhitespaceSplit and a Metaspace with prepend_scheme {}", root.where,
                base::in_quotes(scheme));
  model.space_first = scheme != "never";
  base::require(strips_left || model.space_first,
                "{}.normalizer: unsupported: Strip with strip_left false, without a space in front of texts",
                root.where);
  // Either is what SentencePiece does with spaces. Without them all spaces stay, and one more is put where none is.
  model.single_spaces = joins || splits;
  return scheme == "first";
}

/// T5's: SentencePiece's own rules in this form. The library computes them.
std::shared_ptr<const Tokenizer> unigram(const JsonPart& root, TokenizerJson& json, PretrainedParts parts,
                                         const Beside& beside, const std::string& where) {
  SentencePieceModel model;
  const bool first_space_once = read_unigram_spaces(root, model);
  const JsonPart decoder = root.at("decoder");
  if (!decoder.empty() && decoder.type() != "Metaspace") decoder.unsupported("decoder");

  base::require(json.scores.size() == static_cast<size_t>(json.tokens.size()),
                "{}.model.vocab: expected pairs of a piece and its score", where);
  const int64_t unknown = root.at("model").at("unk_id").integer(-1);
  base::require(unknown >= 0 && unknown < json.tokens.size(), "{}.model.unk_id: expected a piece, found {}", where,
                unknown);
  model.byte_fallback = root.at("model").at("byte_fallback").flag(false);
  model.pieces = std::move(json.tokens);
  model.scores.assign(json.scores.begin(), json.scores.end());
  model.types.assign(json.scores.size(), PieceType::normal);
  model.types[static_cast<size_t>(unknown)] = PieceType::unknown;
  for (size_t i = 0; i < json.added.size(); ++i) {
    const int64_t id = json.added.ids[i];
    const std::string_view text = json.added.text(i);
    base::require(id >= model.pieces.size() || model.pieces[id] == text, "{}: added token {}: its id {} is that of {}",
                  where, base::in_quotes(text), id,
                  base::in_quotes(model.pieces[std::min(id, model.pieces.size() - 1)]));
    if (id != unknown && id < model.pieces.size() && json.added.rules[i].special)
      model.types[static_cast<size_t>(id)] = PieceType::control;
  }
  const AddedTokens added = set_special(root, model.pieces, json.added, beside, parts);
  return make_sentencepiece(write_sentencepiece_model(model),
                            {.space_where_missing = !model.single_spaces, .first_space_once = first_space_once},
                            std::move(parts), where, added);
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view text, const TokenizerSettings& settings,
                                                     PretrainedParts parts, const std::string& where,
                                                     const std::string& folder) {
  const Beside beside{settings, folder};
  TokenizerJson json = parse_tokenizer_json(text, where);
  const base::Node rest = std::move(json.rest);
  const JsonPart root{&rest, where};
  const JsonPart model = root.at("model");
  base::require(!model.empty() && model.node->is_table(), "{}: expected the key \"model\"", where);
  // Old files name no type; the keys of their models tell them apart.
  std::string type = model.type();
  if (type.empty()) type = json.left.size() > 0 ? "BPE" : json.scores.empty() ? "WordPiece" : "Unigram";
  if (type == "WordPiece") return word_piece(root, json, std::move(parts), beside, where);
  if (type == "BPE") return bpe(root, json, std::move(parts), beside, where);
  if (type == "Unigram") return unigram(root, json, std::move(parts), beside, where);
  model.unsupported("model");
}

}  // namespace mnemo::text
