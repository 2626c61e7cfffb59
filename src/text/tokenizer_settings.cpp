#include "text/tokenizer_settings.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/json_sax.h"
#include "base/printable.h"
#include "text/tokenizer_json.h"

namespace mnemo::text {
namespace {

constexpr size_t kMaxLevels = 32, kMaxSettings = 8192;
constexpr std::string_view kKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};

/// Reads one file of settings. Lists other than those of tokens are read over.
class SettingsParser final : public base::JsonSax {
 public:
  using JsonSax::JsonSax;

  base::Node plain = base::Node::table();
  std::vector<std::pair<std::string, NamedToken>> named;
  std::vector<NamedToken> extra, additional;
  std::optional<AddedTokens> decoder;

  bool null() override { return value({}); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_unsigned(number_unsigned_t v) override {
    const bool fits = v <= static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max());
    return value(fits ? base::Node(static_cast<int64_t>(v)) : base::Node(static_cast<double>(v)));
  }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override { return value(std::move(v)); }

  bool key(string_t& name) override {
    if (depth_ <= kMaxKept) keys_[depth_ - 1] = std::move(name);
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 1 && keys_[0] == "added_tokens_decoder") decoder.emplace();
    if (is_token(depth_)) token_ = {}, rule_given_ = false;
    return deeper();
  }
  bool start_array(size_t) override {
    base::require(depth_ > 0, "{}: expected an object, found an array", where_);
    keys_[1].clear();
    return deeper();
  }
  bool end_object() override {
    if (is_token(--depth_)) take_token();
    return true;
  }
  bool end_array() override { return depth_-- > 0; }

 private:
  static constexpr size_t kMaxKept = 3;

  bool is_named() const { return keys_[0].ends_with("_token"); }
  bool is_list() const { return keys_[0] == "extra_special_tokens" || keys_[0] == "additional_special_tokens"; }
  /// Whether an object inside so many others is a token.
  bool is_token(size_t depth) const {
    return (depth == 1 && is_named()) || (depth == 2 && (is_list() || keys_[0] == "added_tokens_decoder"));
  }

  bool deeper() {
    base::require(++depth_ <= kMaxLevels, "{}: nested more than {} deep", where_, kMaxLevels);
    return true;
  }

  std::string place() const {
    return fmt::format("{}: {}{}", where_, base::printable(keys_[0]),
                       keys_[1].empty() || depth_ < 2 || is_named() ? "" : "." + base::printable(keys_[1]));
  }

  bool value(base::Node node) {
    base::require(depth_ > 0, "{}: expected an object, found {}", where_, node.found());
    if (depth_ >= 2 && is_token(depth_ - 1)) return token_field(std::move(node));
    if (depth_ == 2 && is_list()) {
      base::require(node.is_string(), "{}: expected tokens, found {}", place(), node.found());
      token_ = {.text = node.as_string()};
      if (keys_[1].empty()) {
        list().push_back(token_);
      } else {
        add_named(keys_[1]);  // a table of names
      }
      return true;
    }
    base::require(depth_ < 2 || keys_[0] != "added_tokens_decoder", "{}: expected a token, found {}", place(),
                  node.found());
    if (depth_ > 1) return true;
    base::require(plain.size() < kMaxSettings, "{}: more than {} settings", where_, kMaxSettings);
    base::require(plain.find(keys_[0]) == nullptr, "{}: the key {} appears twice", where_, base::in_quotes(keys_[0]));
    if (is_named() && node.is_string()) {
      token_ = {.text = node.as_string()};
      add_named(keys_[0]);
    }
    plain.set(keys_[0], std::move(node));
    return true;
  }

  bool token_field(base::Node node) {
    const std::string& name = keys_[depth_ - 1];
    const auto expect = [&](bool good, std::string_view what) {
      base::require(good, "{}.{}: expected {}, found {}", place(), base::printable(name), what, node.found());
    };
    if (name == "content") {
      expect(node.is_string(), "a string");
      token_.text = node.as_string();
    } else if (bool* flag = token_.rule.find(name); flag != nullptr && !node.is_null()) {
      if (!rule_given_ && keys_[0] == "added_tokens_decoder") token_.rule = {};
      rule_given_ = true;
      expect(node.is_bool(), "true or false");
      *token_.rule.find(name) = node.as_bool();
    }
    return true;
  }

  void take_token() {
    if (keys_[0] == "added_tokens_decoder") {
      if (!rule_given_) token_.rule = {};
      int64_t id = -1;
      const std::string& text = keys_[1];
      const auto read = std::from_chars(text.data(), text.data() + text.size(), id);
      base::require(read.ec == std::errc() && read.ptr == text.data() + text.size() && id >= 0 && id <= INT32_MAX &&
                        !token_.text.empty(),
                    "{}: added_tokens_decoder: expected an id and a content, found the id {}", where_,
                    base::in_quotes(text));
      decoder->add(id, token_.text, token_.rule);
    } else if (is_named()) {
      add_named(keys_[0]);
    } else if (keys_[1].empty()) {
      list().push_back(token_);
    } else {
      add_named(keys_[1]);
    }
  }

  std::vector<NamedToken>& list() { return keys_[0] == "extra_special_tokens" ? extra : additional; }
  void add_named(const std::string& key) {
    base::require(named.size() < kMaxSettings, "{}: more than {} tokens", where_, kMaxSettings);
    named.emplace_back(key, token_);
  }

  std::array<std::string, kMaxKept> keys_;  // of the objects around a value
  size_t depth_ = 0;
  NamedToken token_;
  bool rule_given_ = false;
};

void set_named(std::vector<std::pair<std::string, NamedToken>>& named, std::pair<std::string, NamedToken> token) {
  const auto found = std::find_if(named.begin(), named.end(),
                                  [&](const auto& one) { return one.first == token.first; });
  if (found == named.end()) {
    named.push_back(std::move(token));
  } else {
    *found = std::move(token);
  }
}

/// added_tokens.json: tokens and their ids. Those that a setting names are special.
AddedTokens read_added_tokens(std::string_view text, const TokenizerSettings& settings, const std::string& where) {
  const TokenizerJson json = parse_vocab_json(text, where);
  base::require(json.ids.size() == static_cast<size_t>(json.tokens.size()), "{}: expected an id for every token",
                where);
  std::set<std::string_view> special;
  for (const auto& [key, token] : settings.named) special.insert(token.text);
  for (const NamedToken& token : settings.extra) special.insert(token.text);
  AddedTokens added;
  for (size_t i = 0; i < json.ids.size(); ++i) {
    const std::string_view token = json.tokens[static_cast<int64_t>(i)];
    base::require(json.ids[i] >= 0 && json.ids[i] <= INT32_MAX && !token.empty(),
                  "{}: token {}: expected a text and an id, found the id {}", where, base::in_quotes(token),
                  json.ids[i]);
    const bool is_special = special.contains(token);
    added.add(json.ids[i], token, {.special = is_special, .normalised = !is_special});
  }
  return added;
}

}  // namespace

const std::string* TokenizerSettings::token(std::string_view key) const {
  for (const auto& [name, token] : named) {
    if (name == key) return &token.text;
  }
  return nullptr;
}

TokenizerSettings read_tokenizer_settings(const SettingsFiles& files, const std::string& folder) {
  TokenizerSettings out;
  const std::string config_name = base::join_path(folder, "tokenizer_config.json"),
                    map_name = base::join_path(folder, "special_tokens_map.json"),
                    added_name = base::join_path(folder, "added_tokens.json");
  if (files.config != nullptr) {
    SettingsParser config(config_name);
    nlohmann::json::sax_parse(files.config->begin(), files.config->end(), &config);
    out.plain = std::move(config.plain);
    out.named = std::move(config.named);
    out.extra = std::move(config.extra.empty() ? config.additional : config.extra);
    out.added = std::move(config.decoder);
  }
  if (out.added) return out;
  std::vector<NamedToken> additional;
  if (files.special_map != nullptr) {
    SettingsParser map(map_name);
    nlohmann::json::sax_parse(files.special_map->begin(), files.special_map->end(), &map);
    for (auto& token : map.named) set_named(out.named, std::move(token));
    for (NamedToken& token : map.extra) out.extra.push_back(std::move(token));
    additional = std::move(map.additional);
  }
  if (files.added != nullptr) out.added = read_added_tokens(*files.added, out, added_name);
  if (out.extra.empty()) {
    out.extra = std::move(additional);
    out.is_extra_of_map = !out.extra.empty();
  }
  return out;
}

ResolvedTokens resolve_tokens(const TokenizerSettings& settings, const TokenDefaults& defaults, AddedTokens first,
                              const std::function<int64_t(std::string_view)>& find, int64_t size,
                              const std::string& folder) {
  ResolvedTokens out{.added = std::move(first)};
  std::map<std::string, size_t> places;  // by text, in out.added
  int64_t next = size;
  for (size_t i = 0; i < out.added.size(); ++i) {
    places.emplace(out.added.text(i), i);
    next = std::max(next, out.added.ids[i] + 1);
  }
  const auto add = [&](const std::string& text, AddedTokenRule rule) {
    const auto [place, is_new] = places.emplace(text, out.added.size());
    if (!is_new) {
      out.added.rules[place->second].special |= rule.special;
      return out.added.ids[place->second];
    }
    const int64_t known = find(text);
    out.added.add(known >= 0 ? known : next++, text, rule);
    return out.added.ids.back();
  };

  std::vector<size_t> order;
  if (settings.added) {
    for (size_t i = 0; i < settings.added->size(); ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return settings.added->ids[a] < settings.added->ids[b]; });
  }
  for (const size_t i : order) {
    const std::string text(settings.added->text(i));
    const int64_t id = add(text, settings.added->rules[i]);
    base::require(id == settings.added->ids[i],
                  "{}: added token {}: expected the id {}, which the vocabulary and the tokens before it leave it, "
                  "found {}",
                  folder, base::in_quotes(text), id, settings.added->ids[i]);
  }

  // Defaults that are in no vocabulary take ids only where a token that a file names comes after them.
  const std::string_view by_default[] = {defaults.bos, defaults.eos, defaults.unk, defaults.sep,
                                         defaults.pad, defaults.cls, defaults.mask};
  const auto is_known = [&](const std::string& text) { return find(text) >= 0 || places.contains(text); };
  size_t last_named = 0;
  bool more = !settings.extra.empty();
  for (const auto& [key, token] : settings.named)
    more |= std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys);
  for (size_t i = 0; i < std::size(kKeys); ++i) {
    if (more || settings.token(kKeys[i]) != nullptr) last_named = i + 1;
  }
  for (size_t i = 0; i < std::size(kKeys); ++i) {
    out.ids[i] = -1;
    const auto given = std::find_if(settings.named.begin(), settings.named.end(),
                                    [&](const auto& one) { return one.first == kKeys[i]; });
    if (given != settings.named.end()) {
      if (!given->second.text.empty()) out.ids[i] = add(given->second.text, {.special = true, .normalised = false});
    } else if (!by_default[i].empty()) {
      const std::string text(by_default[i]);
      if (i < last_named || is_known(text)) out.ids[i] = add(text, {.special = true, .normalised = false});
    }
  }
  for (const auto& [key, token] : settings.named) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys) && !token.text.empty())
      add(token.text, token.rule);
  }
  for (const NamedToken& token : settings.extra) {  // one that is added already stays as it is
    if (!token.text.empty() && !places.contains(token.text)) add(token.text, token.rule);
  }

  const SpecialTokens by_name = find_special_tokens([&](std::string_view token) {
    const auto place = places.find(std::string(token));
    return place == places.end() ? find(token) : out.added.ids[place->second];
  });
  const auto first_of = [](int64_t a, int64_t b, int64_t otherwise) { return a >= 0 ? a : b >= 0 ? b : otherwise; };
  out.special = {.begin = first_of(out.cls(), out.bos(), by_name.begin),
                 .end = first_of(out.sep(), out.eos(), by_name.end),
                 .padding = first_of(out.ids[4], -1, by_name.padding),
                 .mask = first_of(out.ids[6], -1, by_name.mask)};
  return out;
}

}  // namespace mnemo::text
