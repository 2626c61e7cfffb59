#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/piece_trie.h"
#include "text/pretrained.h"
#include "text/vocabulary_file.h"

namespace mnemo::text {

/// How a token that stands beside a vocabulary is found in a text, as the package tokenizers has it.
struct AddedTokenRule {
  bool special = false;      ///< not found: a text that looks like the token is text
  bool normalised = true;    ///< found in the normalised text between tokens that are not
  bool lstrip = false;       ///< takes the white space in front of it
  bool rstrip = false;       ///< takes the white space behind it
  bool single_word = false;  ///< not found inside a word

  /// The setting by its name in the files of other libraries, or null.
  bool* find(std::string_view name);
};

/// Tokens that no piece of a vocabulary makes.
struct AddedTokens {
  EntryList texts = {};
  std::vector<int64_t> ids = {};
  std::vector<AddedTokenRule> rules = {};

  void add(int64_t id, std::string_view text, AddedTokenRule rule) {
    texts.push_back(text);
    ids.push_back(id);
    rules.push_back(rule);
  }
  size_t size() const { return ids.size(); }
  std::string_view text(size_t i) const { return texts[static_cast<int64_t>(i)]; }
};

/// Finds added tokens in a text: from left to right, at every position the longest. A special token is passed over
/// together with what it covers.
class AddedFinder {
 public:
  /// `normalised`: which of the tokens; `normalise` is applied to their texts. Throws InputError that names `where` for
  /// a token of more than 4,096 bytes, which would make long texts slow.
  AddedFinder(const AddedTokens& added, bool normalised, const std::function<std::string(std::string_view)>& normalise,
              const std::string& where);

  /// Whether no token is to be found: all are special.
  bool empty() const { return !finds_; }

  /// Calls between(text) and found(id) in the order of the text.
  void split(std::string_view text, const std::function<void(std::string_view)>& between,
             const std::function<void(int32_t)>& found) const;

 private:
  std::vector<std::string> texts_;
  std::vector<int32_t> ids_;
  std::vector<AddedTokenRule> rules_;
  PieceTrie trie_;
  bool finds_ = false;
};

/// The tokenizer with tokens beside its vocabulary: those of ids from its size on, and those that are found in texts
/// before it reads what stands between them. Returns the tokenizer itself where there are none of either.
std::shared_ptr<const Tokenizer> with_added_tokens(std::shared_ptr<const PretrainedTokenizer> tokenizer,
                                                   const AddedTokens& added, const std::string& where);

}  // namespace mnemo::text
