#include "weights/foreign_text.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "ops/activation.h"
#include "weights/foreign_config.h"

namespace mnemo::weights {

TextConfig::TextConfig(const base::Node& config) : config_(config) {
  for (const char* key : {"dtype", "torch_dtype", "problem_type"}) text(key, "");
  for (const char* key : {"id2label", "label2id"}) {
    const base::Node found = get(key, base::Node::table());
    if (!found.is_table()) fail(key, fmt::format("expected an object, found {}", found.found()));
  }
  const base::Node names = get("architectures", base::Node::array());
  const bool strings = names.is_array() && std::all_of(names.items().begin(), names.items().end(),
                                                       [](const base::Node& name) { return name.is_string(); });
  if (!strings) fail("architectures", fmt::format("expected a list of names, found {}", names.found()));
}

bool TextConfig::has(std::string_view key) const {
  const base::Node* found = config_.find(key);
  return found != nullptr && !found->is_null();
}

base::Node TextConfig::get(std::string_view key, const base::Node& otherwise) const {
  return member_or(config_, key, otherwise);
}

void TextConfig::fail(std::string_view key, const std::string& message) const {
  base::input_error("{}: '{}': {}", config_.place().text(), key, message);
}

int64_t TextConfig::integer(std::string_view key, int64_t otherwise) const {
  const base::Node found = get(key, otherwise);
  if (!found.is_int()) fail(key, fmt::format("expected an integer, found {}", found.found()));
  return found.as_int();
}

double TextConfig::number(std::string_view key, double otherwise) const {
  const base::Node found = get(key, otherwise);
  if (!found.is_int() && !found.is_real()) fail(key, fmt::format("expected a number, found {}", found.found()));
  return found.as_double();
}

bool TextConfig::flag(std::string_view key, bool otherwise) const {
  const base::Node found = get(key, otherwise);
  if (!found.is_bool()) fail(key, fmt::format("expected true or false, found {}", found.found()));
  return found.as_bool();
}

std::string TextConfig::text(std::string_view key, std::string_view otherwise) const {
  const base::Node found = get(key, base::Node(std::string(otherwise)));
  if (!found.is_string()) fail(key, fmt::format("expected a string, found {}", found.found()));
  return found.as_string();
}

int64_t TextConfig::size(std::string_view key) const {
  if (!has(key)) fail(key, "expected an integer above 0, found nothing");
  return size(key, 0);
}

int64_t TextConfig::size(std::string_view key, int64_t otherwise) const {
  const int64_t found = integer(key, otherwise);
  if (found <= 0) fail(key, fmt::format("expected an integer above 0, found {}", found));
  return found;
}

int64_t TextConfig::token(std::string_view key, int64_t otherwise, int64_t words) const {
  const base::Node said = get(key, otherwise);  // or a list of it alone
  const base::Node found = said.is_array() && said.size() == 1 ? said.items()[0] : said;
  if (!found.is_int() || found.as_int() < 0 || found.as_int() >= words)
    fail(key, fmt::format("expected a token of the vocabulary, 0 to {}, found {}", words - 1, said.found()));
  return found.as_int();
}

void TextConfig::require_alias(std::string_view alias, std::string_view key, int64_t value) const {
  if (config_.find(alias) != nullptr && integer(alias, -1) != value)
    fail(alias, fmt::format("another name of '{}': expected {}, found {}", key, value, config_.at(alias).found()));
}

void TextConfig::require_no_causal() const {
  if (const base::Node* found = config_.find("is_causal"))
    fail("is_causal", fmt::format("unsupported: expected no such key, found {}", found->found()));
}

void TextConfig::require_causal(int64_t layers, std::string_view layer_type) const {
  const base::Node* causal = config_.find("is_causal");
  if (causal != nullptr && *causal != base::Node(true))
    fail("is_causal", fmt::format("unsupported: expected true, found {}", causal->found()));
  if (!has("layer_types")) return;
  const base::Node types = get("layer_types", {});
  const base::Node expected{std::string(layer_type)};
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers)
    fail("layer_types",
         fmt::format("expected {} of {}, one for each layer, found {}", layers, expected.found(), types.found()));
  for (const base::Node& type : types.items()) {
    if (type != expected)
      fail("layer_types",
           fmt::format("unsupported: expected {} for every layer, found {}", expected.found(), type.found()));
  }
}

void TextConfig::only(std::string_view key, const base::Node& expected) const {
  const base::Node found = get(key, expected);
  const auto is_number = [](const base::Node& node) {
    return node.kind() == base::Node::Kind::integer || node.kind() == base::Node::Kind::real;
  };
  const bool same = is_number(found) && is_number(expected) ? found.as_double() == expected.as_double()  // 0 is 0.0
                                                            : found == expected;
  if (!same) fail(key, fmt::format("expected {}, found {}", expected.found(), found.found()));
}

std::string TextConfig::activation(std::string_view key, std::string_view otherwise) const {
  const std::string found = text(key, otherwise);
  if (found == "gelu" || found == "relu" || found == "silu") return found;
  if (found == "swish") return "silu";
  if (found == "gelu_new" || found == "gelu_fast" || found == "gelu_pytorch_tanh") return "gelu_tanh";
  fail(key, fmt::format("expected gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, silu or swish, found {}",
                        base::in_quotes(found)));
}

namespace {

constexpr std::string_view kPartialKey = "partial_rotary_factor";

/// The key under which a config.json says how it turns. As in transformers, rope_scaling counts before rope_parameters
/// unless it is null or empty.
std::string_view rotary_key(const TextConfig& config) {
  const base::Node scaling = config.get("rope_scaling", base::Node::table());
  return scaling.is_table() && scaling.size() == 0 ? "rope_parameters" : "rope_scaling";
}

/// The type that those settings name; null says nothing.
std::string rotary_type(const TextConfig& config, std::string_view where, const TextConfig& settings) {
  for (const char* key : {"rope_type", "type"}) {
    if (settings.has(key)) return settings.text(key, "");
  }
  if (settings.has("factor")) config.fail(where, "expected a rope_type beside factor, found none");
  return "default";
}

/// Our table `scaling` for a type other than default.
base::Node rotary_scaling(const TextConfig& config, std::string_view where, const TextConfig& settings,
                          const std::string& type) {
  // yarn also scales the scores; dynamic and longrope have frequencies that depend on the length of the text.
  if (type != "linear" && type != "llama3")
    config.fail(where, fmt::format("expected rope type default, linear or llama3, found {}", base::in_quotes(type)));
  if (!settings.has("factor"))
    config.fail(where, fmt::format("expected a factor beside rope type {}, found none", base::in_quotes(type)));
  base::Node scaling = base::Node::table({{"factor", settings.number("factor", 1.0)}});
  scaling.set("type", type == "linear" ? "interpolation" : "llama3");
  if (type == "linear") return scaling;
  scaling.set("low_freq_factor", settings.number("low_freq_factor", 1.0));
  scaling.set("high_freq_factor", settings.number("high_freq_factor", 4.0));
  // As in transformers: outside the settings first, and the model's places where neither says it.
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  scaling.set("original_max_len", config.has(kOriginal)     ? config.size(kOriginal)
                                  : settings.has(kOriginal) ? settings.size(kOriginal)
                                                            : config.size("max_position_embeddings", 2048));
  return scaling;
}

}  // namespace

base::Node TextConfig::rotary(int64_t head_dim, double base_value, double partial, std::string_view base_key,
                              std::string_view partial_key) const {
  const std::string_view where = rotary_key(*this);
  const base::Node settings = get(where, base::Node::table());
  if (!settings.is_table()) fail(where, fmt::format("expected an object or null, found {}", settings.found()));
  for (const auto& [name, value] : settings.members()) {
    if (value.is_table())
      fail(where, fmt::format("expected the same for all layers, found settings of {}", base::in_quotes(name)));
  }
  const TextConfig inner(settings);
  const double theta = inner.has("rope_theta") ? inner.number("rope_theta", base_value) : number(base_key, base_value);
  const std::string_view outside = partial_key.empty() ? kPartialKey : partial_key;
  const double share = inner.has(kPartialKey) ? inner.number(kPartialKey, partial) : number(outside, partial);
  const std::string_view share_key = inner.has(kPartialKey) ? where : outside;
  if (!(theta > 0.0)) fail(base_key, fmt::format("expected a number above 0, found {}", theta));
  if (partial_key.empty() && share != 1.0)
    fail(share_key,
         fmt::format("expected {} = 1, as this architecture turns whole heads, found {}", kPartialKey, share));
  if (!(share > 0.0 && share <= 1.0))
    fail(share_key, fmt::format("expected a share of 0 to 1 of a head, found {}", share));
  const auto turned = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  if (turned < 2 || turned % 2 != 0)
    fail(share_key, fmt::format("expected an even number of rotated channels, found {} of {}", turned, head_dim));
  base::Node rotary = base::Node::table({{"base", theta}});
  if (turned != head_dim) rotary.set("dims", turned);
  const std::string type = rotary_type(*this, where, inner);
  if (type != "default") rotary.set("scaling", rotary_scaling(*this, where, inner, type));
  return rotary;
}

bool has_model_type(const base::Node& config, std::string_view type) {
  const base::Node* found = config.find("model_type");
  return found != nullptr && found->is_string() && found->as_string() == type;
}

std::string_view their_activation(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::relu:
      return "relu";
    case ops::Activation::gelu:
      return "gelu";
    case ops::Activation::gelu_tanh:
      return "gelu_new";
    case ops::Activation::silu:
      return "silu";
  }
  throw base::InternalError("an activation is missing here");
}

base::Node rotary_of(const base::Node& attention) {
  const base::Node* own = attention.find("rotary");
  if (own != nullptr && !own->is_null()) return *own;
  return base::Node::table({{"base", 10000.0}, {"scaling", base::Node::table({{"type", "none"}})}});
}

void write_rotary(base::Node& config, const base::Node& rotary) {
  config.set("rope_theta", rotary.at("base"));
  const base::Node& scaling = rotary.at("scaling");
  const std::string type = scaling.at("type").as_string();
  if (type == "none") {
    config.set("rope_scaling", base::Node());
    return;
  }
  base::Node said = base::Node::table(
      {{"rope_type", type == "interpolation" ? "linear" : type}, {"factor", scaling.at("factor")}});
  if (type == "llama3") {
    said.set("low_freq_factor", scaling.at("low_freq_factor"));
    said.set("high_freq_factor", scaling.at("high_freq_factor"));
    said.set("original_max_position_embeddings", scaling.at("original_max_len"));
  }
  config.set("rope_scaling", said);
}

const at::Tensor* find_tensor(const ForeignFormat& format, const TensorFile& file, std::string_view name) {
  if (const at::Tensor* found = file.find(name)) return found;
  if (!format.variants) return nullptr;
  const std::string_view prefix = format.variants->prefix;
  return name.starts_with(prefix) ? file.find(name.substr(prefix.size())) : file.find(std::string(prefix).append(name));
}

namespace {

/// The embedding, under its own name or that of a tensor which shares it; null if the file has none.
const at::Tensor* embedding_of(const ForeignFormat& format, const TensorFile& file) {
  const std::string name(format.variants->embedding);
  const at::Tensor* const found = find_tensor(format, file, name);
  return found != nullptr ? found : file.find(name_of_shared(*format.variants, file, name));
}

}  // namespace

bool is_copy(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() && at::equal(one, other);
}

void require_copies(const base::Node& config, const ForeignFormat& format, const TensorFile& file,
                    std::initializer_list<std::string_view> names) {
  const at::Tensor* const table = embedding_of(format, file);
  for (const std::string_view name : names) {
    const at::Tensor* const own = file.find(name);
    base::require(table == nullptr || own == nullptr || is_copy(*own, *table),
                  "{}: unsupported: embeddings of their own: expected '{}' of the weights to be '{}', "
                  "found other numbers",
                  config.place().text(), name, format.variants->embedding);
  }
}

void fit_output(base::Node& options, const base::Node& config, const ForeignFormat& format, const TensorFile& file,
                std::string_view output, bool tied_by_default) {
  const bool says_tied = TextConfig(config).flag("tie_word_embeddings", tied_by_default);
  const at::Tensor* own = find_tensor(format, file, output);
  base::require(own != nullptr || says_tied,
                "{}: 'tie_word_embeddings': expected true, as the file has no '{}', found false", config.place().text(),
                output);
  const at::Tensor* table = embedding_of(format, file);
  base::Node head = options.at("head");
  head.set("tied", own == nullptr || (says_tied && table != nullptr && is_copy(*own, *table)));
  options.set("head", head);
}

}  // namespace mnemo::weights
