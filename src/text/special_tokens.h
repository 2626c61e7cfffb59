#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace mnemo::text {

/// Ids of the special tokens that a model reads or writes in addition to its text; -1: there is none.
struct SpecialTokens {
  int64_t begin = -1;    ///< <s>, [CLS], <|endoftext|>
  int64_t end = -1;      ///< </s>, [SEP], <|endoftext|>
  int64_t padding = -1;  ///< <pad>, [PAD]
  int64_t mask = -1;     ///< <mask>, [MASK]
};

/// The special tokens by the names that published models give them: [CLS], <s> ... `find` gives the id of a token, or
/// -1.
SpecialTokens find_special_tokens(const std::function<int64_t(std::string_view)>& find);

/// A text, or a pair of texts, with its special tokens.
struct ModelInput {
  std::vector<int32_t> ids;
  std::vector<int32_t> types;  ///< token types: 0 and 1 for the two texts of BERT
};

/// Where special tokens stand around one text, and around a pair.
struct SequenceTemplate {
  struct Part {
    enum class Kind { token, first, second } kind = Kind::token;
    int32_t id = 0;  ///< of a token
    int32_t type = 0;
  };
  std::vector<Part> single = {{.kind = Part::Kind::first}};
  std::vector<Part> pair = {{.kind = Part::Kind::first}, {.kind = Part::Kind::second}};

  /// The texts with their special tokens.
  ModelInput apply(std::span<const int32_t> first, std::optional<std::span<const int32_t>> second) const;

  /// The tokens in front of one text.
  std::vector<int32_t> leading() const;

  /// [CLS] a [SEP] and [CLS] a [SEP] b [SEP], with type 1 from b on.
  static SequenceTemplate bert(int32_t cls, int32_t sep);
  /// <s> a </s> and <s> a </s></s> b </s>.
  static SequenceTemplate roberta(int32_t begin, int32_t end);
  /// a </s> and a </s> b </s>.
  static SequenceTemplate ending(int32_t end);
  /// A token in front of each text, and one behind it.
  static SequenceTemplate bounded(std::optional<int32_t> begin, std::optional<int32_t> end);
};

}  // namespace mnemo::text
