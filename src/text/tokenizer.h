#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/special_tokens.h"
#include "text/text_source.h"

namespace mnemo::text {

/// Converts a text read in chunks into tokens; chunks may end inside a character or a word.
class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual void put(std::string_view chunk, std::vector<int32_t>& out) = 0;
  /// Encodes the pending text; the encoder must not be used again. Throws InputError if the text ends inside a
  /// character.
  virtual void finish(std::vector<int32_t>& out) = 0;
  /// Units so far that have no entry in the vocabulary. An "<unk>" that a text of words itself holds has one.
  int64_t num_unknown() const { return num_unknown_; }

 protected:
  int64_t num_unknown_ = 0;
};

/// Files of a tokenizer by name, as stored in a model folder.
using Files = std::map<std::string, std::string>;

class StreamDecoder;
class Tokenizer;

/// Whether to warn about or refuse a text with units outside the vocabulary.
enum class Unknown { warn, refuse };

/// Name of a tokenizer's units in messages: "bytes", "characters", "words", or "pieces" of words.
std::string unit_of(const Tokenizer& tokenizer);

/// "WHERE: 6 of 12 characters are not in the model's vocabulary": a warning, or an InputError. Nothing for none.
void report_unknown(const Tokenizer& tokenizer, const std::string& where, int64_t count, int64_t total,
                    Unknown unknown);

/// Converts between text and token ids. Immutable and safe to share between threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "bytes", "characters", "words", "wordpiece", "bpe" or "sentencepiece".
  virtual std::string type() const = 0;
  /// Number of tokens; ids are 0 to size() - 1.
  virtual int64_t size() const = 0;
  /// The id for unknown units, or -1 if there are none.
  virtual int64_t unknown_id() const = 0;
  /// An encoder whose errors name `where`, with byte offsets starting at `offset`.
  virtual std::unique_ptr<Encoder> encoder(std::string where, int64_t offset = 0) const = 0;
  /// Appends the bytes of a token. `out` is the text so far, which decides whether a word needs a space before it.
  virtual void append(std::string& out, int64_t id) const = 0;
  /// The files for load().
  virtual Files save() const = 0;
  /// The files of save() that decide how a text becomes tokens.
  virtual Files defining_files() const { return save(); }

  /// The special tokens of a pretrained model; none for a vocabulary made from a text.
  virtual SpecialTokens special_tokens() const { return {}; }
  /// The id of a token by its text, special ones ("[MASK]") included, or -1. Vocabularies made from a text find none.
  virtual int64_t find(std::string_view) const { return -1; }
  /// The ids of a text, or of a pair of texts, with the special tokens around them that its model expects.
  virtual ModelInput with_special_tokens(std::span<const int32_t> first,
                                         std::optional<std::span<const int32_t>> second = {}) const;
  /// The special tokens that its model expects in front of a text (Llama's <s>); none for a vocabulary made from a
  /// text.
  virtual std::vector<int32_t> leading_tokens() const { return {}; }

  /// Encodes a text. Text that looks like a special token is text. Throws InputError that names `where` and the offset
  /// for invalid UTF-8 (except for bytes).
  std::vector<int32_t> encode(std::string_view text, std::string where = "text") const;
  /// encode() that reports or refuses units outside the vocabulary.
  std::vector<int32_t> encode(std::string_view text, std::string where, Unknown unknown) const;
  /// Decodes tokens exactly; with bytes the result may be any bytes. Throws InputError if an id is out of range.
  virtual std::string decode(std::span<const int64_t> ids) const;
  /// Same for a tensor of any integer type.
  std::string decode(const at::Tensor& ids) const;

  /// Name of the file that tokenizers made from a text write.
  static constexpr std::string_view kFile = "vocabulary.json";
  /// Reads the files of save(). Throws InputError that names `where` (the model folder), file and violated rule.
  static std::shared_ptr<const Tokenizer> load(const Files& files, const std::string& where);

 protected:
  /// Throws InputError unless 0 <= id < size().
  void require_id(int64_t id) const;
};

/// Decodes tokens as they are generated. The output always consists of complete, valid UTF-8 characters, so it can be
/// written to a terminal or a JSON stream immediately. Invalid bytes become U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  /// The text completed by the token; empty while a character is incomplete.
  std::string put(int64_t id);
  /// The remaining text at the end: U+FFFD for an incomplete character.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string pending_;
  std::string last_;  // the last decoded byte, for tokens that depend on the preceding text
};

/// Limits on a vocabulary built from a text; useful for words, and for characters of large alphabets.
struct VocabularyLimits {
  int64_t min_count = 1;  ///< units seen less often become <unk>
  int64_t max_size = 0;   ///< maximum number of entries, including special ones; 0: no limit
};

/// 256 symbols; any file can be encoded and decoded exactly. Limits do not apply.
std::shared_ptr<const Tokenizer> make_byte_tokenizer();

/// Unicode code points of valid UTF-8, sorted by decreasing frequency, then by code point; <unk> for all others comes
/// last and decodes to U+FFFD. Texts of known characters are decoded exactly.
/// Throws InputError with file and byte offset for invalid UTF-8, and for a text without characters.
std::shared_ptr<const Tokenizer> make_character_tokenizer(const TextSource& training_text,
                                                          VocabularyLimits limits = {});

/// WikiText's rule: a line is split at blanks (space, tab, CR, VT, FF) and its end is the token <eos>; <unk> in the
/// file is the unknown word. Sorted by decreasing frequency, then by bytes; <unk> and <eos> are always included.
/// Decoding joins words with one space and puts none at the start or end of a line, so encode(decode(ids)) gives the
/// same ids.
/// Throws InputError with file and byte offset for invalid UTF-8 and for a word of more than 65,536 bytes.
std::shared_ptr<const Tokenizer> make_word_tokenizer(const TextSource& training_text, VocabularyLimits limits = {});

/// Throws InputError that names `where` for a line that the word tokenizer refuses.
void check_words(std::string_view line, const std::string& where);

/// One of the three, by type name. Throws InputError for an unknown name.
std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view type, const TextSource& training_text,
                                                VocabularyLimits limits = {});

}  // namespace mnemo::text
