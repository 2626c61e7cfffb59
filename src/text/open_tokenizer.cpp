#include "text/open_tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "base/printable.h"
#include "base/unicode.h"
#include "base/utf8.h"
#include "text/bpe_tokenizer.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/text_splitter.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_settings.h"
#include "text/word_index.h"
#include "text/word_piece.h"

namespace mnemo::text {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
constexpr const char *kConfig = "tokenizer_config.json", *kSpecialMap = "special_tokens_map.json",
                     *kAdded = "added_tokens.json";
/// Files beside a vocabulary, kept as they are: an exported model has them again.
constexpr std::string_view kBeside[] = {kConfig, kSpecialMap, kAdded};
/// Empty lines of a vocab.txt, which cost memory many times their size.
constexpr int kMaxEmptyLines = 1000;
// The special tokens that transformers' classes have without being told.
constexpr TokenDefaults kBertTokens{.unk = "[UNK]", .sep = "[SEP]", .pad = "[PAD]", .cls = "[CLS]", .mask = "[MASK]"};
constexpr TokenDefaults kGpt2Tokens{.bos = "<|endoftext|>", .eos = "<|endoftext|>", .unk = "<|endoftext|>"};
constexpr TokenDefaults kRobertaTokens{
    .bos = "<s>", .eos = "</s>", .unk = "<unk>", .sep = "</s>", .pad = "<pad>", .cls = "<s>", .mask = "<mask>"};
constexpr TokenDefaults kT5Tokens{.eos = "</s>", .unk = "<unk>", .pad = "<pad>"};
constexpr TokenDefaults kLlamaTokens{.bos = "<s>", .eos = "</s>", .unk = "<unk>"};
constexpr TokenDefaults kAlbertTokens{
    .bos = "[CLS]", .eos = "[SEP]", .unk = "<unk>", .sep = "[SEP]", .pad = "<pad>", .cls = "[CLS]", .mask = "[MASK]"};
constexpr TokenDefaults kDebertaTokens{
    .bos = "[CLS]", .eos = "[SEP]", .unk = "[UNK]", .sep = "[SEP]", .pad = "[PAD]", .cls = "[CLS]", .mask = "[MASK]"};
constexpr std::string_view kSentencePieceFiles[] = {"spiece.model", "spm.model", kTrainedModelFile};
constexpr std::array<std::string_view, 2> kBpeFiles[] = {
    {"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}, {"gpt2-vocab.json", "gpt2-merges.txt"}};
constexpr int64_t kExtraIds = 100, kMaxExtraIds = 10'000;  // of T5
constexpr size_t kNamedFiles = 8;                          // of a folder without a tokenizer

bool is_beside(std::string_view name) { return std::ranges::find(kBeside, name) != std::end(kBeside); }

bool is_known_file(const std::string& name) {
  static const std::vector<std::string_view> known = {
      Tokenizer::kFile, "source.spm",      "target.spm",      "vocab.json",      "spiece.model",
      "spm.model",      kTrainedModelFile, "tokenizer.json",  "vocab.txt",       "merges.txt",
      "encoder.json",   "vocab.bpe",       "gpt2-vocab.json", "gpt2-merges.txt", "dict.txt"};
  return std::find(known.begin(), known.end(), name) != known.end() || is_beside(name) || name.ends_with("-vocab.txt");
}

/// A line without the white space at its end, as Unicode has it.
std::string_view without_end(std::string_view line) {
  while (!line.empty()) {
    size_t begin = line.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(line[begin]) & 0xC0) == 0x80) --begin;
    const base::Utf8Character last = base::front_character(line.substr(begin));
    if (last.length <= 0 || !base::is_white_space(last.code_point)) break;
    line.remove_suffix(line.size() - begin);
  }
  return line;
}

/// The tokens of a vocab.txt, a line each.
EntryList tokens_by_line(std::string_view rest, const std::string& where) {
  EntryList tokens;
  int empty = 0;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view token = without_end(rest.substr(0, end));
    base::require(!token.empty() || ++empty <= kMaxEmptyLines,
                  "{}:{}: expected a token, found more than {} empty lines", where, tokens.size() + 1, kMaxEmptyLines);
    tokens.push_back(token);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return tokens;
}

/// The files of one folder. Files in use are read once and given to the tokenizer.
class Folder {
 public:
  using Read = std::function<std::string(const std::string& name)>;

  Folder(std::set<std::string> names, Read read, const std::string& where, const OpenOptions& options)
      : names_(std::move(names)), read_(std::move(read)), where_(where), options_(options) {}

  std::shared_ptr<const Tokenizer> open() {
    if (has(Tokenizer::kFile)) {
      use(Tokenizer::kFile);
      return Tokenizer::load(used_, where_);
    }
    if (has("source.spm")) return marian();
    for (const std::string_view name : kSentencePieceFiles) {
      if (has(name)) return sentencepiece(name);
    }
    if (has("tokenizer.json")) return tokenizer_json();
    for (const std::string& name : names_) {
      if (name == "vocab.txt" || name.ends_with("-vocab.txt")) return word_piece(name);
    }
    for (const auto& [vocabulary, merges] : kBpeFiles) {
      if (has(vocabulary) && has(merges)) return byte_bpe(vocabulary, merges);
    }
    std::vector<std::string> found;
    for (const std::string& name : names_) {
      if (found.size() == kNamedFiles) {
        found.push_back("...");
        break;
      }
      found.push_back(base::printable(name));
    }
    base::input_error(
        "{}: expected the files of a tokenizer (vocabulary.json, spiece.model, tokenizer.model, spm.model, source.spm, "
        "tokenizer.json, vocab.txt, or vocab.json and merges.txt), found {}",
        where_, found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", ")));
  }

 private:
  bool has(std::string_view name) const { return names_.contains(std::string(name)); }
  std::string path(std::string_view name) const { return base::join_path(where_, base::printable(name)); }

  /// A file that the tokenizer is made of.
  const std::string& use(std::string_view name) {
    const std::string file(name);
    base::require(has(name), "{}: the file {} is missing", where_, name);
    const auto used = used_.find(file);
    return used != used_.end() ? used->second : used_.emplace(file, read_(file)).first->second;
  }

  /// The files that a tokenizer is made of, and files in the same folder that other libraries read.
  PretrainedParts give_files(const SpecialTokens& special) {
    PretrainedParts parts{.special = special};
    for (const std::string_view name : kBeside) {
      const std::string file(name);
      if (has(name) && !used_.contains(file)) parts.beside.emplace(file, read_(file));
    }
    parts.files = std::move(used_);
    return parts;
  }

  /// The settings of the files beside a vocabulary, which are then files that the tokenizer is made of.
  TokenizerSettings settings() {
    const auto content = [&](const char* name) { return has(name) ? &use(name) : nullptr; };
    return read_tokenizer_settings({content(kConfig), content(kSpecialMap), content(kAdded)}, where_);
  }

  std::optional<bool> flag(const base::Node& config, std::string_view key) const {
    const base::Node* found = config.find(key);
    if (found == nullptr || found->is_null()) return {};
    base::require(found->is_bool(), "{}: {}: expected true or false, found {}", path(kConfig), key, found->found());
    return found->as_bool();
  }

  std::string text(const base::Node& config, std::string_view key) const {
    const base::Node* found = config.find(key);
    if (found == nullptr || found->is_null()) return "";
    base::require(found->is_string(), "{}: {}: expected a string, found {}", path(kConfig), key, found->found());
    return found->as_string();
  }
  /// Throws InputError for a setting that would give other tokens than those of the class read here.
  void require_flag(const base::Node& config, std::string_view key, bool otherwise) const {
    base::require(flag(config, key).value_or(otherwise) == otherwise, "{}: {}: unsupported: expected {}, found {}",
                  path(kConfig), key, otherwise, !otherwise);
  }

  std::shared_ptr<const Tokenizer> word_piece(std::string_view name) {
    const TokenizerSettings all = settings();
    const base::Node& config = all.plain;
    require_flag(config, "do_basic_tokenize", true);
    for (const auto& [key, known] :
         {std::pair("word_tokenizer_type", "basic"), {"subword_tokenizer_type", "wordpiece"}})
      base::require(text(config, key).empty() || text(config, key) == known,
                    "{}: {}: unsupported: expected \"{}\", found {}", path(kConfig), key, known,
                    base::in_quotes(text(config, key)));
    WordPieceOptions options{
        .lowercase = flag(config, "do_lower_case").value_or(name.find("-cased") == std::string::npos)};
    options.strip_accents = flag(config, "strip_accents").value_or(options.lowercase);
    options.split_cjk = flag(config, "tokenize_chinese_chars").value_or(true);
    require_family(all.plain, "Bert", name);
    if (const std::string* unknown = all.token("unk_token")) options.unknown = *unknown;
    EntryList tokens = tokens_by_line(use(name), path(name));
    const WordIndex index = WordIndex::of_last(tokens);
    const ResolvedTokens resolved = resolve(all, kBertTokens, index, tokens.size());
    PretrainedParts parts = give_files(resolved.special);
    if (resolved.cls() >= 0 && resolved.sep() >= 0) parts.sequences = bert_sequences(resolved);
    return make_word_piece(std::move(tokens), std::move(options), std::move(parts), path(name), resolved.added);
  }

  ResolvedTokens resolve(const TokenizerSettings& all, const TokenDefaults& defaults, const WordIndex& index,
                         int64_t size, AddedTokens first = {}) const {
    return resolve_tokens(
        all, defaults, std::move(first), [&](std::string_view token) { return index.find(token); }, size, where_);
  }

  static SequenceTemplate bert_sequences(const ResolvedTokens& tokens) {
    return SequenceTemplate::bert(static_cast<int32_t>(tokens.cls()), static_cast<int32_t>(tokens.sep()));
  }

  /// The first and last token of a text as add_bos_token and add_eos_token say.
  SequenceTemplate bounded_sequences(const base::Node& config, const ResolvedTokens& tokens, bool begins) const {
    const auto id = [&](const char* key, bool otherwise, int64_t token) {
      return flag(config, key).value_or(otherwise) && token >= 0 ? std::optional(static_cast<int32_t>(token))
                                                                 : std::nullopt;
    };
    return SequenceTemplate::bounded(id("add_bos_token", begins, tokens.bos()),
                                     id("add_eos_token", false, tokens.eos()));
  }

  /// Throws InputError where the config names a class of another family, whose rules the files do not have.
  void require_family(const base::Node& config, std::string_view own, std::string_view file) const {
    const std::string name = text(config, "tokenizer_class");
    for (const std::string_view family : {"Albert", "Bert", "DebertaV2", "GPT2", "Llama", "Marian", "Roberta", "T5"})
      base::require(family == own || !name.starts_with(std::string(family) + "Tokenizer"),
                    "{}: tokenizer_class: expected {}'s for the file {}, found {}; leave it out, or give that class's "
                    "own files",
                    path(kConfig), own, file, base::in_quotes(name));
  }

  /// Whether byte-level files are RoBERTa's: by the class of the config, otherwise by the tokens.
  bool is_roberta(const base::Node& config, const WordIndex& index, std::string_view vocabulary_name,
                  std::string_view merges_name) const {
    const std::string name = text(config, "tokenizer_class");
    base::require(name.empty() || name.starts_with("GPT2") || name.starts_with("Roberta"),
                  "{}: tokenizer_class: with only the files {} and {}, expected GPT-2 or RoBERTa, found {}; add its "
                  "tokenizer.json, which says how it splits texts",
                  path(kConfig), vocabulary_name, merges_name, base::in_quotes(name));
    return name.empty() ? index.find("<s>") >= 0 && index.find("</s>") >= 0 : name.starts_with("Roberta");
  }

  std::shared_ptr<const Tokenizer> byte_bpe(std::string_view vocabulary_name, std::string_view merges_name) {
    const TokenizerSettings all = settings();
    BpeVocabulary vocabulary;
    const TokenizerJson json = parse_vocab_json(use(vocabulary_name), path(vocabulary_name));
    vocabulary.tokens = tokens_by_id(json.tokens, json.ids, path(vocabulary_name));
    read_merges(use(merges_name), path(merges_name), vocabulary.tokens, vocabulary.left, vocabulary.right);
    const WordIndex index(vocabulary.tokens);
    const bool roberta = is_roberta(all.plain, index, vocabulary_name, merges_name);
    BpeOptions options{.patterns = {TextSplitter::gpt2_pattern()}};
    if (flag(all.plain, "add_prefix_space").value_or(false))
      options.first_space = BpeOptions::FirstSpace::where_missing;
    std::optional<ModelIds> model_ids;
    PretrainedParts parts;
    AddedTokens added;
    if (options_.fairseq_ids && has("dict.txt")) {
      model_ids = fairseq_ids(vocabulary.tokens.size());
      parts = give_files({.begin = 0, .end = 2, .padding = 1, .mask = -1});
      parts.sequences = SequenceTemplate::roberta(0, 2);
    } else {
      ResolvedTokens tokens = resolve(all, roberta ? kRobertaTokens : kGpt2Tokens, index, vocabulary.tokens.size());
      parts = give_files(tokens.special);
      if (!roberta) {
        parts.sequences = bounded_sequences(all.plain, tokens, false);
      } else if (tokens.cls() >= 0 && tokens.sep() >= 0) {
        parts.sequences = SequenceTemplate::roberta(static_cast<int32_t>(tokens.cls()),
                                                    static_cast<int32_t>(tokens.sep()));
      }
      added = std::move(tokens.added);
      if (index.find("<s>") >= 0 && index.find("<unk>") >= 0) options.unknown = "<unk>";
    }
    return make_bpe(std::move(vocabulary), std::move(added), std::move(options), std::move(model_ids), std::move(parts),
                    path(vocabulary_name));
  }

  /// dict.txt: a line "TOKEN COUNT" for each model id from 4 on, the token an id of the vocabulary.
  ModelIds fairseq_ids(int64_t tokens) {
    ModelIds out{.special = {"<s>", "<pad>", "</s>", "<unk>"}, .unknown = 3, .of_token = {}, .size = 4};
    out.of_token.assign(static_cast<size_t>(tokens), -1);
    std::string_view rest = use("dict.txt");
    for (int64_t line = 1; !rest.empty(); ++line) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view text = rest.substr(0, end), token = text.substr(0, text.find(' '));
      base::require(token.size() < text.size(), "{}:{}: expected a token and its count, found {}", path("dict.txt"),
                    line, base::in_quotes(text));
      int64_t id = -1;
      const auto read = std::from_chars(token.data(), token.data() + token.size(), id);
      if (read.ec == std::errc() && read.ptr == token.data() + token.size()) {
        base::require(id >= 0 && id < tokens, "{}:{}: expected an id below {}, found {}", path("dict.txt"), line,
                      tokens, id);
        int32_t& place = out.of_token[static_cast<size_t>(id)];
        base::require(place < 0, "{}:{}: the id {} appears twice", path("dict.txt"), line, id);
        place = static_cast<int32_t>(out.size);
      }
      ++out.size;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return out;
  }

  /// Tokens after the pieces of a model: T5's for spans, the last of them <extra_id_0>, and those that a tokenizer.json
  /// adds, by id without a gap.
  AddedTokens tokens_behind(const SentencePieceModel& model, const WordIndex& index, const base::Node& config,
                            bool t5) {
    AddedTokens added;
    if (t5 && index.find("<extra_id_0>") < 0 && index.find("\u2581<extra_id_0>") < 0) {
      const base::Node* count = config.find("extra_ids");
      const base::Node found = count == nullptr || count->is_null() ? base::Node(kExtraIds) : *count;
      base::require(found.is_int() && found.as_int() >= 0 && found.as_int() <= kMaxExtraIds,
                    "{}: extra_ids: expected an integer from 0 to {}, found {}", path(kConfig), kMaxExtraIds,
                    found.found());
      for (int64_t id = found.as_int() - 1; id >= 0; --id)
        added.add(model.pieces.size() + found.as_int() - 1 - id, fmt::format("<extra_id_{}>", id), {.special = true});
    }
    constexpr const char* kJson = "tokenizer.json";
    if (!has(kJson)) return added;
    TokenizerJson json;
    try {
      json = parse_tokenizer_json(read_(kJson), path(kJson));
    } catch (const base::InputError&) {
      return added;  // only the model counts
    }
    std::map<int64_t, size_t> places;
    for (size_t i = 0; i < json.added.size(); ++i) places.emplace(json.added.ids[i], i);
    int64_t next = model.pieces.size() + static_cast<int64_t>(added.size());
    for (auto place = places.find(next); place != places.end(); place = places.find(++next)) {
      added.add(next, json.added.text(place->second), json.added.rules[place->second]);
      use(kJson);  // a model that is saved has them too
    }
    return added;
  }

  /// Whether the config names a class that takes all its rules from tokenizer.json.
  bool is_generic(const base::Node& config) const {
    const std::string name = text(config, "tokenizer_class");
    return name == "PreTrainedTokenizerFast" || name == "TokenizersBackend";
  }

  /// Reads a Llama's model as transformers 5 does: byte-pair encoding, with the class's own rules for spaces.
  void set_llama(const base::Node& config, const SentencePieceModel& model, std::string_view file,
                 SentencePieceOptions& options) const {
    const std::string name = text(config, "tokenizer_class");
    base::require(name == "LlamaTokenizer" || name == "LlamaTokenizerFast",
                  "{}: tokenizer_class: unsupported beside {}: expected \"LlamaTokenizer\", found {}; add its "
                  "tokenizer.json and leave out {}, or leave out tokenizer_class for the model's own rules",
                  path(kConfig), file, base::in_quotes(name), file);
    base::require(model.kind == SentencePieceModel::Kind::bpe,
                  "{}: tokenizer_class {}: unsupported for a unigram model; leave it out for the model's own rules",
                  path(kConfig), base::in_quotes(name));
    options.llama = options.space_where_missing = true;
    options.no_first_space = !flag(config, "add_prefix_space").value_or(true);
  }

  std::shared_ptr<const Tokenizer> sentencepiece(std::string_view name) {
    const std::string& file = use(name);
    const SentencePieceModel model = read_sentencepiece_model(file, path(name));
    const WordIndex index(model.pieces);
    const auto find = [&](std::string_view token) { return index.find(token); };
    TokenizerSettings all = settings();
    const base::Node& config = all.plain;
    if (is_generic(config) && has("tokenizer.json")) return tokenizer_json();
    // ALBERT's files have <pad>, those of DeBERTa [PAD], Llama's neither.
    const bool bert = find("[CLS]") >= 0 && find("[SEP]") >= 0, albert = bert && find("<pad>") >= 0,
               llama = !bert && find("<s>") >= 0 && find("<pad>") < 0,
               t5 = !bert && find("<pad>") == 0 && find("</s>") == 1 && find("<s>") < 0;
    const bool own_rules = !llama || text(config, "tokenizer_class").empty();
    if ((t5 || bert || !own_rules) && all.is_extra_of_map) all.extra.clear();  // as transformers reads these classes
    if (bert || t5) require_family(config, t5 ? "T5" : albert ? "Albert" : "DebertaV2", name);
    if (bert) require_flag(config, "add_prefix_space", true);
    for (const char* key : {"add_bos_token", "add_eos_token"})
      base::require(!albert || !flag(config, key), "{}: {}: unsupported for ALBERT's tokens; leave it out",
                    path(kConfig), key);
    AddedTokens behind = tokens_behind(model, index, config, t5);
    if (bert && !albert && find("[PAD]") >= 0 && find("[MASK]") < 0 && behind.size() == 0 &&
        all.token("mask_token") == nullptr)
      all.named.emplace_back("mask_token", NamedToken{"[MASK]"});
    const TokenDefaults &of_bert = albert ? kAlbertTokens : kDebertaTokens,
                        &of_others = llama ? kLlamaTokens : kT5Tokens;
    const ResolvedTokens tokens = resolve(all, bert ? of_bert : of_others, index, model.pieces.size(),
                                          std::move(behind));
    SentencePieceOptions options{.digit_commas = options_.digit_commas};
    PretrainedParts parts = give_files(tokens.special);
    if (bert) {
      if (tokens.cls() >= 0 && tokens.sep() >= 0) parts.sequences = bert_sequences(tokens);
      options.straight_quotes = albert;
      options.lowercase = flag(config, "do_lower_case").value_or(albert);
      require_flag(config, "split_by_punct", false);
      options.strip_accents = albert && !flag(config, "keep_accents").value_or(false);
    } else if (llama) {
      if (own_rules)
        require_flag(config, "add_prefix_space", true);
      else
        set_llama(config, model, name, options);
      options.first_space_once = !flag(config, "legacy").value_or(false);
      parts.sequences = bounded_sequences(config, tokens, own_rules || has("tokenizer.json"));
    } else if (tokens.eos() >= 0) {
      parts.sequences = SequenceTemplate::ending(static_cast<int32_t>(tokens.eos()));
    }
    base::require(!options.digit_commas || options.straight_quotes, "{}: the rule for digits and commas is ALBERT's",
                  path(name));
    return make_sentencepiece(file, std::move(options), std::move(parts), path(name), tokens.added);
  }

  std::shared_ptr<const Tokenizer> marian() {
    TokenizerSettings all = settings();
    require_family(all.plain, "Marian", "source.spm");
    require_flag(all.plain, "separate_vocabs", false);
    if (all.is_extra_of_map) all.extra.clear();  // as transformers reads this class
    const TokenizerJson json = parse_vocab_json(use("vocab.json"), path("vocab.json"));
    SentencePieceOptions options{.pieces_by_id = tokens_by_id(json.tokens, json.ids, path("vocab.json"))};
    if (has("target.spm")) options.target = use("target.spm");
    const std::string& file = use("source.spm");
    const WordIndex index(*options.pieces_by_id);
    ResolvedTokens tokens = resolve(all, kT5Tokens, index, options.pieces_by_id->size());
    for (size_t i = 0; i < tokens.added.size(); ++i) {
      base::require(!tokens.added.rules[i].single_word, "{}: added token {}: single_word: unsupported for Marian",
                    where_, base::in_quotes(tokens.added.text(i)));
      tokens.added.rules[i].normalised = false;  // transformers looks for them in the text as it is
    }
    PretrainedParts parts = give_files(tokens.special);
    if (tokens.eos() >= 0) parts.sequences = SequenceTemplate::ending(static_cast<int32_t>(tokens.eos()));
    return make_sentencepiece(file, std::move(options), std::move(parts), path("source.spm"), tokens.added);
  }

  std::shared_ptr<const Tokenizer> tokenizer_json() {
    const std::string& text = use("tokenizer.json");
    const TokenizerSettings all = settings();
    return tokenizer_from_json(text, all, give_files({}), path("tokenizer.json"), where_);
  }

  std::set<std::string> names_;
  Read read_;
  const std::string& where_;
  OpenOptions options_;
  Files used_;  // moved to the tokenizer: the text of a file stays where it is
};

}  // namespace

bool has_tokenizer(const std::string& folder) {
  for (const std::string& name : base::list_folder(folder)) {
    if (is_known_file(name) && !is_beside(name) && name != "dict.txt") return true;
  }
  return false;
}

std::shared_ptr<const Tokenizer> open_tokenizer_files(const Files& files, const std::string& where,
                                                      const OpenOptions& options) {
  std::set<std::string> names;
  for (const auto& [name, content] : files) names.insert(name);
  return Folder(
             std::move(names), [&](const std::string& name) { return files.at(name); }, where, options)
      .open();
}

namespace {

/// A tokenizer that is one file, such as a SentencePiece model of any name. Others need the files beside them.
std::shared_ptr<const Tokenizer> open_file(const std::string& path, const OpenOptions& options) {
  const std::string name = path.substr(path.rfind('/') + 1), folder = base::parent_folder(path);
  if (name.ends_with(".model") || name.ends_with(".spm"))
    return open_tokenizer_files({{kTrainedModelFile, base::read_file(path, kMaxBytes)}}, path, options);
  base::require(is_known_file(name) && !is_beside(name),
                "{}: expected a file of a tokenizer (tokenizer.json, NAME.model, vocab.txt, vocab.json) or its folder",
                path);
  return open_tokenizer(folder.empty() ? "." : folder, options);
}

/// Units that a newcomer takes for tokenizers.
constexpr std::string_view kUnits[] = {"bytes", "characters", "words", "unigram", "bpe"};

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& folder, const OpenOptions& options) {
  const std::string name = std::filesystem::path(folder).filename();
  base::require(base::path_exists(folder), "{}: no such file or folder; expected one with the files of a tokenizer{}",
                folder,
                std::ranges::find(kUnits, name) != std::end(kUnits)
                    ? fmt::format("; units of the text itself are data.unit = \"{}\"", name)
                    : "");
  if (!base::is_folder(folder)) return open_file(folder, options);
  std::set<std::string> names;
  for (const std::string& name : base::list_folder(folder)) {
    if (is_known_file(name)) names.insert(name);
  }
  const auto read = [&](const std::string& name) { return base::read_file(base::join_path(folder, name), kMaxBytes); };
  return Folder(std::move(names), read, folder, options).open();
}

}  // namespace mnemo::text
