#include "infer/generation_settings.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/text_format.h"
#include "bundle/generation_file.h"
#include "bundle/model_folder.h"
#include "bundle/published_config.h"
#include "models/model.h"
#include "search/generation_search.h"
#include "weights/foreign_config.h"
#include "weights/foreign_text.h"

namespace mnemo::infer {
namespace {

/// A JSON file of a published model, an object.
base::Node read_settings(const std::string& path, const std::string& folder) {
  base::Node file = weights::parse_model_config(base::read_file(path, size_t{16} << 20), path,
                                                bundle::weights_bytes(folder));
  base::require(file.is_table(), "{}: expected an object, found {}", path, file.found());
  return file;
}

/// A setting of another search, with the number that leaves the search as it is; absent and null ones do too.
struct OtherSetting {
  const char* key;
  std::optional<double> neutral = {};
  bool is_neutral(const base::Node& file) const {
    const base::Node value = weights::member_or(file, key, base::Node());
    return value.is_null() || (value.is_array() && value.size() == 0) ||
           (neutral && (value.is_int() || value.is_real()) && value.as_double() == *neutral);
  }
};
constexpr OtherSetting kOthers[] = {{"repetition_penalty", 1.0},
                                    {"encoder_repetition_penalty", 1.0},
                                    {"encoder_no_repeat_ngram_size", 0.0},
                                    {"num_beam_groups", 1.0},
                                    {"diversity_penalty", 0.0},
                                    {"guidance_scale", 1.0},
                                    {"penalty_alpha"},
                                    {"forced_bos_token_id"},
                                    {"sequence_bias"},
                                    {"suppress_tokens"},
                                    {"begin_suppress_tokens"},
                                    {"forced_decoder_ids"},
                                    {"force_words_ids"},
                                    {"constraints"},
                                    {"stop_strings"},
                                    {"watermarking_config"},
                                    {"exponential_decay_length_penalty"}};

class GenerationFile {
 public:
  GenerationFile(std::string path, const std::string& folder)
      : path_(std::move(path)), file_(read_settings(path_, folder)) {}
  /// tokens: of the model, whose start and end the search has.
  search::GenerationOptions options(const models::SpecialTokens& tokens) const {
    using Options = search::GenerationOptions;
    refuse_others();
    require_token("decoder_start_token_id", tokens.first());
    require_token("eos_token_id", tokens.eos);
    Options options;
    options.num_beams = keys().integer("num_beams", 1);
    options.length_penalty = keys().number("length_penalty", 1.0);
    options.early_stopping = early_stopping();
    // Lengths without "new" count the decoder's first token.
    options.max_new_tokens = keys().integer("max_new_tokens", keys().integer("max_length", 512) - 1);
    options.min_new_tokens = keys().integer("min_new_tokens",
                                            std::max<int64_t>(0, keys().integer("min_length", 0) - 1));
    options.no_repeat_ngram = keys().integer("no_repeat_ngram_size", 0);
    options.renormalize = keys().flag("renormalize_logits", false);
    options.forced_eos = token("forced_eos_token_id");
    const base::Node words = get("bad_words_ids", base::Node::array());
    base::require(words.is_array(), "{}: 'bad_words_ids': expected a list of lists, found {}", path_, words.found());
    for (const base::Node& word : words.items()) {
      base::require(word.is_array() && word.size() == 1 && word.items()[0].is_int(),
                    "{}: 'bad_words_ids': unsupported: expected lists of one token, found {}", path_, word.found());
      // transformers leaves the end token out of this list.
      if (word.items()[0].as_int() != tokens.eos) options.suppressed.push_back(word.items()[0].as_int());
    }
    try {
      base::check_options(options);
    } catch (const base::InputError& error) {
      base::input_error("{}: {}", path_, error.what());
    }
    return options;
  }

 private:
  base::Node get(std::string_view key, const base::Node& otherwise) const {
    return weights::member_or(file_, key, otherwise);
  }
  weights::TextConfig keys() const { return weights::TextConfig(file_); }
  /// A token, also as a list of one; unset: there is none.
  std::optional<int64_t> token(std::string_view key) const {
    const base::Node found = get(key, base::Node()),
                     value = found.is_array() && found.size() == 1 ? found.items()[0] : found;
    if (value.is_null()) return std::nullopt;
    base::require(value.is_int(), "{}: '{}': expected a token's number, found {}", path_, key, value.found());
    return value.as_int();
  }
  void require_token(std::string_view key, int64_t expected) const {
    const int64_t found = token(key).value_or(expected);
    base::require(found == expected, "{}: '{}': unsupported: expected {}, that of config.json, found {}", path_, key,
                  expected, found);
  }
  void refuse_others() const {
    for (const OtherSetting& other : kOthers) {
      if (other.is_neutral(file_)) continue;
      base::input_error("{}: '{}': unsupported: expected {}, found {}", path_, other.key,
                        other.neutral ? fmt::format("{}", *other.neutral) : "no such key", file_.at(other.key).found());
    }
    if (keys().flag("do_sample", false))
      base::log_warning(
          "{}: 'do_sample': the file asks for drawn texts; translate searches for the best ones unless --sample is "
          "given",
          path_);
  }
  search::GenerationOptions::EarlyStopping early_stopping() const {
    using Early = search::GenerationOptions::EarlyStopping;
    const base::Node value = get("early_stopping", false);
    if (value.is_bool()) return value.as_bool() ? Early::yes : Early::no;
    base::require(value.is_string() && value.as_string() == "never",
                  "{}: 'early_stopping': expected true, false or \"never\", found {}", path_, value.found());
    return Early::never;
  }

  std::string path_;
  base::Node file_;
};

/// The file that says how a published model generates, also where its folder was converted; empty: there is none.
std::string settings_path(const std::string& folder, bool published) {
  if (folder.empty()) return "";
  const char* const config = published ? bundle::kConfigFile : bundle::kSourceConfig;
  for (const char* name : {bundle::kGenerationConfig, config}) {
    const std::string path = base::join_path(folder, name);
    if (base::path_exists(path)) return path;
  }
  return "";
}

/// Whether a file is asked about for the first time: every text of a model reads it, and one warning is enough.
bool is_first(const std::string& path) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  return seen.insert(path).second;
}

}  // namespace

std::optional<search::GenerationOptions> generation_settings(const bundle::Bundle& stored) {
  return generation_settings(stored.folder, stored.format != nullptr, stored.options());
}

std::optional<search::GenerationOptions> generation_settings(const std::string& folder, bool published,
                                                             const models::ModelOptions& model) {
  const std::string path = settings_path(folder, published);
  if (path.empty()) return std::nullopt;
  const search::GenerationOptions options = GenerationFile(path, folder).options(model.tokens);
  try {
    search::require_fitting(options, model.embedding.vocab_size);
  } catch (const base::InputError& error) {
    base::input_error("{}: {}", path, error.what());
  }
  return options;
}

std::vector<int64_t> end_tokens(const bundle::Bundle& stored) {
  const std::string path = settings_path(stored.folder, stored.format != nullptr);
  if (path.empty()) return {};
  const base::Node file = read_settings(path, stored.folder);
  std::vector<std::string> others;
  for (const OtherSetting& other : kOthers) {
    if (!other.is_neutral(file)) others.push_back(fmt::format("'{}'", other.key));
  }
  if (!OtherSetting{"bad_words_ids"}.is_neutral(file)) others.emplace_back("'bad_words_ids'");
  if (!others.empty() && is_first(path))
    base::log_warning("{}: of this file generate reads 'eos_token_id' alone; left aside: {}", path,
                      base::listed(others, 4));
  const base::Node end = weights::member_or(file, "eos_token_id", base::Node::array());
  std::vector<int64_t> tokens;
  for (const base::Node& token : end.is_array() ? end.items() : std::vector<base::Node>{end}) {
    base::require(token.is_int(), "{}: 'eos_token_id': expected a token's number or a list of them, found {}", path,
                  token.found());
    tokens.push_back(token.as_int());
    const auto* texts = stored.model ? std::get_if<core::TokenInput>(&stored.model->input()) : nullptr;
    if (const int64_t words = texts != nullptr ? texts->vocab_size : INT64_MAX;
        token.as_int() < 0 || token.as_int() >= words)
      base::log_warning("{}: 'eos_token_id': {} is not among the model's {} tokens, so it never ends a text", path,
                        token.as_int(), words);
  }
  return tokens;
}

}  // namespace mnemo::infer
