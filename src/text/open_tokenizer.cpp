#include "text/open_tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/node.h"
#include "base/printable.h"
#include "text/bpe_tokenizer.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/text_splitter.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"
#include "text/word_piece.h"

namespace mnemo::text {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
constexpr const char* kConfig = "tokenizer_config.json";
/// Files of other libraries, kept as they are: an exported model has them again.
constexpr std::string_view kBeside[] = {kConfig, "special_tokens_map.json"};
constexpr std::string_view kSentencePieceFiles[] = {"spiece.model", "spm.model", kTrainedModelFile};
constexpr std::array<std::string_view, 2> kBpeFiles[] = {
    {"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}, {"gpt2-vocab.json", "gpt2-merges.txt"}};
constexpr int64_t kExtraIds = 100, kMaxExtraIds = 10'000;  // of T5
const std::vector<std::string> kMaskAlone = {"[MASK]"};
constexpr size_t kNamedFiles = 8;  // of a folder without a tokenizer

bool is_beside(std::string_view name) { return std::ranges::find(kBeside, name) != std::end(kBeside); }

bool is_known_file(const std::string& name) {
  static const std::vector<std::string_view> known = {
      Tokenizer::kFile, "source.spm",      "target.spm",      "vocab.json",      "spiece.model",
      "spm.model",      kTrainedModelFile, "tokenizer.json",  "vocab.txt",       "merges.txt",
      "encoder.json",   "vocab.bpe",       "gpt2-vocab.json", "gpt2-merges.txt", "dict.txt"};
  return std::find(known.begin(), known.end(), name) != known.end() || is_beside(name) || name.ends_with("-vocab.txt");
}

/// The id of a token; for a few look-ups.
auto finder(const EntryList& tokens) {
  return [&tokens](std::string_view token) -> int64_t {
    for (int64_t id = 0; id < tokens.size(); ++id) {
      if (tokens[id] == token) return id;
    }
    return -1;
  };
}

/// The tokens of a vocab.txt, a line each.
EntryList tokens_by_line(std::string_view rest, const std::string& where) {
  EntryList tokens;
  bool empty = false;  // seen: a file of line ends would cost many times its size before its tokens are compared
  for (int64_t line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view token = rest.substr(0, end);
    if (token.ends_with('\r')) token.remove_suffix(1);
    base::require(!token.empty() || !std::exchange(empty, true), "{}:{}: expected a token, found a second empty line",
                  where, line);
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

  /// Gives a tokenizer the files that it is made of, and files in the same folder that other libraries read.
  void give_files(PretrainedParts& parts) {
    for (const std::string_view name : kBeside) {
      const std::string file(name);
      if (has(name) && !used_.contains(file)) parts.beside.emplace(file, read_(file));
    }
    parts.files = std::move(used_);
  }

  /// tokenizer_config.json, or an empty table.
  base::Node config() {
    if (!has(kConfig)) return base::Node::table();
    return parse_tokenizer_config(use(kConfig), path(kConfig));
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
    const base::Node settings = config();
    require_flag(settings, "do_basic_tokenize", true);
    for (const auto& [key, known] :
         {std::pair("word_tokenizer_type", "basic"), {"subword_tokenizer_type", "wordpiece"}})
      base::require(text(settings, key).empty() || text(settings, key) == known,
                    "{}: {}: unsupported: expected \"{}\", found {}", path(kConfig), key, known,
                    base::in_quotes(text(settings, key)));
    WordPieceOptions options{
        .lowercase = flag(settings, "do_lower_case").value_or(name.find("-cased") == std::string::npos)};
    options.strip_accents = flag(settings, "strip_accents").value_or(options.lowercase);
    options.split_cjk = flag(settings, "tokenize_chinese_chars").value_or(true);
    EntryList tokens = tokens_by_line(use(name), path(name));
    const auto find = finder(tokens);
    PretrainedParts parts{.special = find_special_tokens(find)};
    give_files(parts);
    if (parts.special.begin >= 0 && parts.special.end >= 0)
      parts.sequences = SequenceTemplate::bert(static_cast<int32_t>(parts.special.begin),
                                               static_cast<int32_t>(parts.special.end));
    return make_word_piece(std::move(tokens), std::move(options), std::move(parts), path(name));
  }

  std::shared_ptr<const Tokenizer> byte_bpe(std::string_view vocabulary_name, std::string_view merges_name) {
    const base::Node settings = config();
    if (const base::Node* kind = settings.find("tokenizer_class"); kind != nullptr && kind->is_string()) {
      const std::string& name = kind->as_string();
      base::require(name.starts_with("GPT2") || name.starts_with("Roberta"),
                    "{}: tokenizer_class: with only the files {} and {}, expected GPT-2 or RoBERTa, found {}; add its "
                    "tokenizer.json, which says how it splits texts",
                    path(kConfig), vocabulary_name, merges_name, base::in_quotes(name));
    }
    BpeVocabulary vocabulary;
    const TokenizerJson json = parse_vocab_json(use(vocabulary_name), path(vocabulary_name));
    vocabulary.tokens = tokens_by_id(json.tokens, json.ids, path(vocabulary_name));
    read_merges(use(merges_name), path(merges_name), vocabulary.tokens, vocabulary.left, vocabulary.right);
    const auto find = finder(vocabulary.tokens);
    BpeOptions options{.patterns = {TextSplitter::gpt2_pattern()}};
    if (flag(settings, "add_prefix_space").value_or(false)) options.first_space = BpeOptions::FirstSpace::where_missing;
    std::optional<ModelIds> model_ids;
    PretrainedParts parts;
    AddedTokens added;
    if (options_.fairseq_ids && has("dict.txt")) {
      model_ids = fairseq_ids(vocabulary.tokens.size());
      parts.special = {.begin = 0, .end = 2, .padding = 1, .mask = -1};
      parts.sequences = SequenceTemplate::roberta(0, 2);
    } else {
      parts.special = find_special_tokens(find);
      if (const int64_t begin = find("<s>"), end = find("</s>"); begin >= 0 && end >= 0)
        parts.sequences = SequenceTemplate::roberta(static_cast<int32_t>(begin), static_cast<int32_t>(end));
      for (const char* name : {"<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>"}) {
        if (const int64_t id = find(name); id >= 0) added.add(id, name, true);
      }
      if (find("<s>") >= 0 && find("<unk>") >= 0) options.unknown = "<unk>";
    }
    give_files(parts);
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

  /// Tokens after the pieces of a model: T5's for spans, the last of them <extra_id_0>, and DeBERTa's [MASK].
  std::vector<std::string> added_tokens(const std::function<int64_t(std::string_view)>& find,
                                        const base::Node& config) const {
    std::vector<std::string> added;
    const bool t5 = find("<pad>") == 0 && find("</s>") == 1 && find("<s>") < 0;
    if (t5 && find("<extra_id_0>") < 0 && find("\u2581<extra_id_0>") < 0) {
      const base::Node* count = config.find("extra_ids");
      const base::Node found = count == nullptr || count->is_null() ? base::Node(kExtraIds) : *count;
      base::require(found.is_int() && found.as_int() >= 0 && found.as_int() <= kMaxExtraIds,
                    "{}: extra_ids: expected an integer from 0 to {}, found {}", path(kConfig), kMaxExtraIds,
                    found.found());
      for (int64_t id = found.as_int() - 1; id >= 0; --id) added.push_back(fmt::format("<extra_id_{}>", id));
    }
    if (find("[CLS]") >= 0 && find("[SEP]") >= 0 && find("[PAD]") >= 0 && find("[MASK]") < 0) return kMaskAlone;
    return added;
  }

  /// Tokens that a tokenizer.json adds to a SentencePiece model after its `known` ones, by id without a gap.
  std::vector<std::string> more_tokens(int64_t known) {
    constexpr const char* kJson = "tokenizer.json";
    if (!has(kJson)) return {};
    TokenizerJson json;
    try {
      json = parse_tokenizer_json(read_(kJson), path(kJson));
    } catch (const base::InputError&) {
      return {};  // only the model counts
    }
    std::map<int64_t, size_t> places;
    for (size_t i = 0; i < json.added.size(); ++i) places.emplace(json.added.ids[i], i);
    std::vector<std::string> more;
    std::string in_texts;
    for (auto place = places.find(known); place != places.end();
         place = places.find(known + static_cast<int64_t>(more.size()))) {
      more.emplace_back(json.added.text(place->second));
      if (!json.added.special[place->second]) in_texts += (in_texts.empty() ? "" : ", ") + base::in_quotes(more.back());
    }
    if (!more.empty()) use(kJson);  // a model that is saved has them too
    if (!in_texts.empty())
      base::log_warning(
          "{}: added_tokens: other libraries recognise these tokens in texts; here they are split into pieces: {}",
          path(kJson), base::printable(in_texts, 400));
    return more;
  }

  std::shared_ptr<const Tokenizer> sentencepiece(std::string_view name) {
    const std::string& file = use(name);
    const SentencePieceModel model = read_sentencepiece_model(file, path(name));
    const auto find = finder(model.pieces);
    const base::Node settings = config();
    SentencePieceOptions options{.digit_commas = options_.digit_commas, .added = added_tokens(find, settings)};
    PretrainedParts parts{.special = find_special_tokens(find)};
    if (options.added == kMaskAlone) parts.special.mask = model.pieces.size();
    for (std::string& token : more_tokens(model.pieces.size() + static_cast<int64_t>(options.added.size())))
      options.added.push_back(std::move(token));
    give_files(parts);
    const int64_t cls = find("[CLS]"), sep = find("[SEP]"), begin = find("<s>"), end = find("</s>"),
                  pad = find("<pad>");
    if (cls >= 0 && sep >= 0) {
      parts.sequences = SequenceTemplate::bert(static_cast<int32_t>(cls), static_cast<int32_t>(sep));
      // ALBERT's files have <pad>, those of DeBERTa [PAD].
      const bool albert = pad >= 0;
      options.straight_quotes = albert;
      options.lowercase = flag(settings, "do_lower_case").value_or(albert);
      require_flag(settings, "split_by_punct", false);
      options.strip_accents = albert && !flag(settings, "keep_accents").value_or(false);
    } else if (begin >= 0 && pad < 0) {
      // Llama's; without its first token it has none.
      require_flag(settings, "add_eos_token", false);
      if (flag(settings, "add_bos_token").value_or(true))
        parts.sequences = SequenceTemplate::beginning(static_cast<int32_t>(begin));
    } else if (end >= 0) {
      parts.sequences = SequenceTemplate::ending(static_cast<int32_t>(end));
    }
    base::require(!options.digit_commas || options.straight_quotes, "{}: the rule for digits and commas is ALBERT's",
                  path(name));
    return make_sentencepiece(file, std::move(options), std::move(parts), path(name));
  }

  std::shared_ptr<const Tokenizer> marian() {
    const TokenizerJson json = parse_vocab_json(use("vocab.json"), path("vocab.json"));
    SentencePieceOptions options{.pieces_by_id = tokens_by_id(json.tokens, json.ids, path("vocab.json"))};
    if (has("target.spm")) options.target = use("target.spm");
    const std::string& file = use("source.spm");
    const EntryList& pieces = *options.pieces_by_id;
    const auto find = finder(pieces);
    PretrainedParts parts{.special = find_special_tokens(find)};
    give_files(parts);
    if (parts.special.end >= 0) parts.sequences = SequenceTemplate::ending(static_cast<int32_t>(parts.special.end));
    return make_sentencepiece(file, std::move(options), std::move(parts), path("source.spm"));
  }

  std::shared_ptr<const Tokenizer> tokenizer_json() {
    const std::string& text = use("tokenizer.json");
    PretrainedParts parts;
    give_files(parts);
    return tokenizer_from_json(text, std::move(parts), path("tokenizer.json"));
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

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& folder, const OpenOptions& options) {
  base::require(base::path_exists(folder), "{}: no such file or folder; expected one with the files of a tokenizer",
                folder);
  if (!base::is_folder(folder)) return open_file(folder, options);
  std::set<std::string> names;
  for (const std::string& name : base::list_folder(folder)) {
    if (is_known_file(name)) names.insert(name);
  }
  const auto read = [&](const std::string& name) { return base::read_file(base::join_path(folder, name), kMaxBytes); };
  return Folder(std::move(names), read, folder, options).open();
}

}  // namespace mnemo::text
