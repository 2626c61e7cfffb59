#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/text_source.h"

namespace mnemo::data {

/// Turns a text that comes in chunks into tokens; chunks may end inside a character or a word.
class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual void put(std::string_view chunk, std::vector<int32_t>& out) = 0;
  /// What is still pending; the encoder is not used again. Throws InputError if the text ends inside a character.
  virtual void finish(std::vector<int32_t>& out) = 0;
};

/// Files of a tokenizer by name, as they lie in a model folder.
using Files = std::map<std::string, std::string>;

class StreamDecoder;

/// The units of a text and their numbers. Immutable; shared between threads freely.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "bytes", "characters" or "words".
  virtual std::string type() const = 0;
  /// Number of tokens; ids are 0 to size() - 1.
  virtual int64_t size() const = 0;
  /// The id of what is not in the vocabulary, or -1 if everything is.
  virtual int64_t unknown_id() const = 0;
  /// An encoder whose errors name `where` and count bytes from `offset`.
  virtual std::unique_ptr<Encoder> encoder(std::string where, int64_t offset = 0) const = 0;
  /// Appends the bytes of a token. `out` is the text so far: it decides whether a blank goes before a word.
  virtual void append(std::string& out, int64_t id) const = 0;
  /// The files that load() reads back.
  virtual Files save() const = 0;

  /// All tokens of a text. Throws InputError for invalid UTF-8 (not in bytes), naming `where` and the offset.
  std::vector<int32_t> encode(std::string_view text, std::string where = "text") const;
  /// The same as a tensor [T] int64.
  at::Tensor encode_tensor(std::string_view text, std::string where = "text") const;
  /// The text of the tokens, exact: bytes may be any bytes. Throws InputError for an id out of range.
  std::string decode(std::span<const int64_t> ids) const;
  /// Of a tensor of any integer type, in its order.
  std::string decode(const at::Tensor& ids) const;

  /// Name of the one file all tokenizers of this folder save.
  static constexpr std::string_view kFile = "vocabulary.json";
  /// Reads what save() wrote. Throws InputError naming `where` (the model folder), the file and the rule it breaks.
  static std::shared_ptr<const Tokenizer> load(const Files& files, const std::string& where);

 protected:
  /// Throws InputError unless 0 <= id < size().
  void require_id(int64_t id) const;
};

/// Decodes tokens as they are made: what comes out is always whole characters of valid UTF-8, so it can go to a
/// terminal or a JSON stream at once. Bytes that can never become a character come out as U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  /// What the token completes; empty while a character is incomplete.
  std::string put(int64_t id);
  /// What is left at the end: U+FFFD for an incomplete character.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string pending_;
  std::string last_;  // the last byte decoded, for tokens that depend on what stands before them
};

/// What limits a vocabulary that is made from a text; meant for words, and for characters of large alphabets.
struct VocabularyLimits {
  int64_t min_count = 1;  ///< units seen less often become <unk>
  int64_t max_size = 0;   ///< most entries, the special ones included; 0: no limit
};

/// 256 symbols; any file, exact both ways. Limits do not apply.
std::shared_ptr<const Tokenizer> make_byte_tokenizer();

/// Unicode code points of valid UTF-8, most frequent first, then by code point; <unk> for all others comes last and
/// decodes to U+FFFD. Exact both ways for texts of known characters.
/// Throws InputError with file and byte offset for invalid UTF-8, and for a text without characters.
std::shared_ptr<const Tokenizer> make_character_tokenizer(const TextSource& training_text,
                                                          VocabularyLimits limits = {});

/// WikiText's rule: a line is split at blanks (space, tab, CR, VT, FF) and its end is the token <eos>; <unk> in the
/// file is the unknown word. Most frequent first, then by bytes; <unk> and <eos> are always there. Decoding joins words
/// by one space and puts none at the front or end of a line, so encode(decode(ids)) gives the same ids.
/// Throws InputError with file and byte offset for invalid UTF-8 and for a word of more than 65,536 bytes.
std::shared_ptr<const Tokenizer> make_word_tokenizer(const TextSource& training_text, VocabularyLimits limits = {});

/// One of the three by its type's name. Throws InputError for another name.
std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view type, const TextSource& training_text,
                                                VocabularyLimits limits = {});

}  // namespace mnemo::data
