#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/node.h"
#include "text/added_tokens.h"
#include "text/special_tokens.h"

namespace mnemo::text {

/// A token that a setting names.
struct NamedToken {
  std::string text;
  AddedTokenRule rule = {.special = true, .normalised = false};
};

/// The special tokens that a class of tokenizers has by default; empty: none. In transformers' order.
struct TokenDefaults {
  std::string_view bos = {}, eos = {}, unk = {}, sep = {}, pad = {}, cls = {}, mask = {};
};

/// What the files beside a vocabulary say: tokenizer_config.json, special_tokens_map.json and added_tokens.json.
struct TokenizerSettings {
  base::Node plain = base::Node::table();  ///< the values of tokenizer_config.json that are no lists
  std::vector<std::pair<std::string, NamedToken>> named = {};  ///< by key: "bos_token", ...
  std::vector<NamedToken> extra = {};                          ///< extra_special_tokens, additional_special_tokens
  bool is_extra_of_map = false;           ///< whether these are additional_special_tokens of special_tokens_map.json
  std::optional<AddedTokens> added = {};  ///< added_tokens_decoder, or the tokens of added_tokens.json

  /// The text of the token with that key, or null.
  const std::string* token(std::string_view key) const;
};

/// The content of files; null: there is none.
struct SettingsFiles {
  const std::string *config = nullptr, *special_map = nullptr, *added = nullptr;
};

/// Reads the files as transformers 5 does: special_tokens_map.json and added_tokens.json count where the config has no
/// added_tokens_decoder. Chat templates are read over. `folder` names the files in errors. Throws InputError for broken
/// JSON, more than 8,192 settings, and anything but a table.
TokenizerSettings read_tokenizer_settings(const SettingsFiles& files, const std::string& folder);

/// The ids of special tokens by their keys, and all tokens beside a vocabulary.
struct ResolvedTokens {
  AddedTokens added = {};
  std::array<int64_t, 7> ids = {};  ///< of bos, eos, unk, sep, pad, cls, mask; -1: none
  SpecialTokens special = {};

  int64_t bos() const { return ids[0]; }
  int64_t eos() const { return ids[1]; }
  int64_t sep() const { return ids[3]; }
  int64_t cls() const { return ids[5]; }
};

/// Gives tokens their ids as transformers does: tokens of the vocabulary have theirs, the others go on from its size:
/// `first`, then those of added_tokens_decoder or added_tokens.json by their ids, the special tokens, the extra ones.
/// `find` gives the id of a token of the vocabulary, or -1. Throws InputError that names `folder` where the files say
/// another id.
ResolvedTokens resolve_tokens(const TokenizerSettings& settings, const TokenDefaults& defaults, AddedTokens first,
                              const std::function<int64_t(std::string_view)>& find, int64_t size,
                              const std::string& folder);

}  // namespace mnemo::text
