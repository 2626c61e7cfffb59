#include "models/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "backbones/registry.h"
#include "models/make_attention.h"
#include "models/presets.h"
#include "models/registry.h"

namespace mnemo::models {

namespace {

using backbones::VisionOptions;

/// The name of each alternative of VisionOptions, and a function that returns its default options.
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

ModelOptions::ModelOptions()
    : head(head_types(), base::Node::table({{"type", Mechanisms::all().heads.names().front()}})) {}

std::vector<std::string> BackboneOptions::type_names() {
  std::vector<std::string> names = backbones::stack_backbones().names();
  names.emplace_back(EncoderDecoderOptions::kType);
  for (auto& [name, make] : vision_types()) names.push_back(name);
  return names;
}

std::vector<base::OptionDoc> BackboneOptions::typed_docs() {
  std::vector<base::OptionDoc> all;
  const auto add = [&](std::string_view name, std::vector<base::OptionDoc> docs) {
    for (base::OptionDoc& doc : docs) {
      doc.group = fmt::format("with type = \"{}\"", name);
      all.push_back(std::move(doc));
    }
  };
  add(EncoderDecoderOptions::kType, base::describe_options<EncoderDecoderOptions>());
  for (const auto& [name, make] : vision_types()) {
    std::visit([&](const auto& chosen) { add(name, base::describe_options<std::decay_t<decltype(chosen)>>()); },
               make());
  }
  return all;
}

core::InputKind BackboneOptions::input() const {
  if (is_pairs()) return core::InputKind::pairs;
  return vision_index(type) >= 0 ? core::InputKind::images : core::InputKind::tokens;
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

bool BackboneOptions::takes_tasks() const {
  return input() == core::InputKind::images &&
         std::visit([](const auto& chosen) { return chosen.kTakesTasks; }, vision);
}

bool BackboneOptions::causal() const {
  if (is_pairs()) return true;  // the decoder
  return input() == core::InputKind::tokens && backbones::stack_backbones().find(type).causal;
}

double BackboneOptions::weight_std() const {
  switch (input()) {
    case core::InputKind::tokens:
      return stack.init_std;
    case core::InputKind::pairs:
      return pairs.init_std;
    case core::InputKind::images:
      break;
  }
  return std::visit([](const auto& chosen) { return chosen.init_std; }, vision);
}

std::string BackboneOptions::type_meaning() {
  std::string text;
  const auto& stacks = backbones::stack_backbones();
  for (const std::string& name : stacks.names()) text += fmt::format("{}: {}; ", name, stacks.find(name).meaning);
  std::string images;
  for (const auto& [name, make] : vision_types()) images += (images.empty() ? "" : ", ") + name;
  return fmt::format("{}{}: of translation models; {}: image backbones; these have their own keys", text,
                     EncoderDecoderOptions::kType, images);
}

BackboneOptions::BackboneOptions() : type(backbones::stack_backbones().names().front()) {
  stack.attention = {attention_types(), base::Node::table({{"type", attention::kDefaultAttention}})};
}

namespace {

core::ModelOutline outline_of(const ModelOptions& options) {
  const BackboneOptions& backbone = options.backbone;
  const bool images = backbone.input() == core::InputKind::images;
  core::ModelOutline model{.whole = options.kind == ModelOptions::Kind::model,
                           .input = backbone.input(),
                           .causal = !backbone.is_pairs() && backbone.causal(),
                           .backbone = backbone.type,
                           .adapters = options.adapters.has_value()};
  model.takes_tasks = backbone.takes_tasks();
  const EmbeddingOptions& embedding = options.embedding;
  if (model.input == core::InputKind::pairs) {  // its memories belong to the encoder
    model.num_layers = backbone.pairs.encoder.num_layers;
    model.dim = backbone.pairs.dim;
    model.vocab_size = embedding.vocab_size;
    model.embedding.width = model.dim;
  }
  if (model.input == core::InputKind::tokens) {
    model.num_layers = backbone.stack.num_layers;
    model.dim = backbone.stack.dim;
    model.segment_size = options.segment_size;
    model.vocab_size = embedding.vocab_size;
    if (backbone.stack.position.type == backbones::PositionOptions::Type::learned)
      model.position_rows = backbone.stack.position.places();
    model.embedding = {embedding.type == EmbeddingOptions::Type::adaptive, embedding.dim.value_or(backbone.stack.dim),
                       embedding.cutoffs, embedding.div_val};
  }
  for (const base::TypedOptions& memory : options.memories()) {
    const memory::Entry& entry = Mechanisms::all().memories.find(memory.type());
    model.memories.push_back(
        {memory.type(), entry.seam(images), layers_of(memory, model.num_layers), entry.rows_beside(memory)});
  }
  return model;
}

/// An encoder reads a segment at once: each of its rows needs a position.
void check_places(const ModelOptions& options, const core::ModelOutline& model) {
  const auto limit = model.whole && !model.causal ? row_limit(options.backbone.stack.attention) : std::nullopt;
  if (!limit) return;
  int64_t beside = 0;
  for (const core::ModelOutline::Memory& memory : model.memories) beside += memory.rows_beside;
  if (beside == 0 && Mechanisms::all().heads.find(options.head.type()).reads_first_row(options.head)) beside = 1;
  limit->require(
      options.segment_size + beside,
      fmt::format("a segment has segment_size = {} tokens and {} rows beside them", options.segment_size, beside));
}

/// Memories that wrap the attention of an image backbone.
std::vector<std::string> image_memories() {
  std::vector<std::string> names;
  const auto& memories = Mechanisms::all().memories;
  for (const std::string& name : memories.names()) {
    if (memories.find(name).wrap_image_attention) names.push_back(name);
  }
  std::sort(names.rbegin(), names.rend());
  return names;
}

/// Rules for all memories of a seam; memories check the rest themselves.
void check_memories(const ModelOptions& options, const core::ModelOutline& model, const base::Where& where) {
  const bool images = model.input == core::InputKind::images;
  const std::vector<base::TypedOptions>& memories = options.memories();
  require_layers(memories, images ? INT64_MAX : model.num_layers);
  for (size_t i = 0; i < memories.size(); ++i) {
    const memory::Entry& entry = Mechanisms::all().memories.find(memories[i].type());
    const core::ModelOutline::Memory& memory = model.memories[i];
    if (entry.check) entry.check(memories[i], model, where);
    if (memory.seam == core::Seam::tasks) continue;
    if (images) {
      where.require(entry.wrap_image_attention != nullptr, "memory",
                    "'{}' requires sequences of tokens; backbone.type = \"{}\" supports {}", memory.type,
                    model.backbone, fmt::join(image_memories(), " or "));
      continue;
    }
    where.require(memory.seam != core::Seam::sequence || !own_layers(memories[i]), "memory",
                  "the rows of '{}' pass through every layer; drop its key layers", memory.type);
    for (size_t j = 0; j < i; ++j) {
      const core::ModelOutline::Memory& other = model.memories[j];
      if (other.seam != memory.seam) continue;
      if (memory.seam == core::Seam::attention && other.type != memory.type) continue;
      // At most one context per layer: its rows come right before the segment's, and attention counts distances by
      // position.
      std::vector<int64_t> both;
      std::set_intersection(memory.layers.begin(), memory.layers.end(), other.layers.begin(), other.layers.end(),
                            std::back_inserter(both));
      where.require(both.empty(), "memory",
                    "'{}' and '{}' attach to the same place and cannot be combined; keep one of them{}", other.type,
                    memory.type, memory.seam == core::Seam::sequence ? "" : ", or give them different `layers`");
    }
  }
}

void check_embedding(const ModelOptions& options, const base::Where& where) {
  const EmbeddingOptions& embedding = options.embedding;
  const int64_t dim = options.backbone.stack.dim, width = embedding.dim.value_or(dim);
  const bool adaptive = embedding.type == EmbeddingOptions::Type::adaptive;
  where.require(adaptive || width == dim, "embedding", "expected embedding.dim = backbone.dim = {}, found {}", dim,
                width);
  where.require(adaptive || (embedding.cutoffs.empty() && embedding.div_val == 1), "embedding", "{}",
                "cutoffs and div_val belong to type = \"adaptive\", found type \"token\"");
  where.require(!adaptive || embedding.div_val == 1 || !embedding.cutoffs.empty(), "embedding",
                "div_val = {} divides the clusters' widths, but there are no cutoffs", embedding.div_val);
}

/// Checks that apply only to translation models.
void check_pairs(const ModelOptions& options, const base::Where& where) {
  using Shared = EmbeddingOptions::Shared;
  const EmbeddingOptions& embedding = options.embedding;
  where.require(embedding.type == EmbeddingOptions::Type::token, "embedding",
                "translation models do not support adaptive embeddings: expected type = \"token\", found \"adaptive\"");
  where.require(!embedding.dim || *embedding.dim == options.backbone.pairs.dim, "embedding",
                "expected embedding.dim = backbone.dim = {}, found {}", options.backbone.pairs.dim,
                embedding.dim.value_or(0));
  where.require(embedding.shared != Shared::all ||
                    embedding.source_vocab_size.value_or(embedding.vocab_size) == embedding.vocab_size,
                "embedding",
                "shared = \"all\" needs one vocabulary: expected source_vocab_size = vocab_size = {}, "
                "found {}",
                embedding.vocab_size, embedding.source_vocab_size.value_or(0));
  const bool tied = Mechanisms::all().heads.find(options.head.type()).is_tied(options.head);
  where.require(embedding.shared != Shared::none || !tied, "embedding",
                "shared = \"none\" gives the output a table of its own: expected head.tied = false");
  const SpecialTokens& tokens = options.tokens;
  for (const auto& [name, id] : {std::pair("pad", tokens.pad), std::pair("eos", tokens.eos),
                                 std::pair("unk", tokens.unk), std::pair("start", tokens.first())})
    where.require(embedding.vocab_size == 0 || id < embedding.vocab_size, "tokens",
                  "expected {} below embedding.vocab_size = {}, found {}", name, embedding.vocab_size, id);
}

/// Checks that apply only to image models.
void check_vision(const ModelOptions& options, const core::ModelOutline& model, const base::Where& where) {
  const std::string& type = options.backbone.type;
  where.require(!where.given("embedding"), "embedding",
                "backbone.type = \"{}\" embeds the patches of an image; drop the key", type);
  where.require(!options.adapters || model.takes_tasks, "adapters", "requires backbone.type = \"vit\", found \"{}\"",
                type);
}

}  // namespace

void BackboneOptions::validate(const base::Where& where) const {
  if (is_pairs()) return pairs.validate(where);
  if (input() == core::InputKind::images) {
    std::visit([&](const auto& chosen) { chosen.validate(where); }, vision);
    return;
  }
  stack.validate(where);
  where.require(!causal() || stack.token_types == 0, "token_types", "requires type = \"encoder\"");
  where.require(!causal() || !stack.embed_norm, "embed_norm", "requires type = \"encoder\"");
}

std::optional<int64_t> ModelOptions::num_classes() const {
  const auto& count = Mechanisms::all().heads.find(head.type()).num_classes;
  return count ? std::optional(count(head)) : std::nullopt;
}

void ModelOptions::validate(const base::Where& where) const {
  where.require(!preset, "preset",
                "'{}' has not been expanded; options with a preset are read by models::read_model_options",
                preset.value_or(""));
  const core::ModelOutline model = outline_of(*this);
  const bool images = model.input == core::InputKind::images, pairs = model.input == core::InputKind::pairs;
  if (images) check_vision(*this, model, where);
  check_memories(*this, model, where);
  if (!images && !pairs) check_embedding(*this, where);
  if (pairs) check_pairs(*this, where);
  if (model.whole || head.type() != Mechanisms::all().heads.names().front())
    Mechanisms::all().heads.find(head.type()).check(head, model, where);
  if (!images && !pairs) check_places(*this, model);
}

}  // namespace mnemo::models
