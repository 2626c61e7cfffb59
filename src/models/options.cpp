#include "models/options.h"

#include <utility>

#include "heads/language_model.h"
#include "memory/learnable_tokens.h"
#include "models/make_attention.h"
#include "models/presets.h"
#include "models/registry.h"

namespace mnemo::models {

namespace {

/// The name of each of VisionOptions, and what makes fresh options of it.
const std::vector<std::pair<std::string, VisionOptions (*)()>>& vision_types() {
  static const auto types = []<size_t... I>(std::index_sequence<I...>) {
    return std::vector<std::pair<std::string, VisionOptions (*)()>>{
        {std::variant_alternative_t<I, VisionOptions>::kType, [] { return VisionOptions(std::in_place_index<I>); }}...};
  }
  (std::make_index_sequence<std::variant_size_v<VisionOptions>>());
  return types;
}

}  // namespace

const base::PolyType& BackboneOptions::attention_types() { return Mechanisms::all().attention_types; }
const base::PolyType& ModelOptions::memory_types() { return Mechanisms::all().memory_types; }
std::vector<std::string> ModelOptions::preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

const base::PolyType& ModelOptions::head_types() { return Mechanisms::all().head_types; }

ModelOptions::ModelOptions() { head = base::Node::table({{"type", "language_model"}}); }

std::vector<std::string> BackboneOptions::type_names() {
  std::vector<std::string> names = {"decoder", "encoder"};
  for (auto& [name, make] : vision_types()) names.push_back(name);
  return names;
}

std::vector<base::OptionDoc> BackboneOptions::vision_docs() {
  std::vector<base::OptionDoc> all;
  for (const auto& [name, make] : vision_types()) {
    std::visit(
        [&](const auto& chosen) {
          for (base::OptionDoc& doc : base::describe_options<std::decay_t<decltype(chosen)>>()) {
            doc.group = fmt::format("with type = \"{}\"", name);
            all.push_back(std::move(doc));
          }
        },
        make());
  }
  return all;
}

int BackboneOptions::vision_index(std::string_view type) {
  const auto& types = vision_types();
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].first == type) return static_cast<int>(i);
  }
  return -1;
}

std::vector<int64_t> BackboneOptions::image_size() const {
  return std::visit([](const auto& chosen) { return chosen.image_size; }, vision);
}

int64_t BackboneOptions::image_channels() const {
  return std::visit([](const auto& chosen) { return chosen.in_channels; }, vision);
}

bool BackboneOptions::select_vision() {
  const int index = vision_index(type);
  if (index < 0) return false;
  if (vision.index() != static_cast<size_t>(index)) vision = vision_types()[static_cast<size_t>(index)].second();
  return true;
}

BackboneOptions::BackboneOptions() { attention = base::Node::table({{"type", "relative"}}); }

namespace {

bool flag(const base::Node& table, std::string_view key) {
  const base::Node* value = table.find(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

std::string word(const base::Node& table, std::string_view key) {
  const base::Node* value = table.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

int64_t number(const base::Node& table, std::string_view key) {
  const base::Node* value = table.find(key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

/// Rows that a memory on the sequence seam puts beside the tokens.
int64_t rows_of(const base::Node& memory) {
  const int64_t tokens = number(memory, "num_mem_tokens");
  if (word(memory, "layout") == "encoder") return tokens + 3;
  return word(memory, "layout") == "read_write" ? 2 * tokens : tokens;
}

/// An encoder reads a segment at once: each of its rows needs its place.
void check_places(const ModelOptions& options) {
  const auto limit = options.kind == "model" && !options.backbone.causal() ? row_limit(options.backbone.attention)
                                                                           : std::nullopt;
  if (!limit) return;
  int64_t beside = 0;
  for (const base::Node& memory : options.memory) beside += rows_of(memory);
  if (beside == 0 && word(options.head, "pool") == "cls") beside = 1;
  limit->require(
      options.segment_size + beside,
      fmt::format("a segment has segment_size = {} tokens and {} rows beside them", options.segment_size, beside));
}

void check_embedding(const ModelOptions& options, const base::Where& where) {
  const EmbeddingOptions& embedding = options.embedding;
  const int64_t dim = options.backbone.dim, width = embedding.dim.value_or(dim);
  const bool adaptive = embedding.type == "adaptive";
  where.require(adaptive || width == dim, "embedding", "expected embedding.dim = backbone.dim = {}, found {}", dim,
                width);
  where.require(adaptive || (embedding.cutoffs.empty() && embedding.div_val == 1), "embedding",
                "cutoffs and div_val belong to type = \"adaptive\", found type \"{}\"", embedding.type);
  where.require(!adaptive || embedding.div_val == 1 || !embedding.cutoffs.empty(), "embedding",
                "div_val = {} divides the clusters' widths, but there are no cutoffs", embedding.div_val);
  if (type_of(options.head) != "language_model") return;
  const auto head = base::read_typed_options<heads::LanguageModelOptions>(options.head);
  if (!head.adaptive) {
    where.require(!head.tied || (embedding.div_val == 1 && width == dim), "head",
                  "a head without `adaptive` reads one table as wide as the model, but the embedding's is not; set "
                  "head.adaptive or head.tied = false");
    return;
  }
  const bool alike = adaptive && head.adaptive->cutoffs == embedding.cutoffs &&
                     head.adaptive->div_val == embedding.div_val;
  where.require(alike || !head.tied, "head",
                "a tied adaptive softmax reads the embedding's tables: expected embedding.type = \"adaptive\" with the "
                "same cutoffs and div_val");
}

/// Models of images: memories around the attention, and a head that gives one class.
void check_vision(const ModelOptions& options, const base::Where& where) {
  const std::string& type = options.backbone.type;
  where.require(!where.given("embedding"), "embedding",
                "backbone.type = \"{}\" embeds the patches of an image; drop the key", type);
  where.require(options.memory.size() <= 1, "memory", "backbone.type = \"{}\" takes one memory, found {}", type,
                options.memory.size());
  for (const base::Node& memory : options.memory) {
    const std::string name = type_of(memory);
    if (name == memory::LearnableTokens::kType) {
      where.require(type == "vit" && options.kind == "model", "memory",
                    "'{}' is made for backbone.type = \"vit\" and kind = \"model\"; found \"{}\" and \"{}\"", name,
                    type, options.kind);
      for (const base::Node& task : memory.at("tasks").items()) {
        where.require(options.adapters || !flag(task, "own_adapters"), "adapters",
                      "they are those of task '{}' (own_adapters); found none", word(task, "name"));
      }
      continue;
    }
    where.require(Mechanisms::all().memories.find(name).wrap_image_attention != nullptr, "memory",
                  "'{}' is made for sequences of tokens; backbone.type = \"{}\" takes grc or attention_cache", name,
                  type);
    where.require(word(memory, "lifetime") != "sequence", "memory",
                  "images are no sequence; '{}' expected lifetime = \"model\"", name);
  }
  where.require(!options.adapters || type == "vit", "adapters",
                "they are made for backbone.type = \"vit\", found \"{}\"", type);
  if (options.kind == "model") {
    where.require(type_of(options.head) == "classification", "head",
                  "backbone.type = \"{}\" gives an image one class: expected type = "
                  "\"classification\", found \"{}\"",
                  type, type_of(options.head));
  }
}

}  // namespace

void BackboneOptions::validate(const base::Where& where) const {
  if (is_vision()) {
    std::visit([&](const auto& chosen) { chosen.validate(where); }, vision);
    return;
  }
  backbones::EncoderOptions::validate(where);
  where.require(!causal() || token_types == 0, "token_types", "goes with type = \"encoder\"");
  where.require(!causal() || !embed_norm, "embed_norm", "goes with type = \"encoder\"");
}

void ModelOptions::validate(const base::Where& where) const {
  where.require(!preset, "preset",
                "'{}' has not been carried out; options with a preset are read by models::read_model_options",
                preset.value_or(""));
  if (backbone.is_vision()) return check_vision(*this, where);
  const Mechanisms& mechanisms = Mechanisms::all();
  std::string sequence_memory, cache, wrapper;
  bool same_length = false;
  for (const base::Node& options : memory) {
    const std::string type = type_of(options);
    where.require(type != memory::LearnableTokens::kType, "memory",
                  "'{}' is made for models of images (backbone.type = \"vit\")", type);
    const memory::Entry& entry = mechanisms.memories.find(type);
    std::string& taken = entry.sequence ? sequence_memory : entry.layer_context ? cache : wrapper;
    where.require(taken.empty(), "memory",
                  "'{}' and '{}' attach to the same place and cannot stand in one model; keep one of them", taken,
                  type);
    taken = type;
    if (type == "segment_cache") same_length = flag(options, "same_length") || flag(options, "eval_same_length");
    const bool block = word(options, "layout") == "encoder";
    if (backbone.causal()) {
      where.require(!block, "memory",
                    "{} with layout = \"encoder\" needs backbone.type = \"encoder\"; expected layout = \"read_write\"",
                    type);
    } else {
      where.require(!entry.layer_context, "memory",
                    "'{}' keeps rows for causal layers; an encoder takes grc, and recurrent_tokens with "
                    "layout = \"encoder\"",
                    type);
      where.require(!entry.sequence || block, "memory",
                    "'{}' adds rows with the rules of causal layers; an encoder takes "
                    "recurrent_tokens with layout = \"encoder\"",
                    type);
    }
    if (entry.sequence) {
      const int64_t rows = segment_size + rows_of(options);
      where.require(
          backbone.position.type != "learned" || number(options, "num_mem_tokens") == 0 ||
              rows <= backbone.position.max_len,
          "memory",
          "more memory tokens than a segment has room for: num_mem_tokens = {} and segment_size = {} make {} rows, but "
          "backbone.position.max_len is {}",
          number(options, "num_mem_tokens"), segment_size, rows, backbone.position.max_len);
    }
    if (type == "grc" && backbone.causal()) {
      where.require(
          word(options, "variant") != "authors", "memory",
          "grc with variant = \"authors\" in a causal model leaks the future: every query reads an update made "
          "from the whole segment; use variant = \"paper\", whose causal form reads the cache as it was before "
          "the segment");
    }
  }
  where.require(!same_length || sequence_memory.empty(), "memory",
                "segment_cache with same_length gives memory rows no rule ('{}'); use same_length = false",
                sequence_memory);
  if (type_of(head) == "classification") {
    where.require(!backbone.causal(), "head",
                  "'classification' reads a row that has seen the whole segment; it needs backbone.type = \"encoder\"");
    where.require(kind == "model", "head", "a layer_stack has no head; expected kind = \"model\"");
    where.require(sequence_memory.empty() || word(head, "pool") != "mean", "head",
                  "pool = \"mean\" leaves out the [CLS] row of '{}'; expected \"cls\"", sequence_memory);
  }
  check_embedding(*this, where);
  check_places(*this);
}

}  // namespace mnemo::models
