#include "data/text/corpus.h"

#include <algorithm>
#include <cmath>

#include "base/choice_name.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/utf8.h"
#include "data/text/text_files.h"
#include "text/open_tokenizer.h"
#include "text/vocabulary_file.h"

namespace mnemo::data {
namespace {

constexpr int64_t kReadAhead = int64_t{1} << 20;

/// Start of the character that the byte at `at` belongs to.
int64_t character_start(const text::TextSource& text, int64_t at) {
  constexpr int64_t kLongest = 4;
  const int64_t begin = std::max(text.begin(), at + 1 - kLongest), end = std::min(text.end(), at + 1);
  int64_t found = at;
  text.range(begin, end).for_each_chunk([&](std::string_view chunk) {
    size_t i = chunk.size();
    while (i > 1 && (static_cast<unsigned char>(chunk[i - 1]) & 0xC0) == 0x80) --i;
    found = begin + static_cast<int64_t>(i) - 1;
    return false;
  });
  return found;
}

/// Start of the first line at or after `at`. If there is no line end in the next megabyte, cuts between characters.
int64_t next_line(const text::TextSource& text, int64_t at) {
  if (at <= text.begin()) return text.begin();
  int64_t position = at - 1;
  int64_t found = -1;
  const int64_t end = std::min(text.end(), at + kReadAhead);
  text.range(position, end).for_each_chunk([&](std::string_view chunk) {
    const size_t newline = chunk.find('\n');
    if (newline != std::string_view::npos) found = position + static_cast<int64_t>(newline) + 1;
    position += static_cast<int64_t>(chunk.size());
    return found < 0;
  });
  if (found >= 0) return found;
  text.range(at, end).for_each_chunk([&](std::string_view chunk) {
    size_t continuing = 0;
    while (continuing < chunk.size() && continuing < 3 &&
           (static_cast<unsigned char>(chunk[continuing]) & 0xC0) == 0x80) {
      ++continuing;
    }
    found = at + static_cast<int64_t>(continuing);
    return false;
  });
  return found < 0 ? at : found;
}

/// Start of the first document at or after `at`, or the end of the text. Whether one starts at `at` is decided by the
/// lines before it, so that the text is split from its beginning.
int64_t next_document(const text::TextSource& text, int64_t at, const DocumentRule& rule) {
  if (rule.kind == DocumentRule::Kind::none || at <= text.begin()) return next_line(text, at);
  int64_t position = text.begin();
  int64_t found = text.end();
  bool done = false;
  DocumentSplitter splitter(rule, [&](std::string_view part, bool starts) {
    if (starts && !done && position >= at) {
      found = position;
      done = true;
    }
    position += static_cast<int64_t>(part.size());
  });
  text.for_each_chunk([&](std::string_view chunk) {
    splitter.put(chunk);
    return !done;
  });
  if (!done) splitter.finish();
  return found;
}

}  // namespace

void TextOptions::validate(const base::Where& where) const {
  const double held_out = (valid.empty() ? valid_fraction : 0) + (test.empty() ? test_fraction : 0);
  where.require(held_out < 1, "valid_fraction", "expected fractions with a sum below 1, found {} and {}",
                valid_fraction, test_fraction);
  const bool needs_line = document_separator == DocumentRule::Kind::line;
  where.require(needs_line == !separator_line.empty(), "separator_line",
                "expected a line exactly when document_separator = \"line\"");
  where.require(tokenizer.empty() || (unit == TextOptions().unit && min_count == 1 && max_vocabulary == 0), "tokenizer",
                "'{}' has a vocabulary of its own; remove unit, min_count and max_vocabulary (--set data.unit=unset)",
                tokenizer);
  where.require(!pack || (!tokenizer.empty() && document_separator != DocumentRule::Kind::none), "pack",
                "expected document_separator, and a tokenizer whose end token separates documents");
  where.require(unit != Unit::bytes || (min_count == 1 && max_vocabulary == 0), "unit",
                "unit = \"bytes\" has no vocabulary to limit; remove min_count and max_vocabulary");
}

std::string TextOptions::unit_name() const { return base::choice_name(*this, &TextOptions::unit); }

std::shared_ptr<const text::Tokenizer> TextOptions::pretrained() const {
  return tokenizer.empty() ? nullptr : text::open_tokenizer(tokenizer);
}

std::string TextOptions::token_type() const {
  if (tokenizer.empty()) return unit_name();
  // As open_tokenizer() has it, a file stands for its folder, and a SentencePiece model for itself.
  const bool is_model = tokenizer.ends_with(".model") || tokenizer.ends_with(".spm");
  const std::string folder = base::is_folder(tokenizer) ? tokenizer : base::parent_folder(tokenizer);
  const std::string own = base::join_path(folder.empty() ? "." : folder, std::string(text::Tokenizer::kFile));
  return base::path_exists(own) && !is_model ? text::read_vocabulary(base::read_file(own), own).type : "pieces";
}

int32_t TextOptions::token_between(const text::Tokenizer& of) const {
  if (!pack) return -1;
  const int64_t end = of.special_tokens().end;
  base::require(end >= 0, "data.pack: expected a tokenizer with an end token ({}), found none in {}",
                "</s>, [SEP] or <|endoftext|>", tokenizer);
  return static_cast<int32_t>(end);
}

int64_t TextOptions::usual_vocabulary() const {
  if (const auto own = pretrained()) return own->size();
  const int64_t usual = unit == Unit::bytes ? 256 : unit == Unit::characters ? 128 : 32'768;
  return max_vocabulary > 0 ? std::min(max_vocabulary, usual) : usual;
}

TextSplit split_text(const TextOptions& options) {
  base::require(!options.train.empty(),
                "data.train: expected a training text, found none; use --set data.train=FILE, or train's --data FILE");
  std::vector<std::string> notes;
  const auto open = [&](const std::string& path) {
    const bool lines = options.document_separator == DocumentRule::Kind::line;
    const TextFileOptions files{.json_key = options.json_key,
                                .between = lines ? options.separator_line + "\n"
                                           : options.document_separator == DocumentRule::Kind::blank_line ? "\n"
                                                                                                          : "",
                                .any_bytes = options.any_bytes()};
    const text::TextSource file = open_text(path, files);
    if (const size_t count = text_files(path, files).size(); count > 1)
      notes.push_back(fmt::format("{}: {} files are one text", path, count));
    if (options.any_bytes()) return file;
    text::TextSource text = file.without_byte_order_mark();
    if (text.begin() != file.begin()) notes.push_back(path + ": the byte order mark at its start is left out");
    return text;
  };
  const text::TextSource whole = open(options.train);
  base::require(whole.size() > 0, "{}: expected a text, found an empty file", whole.path());
  const DocumentRule rule = options.document_rule();
  TextSplit split{whole, std::nullopt, std::nullopt, {}};
  if (!options.valid.empty()) split.valid = open(options.valid);
  if (!options.test.empty()) split.test = open(options.test);
  split.notes = std::move(notes);

  const bool documents = rule.kind != DocumentRule::Kind::none;
  int64_t end = whole.end();
  int64_t wanted = whole.end();
  const auto cut = [&](double fraction, std::string_view name) {
    wanted -= static_cast<int64_t>(std::llround(fraction * static_cast<double>(whole.size())));
    int64_t begin = next_document(whole, wanted, rule);
    if (begin >= end && !documents) {
      // A short text, or one of few lines: the part begins inside a line, and has at least one character.
      begin = wanted = character_start(whole, std::max(std::min(wanted, end - 1), whole.begin()));
      if (begin > whole.begin())
        split.notes.push_back(
            fmt::format("{}: no line starts where the {} part should begin; it begins inside a line, "
                        "at byte {}",
                        whole.path(), name, begin));
    }
    base::require(begin > whole.begin() && begin < end,
                  "{}: {}_fraction = {}: no {} starts in bytes [{}, {}) where the {} part would begin; "
                  "use a larger fraction or a separate file",
                  whole.path(), name, fraction, documents ? "document" : "character", wanted, end, name);
    const text::TextSource part = whole.range(begin, end);
    end = begin;
    return part;
  };
  if (options.test.empty() && options.test_fraction > 0) split.test = cut(options.test_fraction, "test");
  if (options.valid.empty() && options.valid_fraction > 0) split.valid = cut(options.valid_fraction, "valid");
  split.train = whole.range(whole.begin(), end);
  return split;
}

std::shared_ptr<const TokenStore> encode_text(const text::Tokenizer& tokenizer, const text::TextSource& text,
                                              const DocumentRule& rule, int32_t between) {
  const bool apart = rule.kind != DocumentRule::Kind::none && between < 0;
  auto store = std::make_shared<TokenStore>(tokenizer.size(), apart);
  auto encoder = tokenizer.encoder(text.path(), text.begin());
  int64_t position = text.begin(), unknown = 0;
  std::vector<int32_t> ids;
  const auto flush = [&] {
    store->append(ids);
    ids.clear();
  };
  DocumentSplitter splitter(rule, [&](std::string_view part, bool starts) {
    if (starts) {
      // A document is a text of its own: what a tokenizer still holds belongs to the one before.
      encoder->finish(ids);
      if (between >= 0) ids.push_back(between);
      flush();
      unknown += encoder->num_unknown();
      encoder = tokenizer.encoder(text.path(), position);
      if (apart) store->start_document();
    }
    position += static_cast<int64_t>(part.size());
    store->count_text(static_cast<int64_t>(part.size()), base::count_characters(part));
    encoder->put(part, ids);
  });
  text.for_each_chunk([&](std::string_view chunk) {
    splitter.put(chunk);
    flush();
    return true;
  });
  splitter.finish();
  encoder->finish(ids);
  flush();
  store->set_num_unknown(unknown + encoder->num_unknown());
  return store;
}

int64_t Corpus::num_bytes() const {
  int64_t total = 0;
  for (const auto& part : {train, valid, test}) total += part ? part->num_bytes() : 0;
  return total;
}

Corpus load_corpus(const TextOptions& options, std::shared_ptr<const text::Tokenizer> tokenizer) {
  if (!tokenizer) tokenizer = options.pretrained();
  base::require(!tokenizer || !options.tokenizer.empty() || tokenizer->type() == options.unit_name(),
                "unit: expected \"{}\", the model's own, found \"{}\"", tokenizer ? tokenizer->type() : "",
                options.unit_name());
  const TextSplit split = split_text(options);
  for (const std::string& note : split.notes) base::log_info("note: {}", note);
  const DocumentRule rule = options.document_rule();
  Corpus corpus;
  const bool own = tokenizer == nullptr;
  corpus.tokenizer = tokenizer ? std::move(tokenizer)
                               : text::make_tokenizer(options.unit_name(), split.train,
                                                      {options.min_count, options.max_vocabulary});
  if (own && options.unit == TextOptions::Unit::characters &&
      corpus.tokenizer->encode("\r").front() != corpus.tokenizer->unknown_id())
    base::log_info("note: {}: lines end in CR LF, or there are single CR: \"\\r\" is a character of the vocabulary",
                   split.train.path());
  const int32_t between = options.token_between(*corpus.tokenizer);
  corpus.train = encode_text(*corpus.tokenizer, split.train, rule, between);
  if (split.valid) corpus.valid = encode_text(*corpus.tokenizer, *split.valid, rule, between);
  if (split.test) corpus.test = encode_text(*corpus.tokenizer, *split.test, rule, between);
  return corpus;
}

}  // namespace mnemo::data
