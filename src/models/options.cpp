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

using backbones::EncoderOptions;
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

/// The defaults of a type of backbone; those of a stack for a name that is no type.
std::variant<EncoderOptions, VisionOptions, EncoderDecoderOptions> defaults_of(std::string_view type) {
  if (type == EncoderDecoderOptions::kType) return EncoderDecoderOptions();
  for (const auto& [name, make] : vision_types()) {
    if (name == type) return make();
  }
  EncoderOptions stack;
  stack.attention = {BackboneOptions::attention_types(), base::Node::table({{"type", attention::kDefaultAttention}})};
  return stack;
}

// A kind of backbone answers for itself: a stack, an image backbone, a translation model.

bool causal_in(const EncoderOptions&, const std::string& type) {
  return backbones::stack_backbones().find(type).causal;
}
bool causal_in(const VisionOptions&, const std::string&) { return false; }
bool causal_in(const EncoderDecoderOptions&, const std::string&) { return true; }  // the decoder

double weight_std_in(const EncoderOptions& stack) { return stack.init_std; }
double weight_std_in(const EncoderDecoderOptions& pairs) { return pairs.init_std; }
double weight_std_in(const VisionOptions& vision) {
  return std::visit([](const auto& chosen) { return chosen.init_std; }, vision);
}

std::optional<int64_t> num_layers_in(const EncoderOptions& stack) { return stack.num_layers; }
std::optional<int64_t> num_layers_in(const EncoderDecoderOptions& pairs) {
  return pairs.encoder.num_layers + pairs.decoder.num_layers;
}
std::optional<int64_t> num_layers_in(const VisionOptions&) { return std::nullopt; }

std::optional<int64_t> dim_in(const EncoderOptions& stack) { return stack.dim; }
std::optional<int64_t> dim_in(const EncoderDecoderOptions& pairs) { return pairs.dim; }
std::optional<int64_t> dim_in(const VisionOptions&) { return std::nullopt; }

ModelKeys keys_in(const EncoderOptions&) { return {.embedding = true, .memory = true, .segment_size = true}; }
ModelKeys keys_in(const EncoderDecoderOptions&) { return {.embedding = true, .tokens = true}; }
ModelKeys keys_in(const VisionOptions& vision) {
  const bool tasks = std::visit([](const auto& chosen) { return chosen.kTakesTasks; }, vision);
  return {.memory = true, .adapters = true, .tasks = tasks};
}

using Memories = std::vector<base::TypedOptions>;
const Memories& memories_in(const EncoderOptions&, const Memories& own) { return own; }
const Memories& memories_in(const VisionOptions&, const Memories& own) { return own; }
const Memories& memories_in(const EncoderDecoderOptions& pairs, const Memories&) { return pairs.encoder.memory; }

void validate_in(const EncoderOptions& stack, bool causal, const base::Where& where) {
  stack.validate(where);
  where.require(!causal || stack.token_types == 0, "token_types", "requires type = \"encoder\"");
  where.require(!causal || !stack.embed_norm, "embed_norm", "requires type = \"encoder\"");
}
void validate_in(const VisionOptions& vision, bool, const base::Where& where) {
  std::visit([&](const auto& chosen) { chosen.validate(where); }, vision);
}
void validate_in(const EncoderDecoderOptions& pairs, bool, const base::Where& where) { pairs.validate(where); }

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
  for (const auto& type : vision_types()) {
    std::visit([&](const auto& chosen) { add(type.first, base::describe_options<std::decay_t<decltype(chosen)>>()); },
               type.second());
  }
  return all;
}

std::vector<int64_t> BackboneOptions::image_size() const {
  return std::visit([](const auto& chosen) { return chosen.image_size; }, vision());
}

int64_t BackboneOptions::image_channels() const {
  return std::visit([](const auto& chosen) { return chosen.in_channels; }, vision());
}

void BackboneOptions::select() {
  auto fresh = defaults_of(type);
  const auto* image = std::get_if<VisionOptions>(&options);
  const auto* other = std::get_if<VisionOptions>(&fresh);
  const bool same = fresh.index() == options.index() && (image == nullptr || image->index() == other->index());
  if (!same) options = std::move(fresh);
}

ModelKeys BackboneOptions::keys() const {
  return std::visit([](const auto& chosen) { return keys_in(chosen); }, options);
}
bool BackboneOptions::causal() const {
  return std::visit([&](const auto& chosen) { return causal_in(chosen, type); }, options);
}
std::optional<int64_t> BackboneOptions::num_layers() const {
  return std::visit([](const auto& chosen) { return num_layers_in(chosen); }, options);
}
std::optional<int64_t> BackboneOptions::dim() const {
  return std::visit([](const auto& chosen) { return dim_in(chosen); }, options);
}
int64_t BackboneOptions::num_heads() const {
  const auto* stack = std::get_if<EncoderOptions>(&options);
  return stack != nullptr ? stack->num_heads : 0;
}
double BackboneOptions::weight_std() const {
  return std::visit([](const auto& chosen) { return weight_std_in(chosen); }, options);
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

BackboneOptions::BackboneOptions() : BackboneOptions(backbones::stack_backbones().names().front()) {}
BackboneOptions::BackboneOptions(std::string_view name) : type(name), options(defaults_of(name)) {}

const std::vector<base::TypedOptions>& ModelOptions::memories() const {
  return std::visit([&](const auto& chosen) -> decltype(auto) { return memories_in(chosen, memory); },
                    backbone.options);
}

namespace {

void outline_in(const EncoderOptions& stack, const ModelOptions& options, core::ModelOutline& model) {
  const EmbeddingOptions& embedding = options.embedding;
  model.causal = options.backbone.causal();
  model.num_layers = stack.num_layers;
  model.segment_size = options.segment_size;
  model.vocab_size = embedding.vocab_size;
  if (stack.position.type == backbones::PositionOptions::Type::learned) model.position_rows = stack.position.places();
  model.embedding = {embedding.type == EmbeddingOptions::Type::adaptive, embedding.dim.value_or(stack.dim),
                     embedding.cutoffs, embedding.div_val};
}
void outline_in(const VisionOptions&, const ModelOptions&, core::ModelOutline&) {}
/// Its memories belong to the encoder.
void outline_in(const EncoderDecoderOptions& pairs, const ModelOptions& options, core::ModelOutline& model) {
  model.num_layers = pairs.encoder.num_layers;
  model.vocab_size = options.embedding.vocab_size;
  model.embedding.width = pairs.dim;
}

}  // namespace

core::ModelOutline outline_of(const ModelOptions& options) {
  const BackboneOptions& backbone = options.backbone;
  core::ModelOutline model{.whole = options.kind == ModelOptions::Kind::model,
                           .input = backbone.input(),
                           .causal = false,
                           .backbone = backbone.type,
                           .takes_tasks = backbone.keys().tasks,
                           .adapters = options.adapters.has_value(),
                           .dim = backbone.dim().value_or(0)};
  std::visit([&](const auto& chosen) { outline_in(chosen, options, model); }, backbone.options);
  const bool images = model.input == core::InputKind::images;
  for (const base::TypedOptions& memory : options.memories()) {
    const memory::Entry& entry = Mechanisms::all().memories.find(memory.type());
    model.memories.push_back(
        {memory.type(), entry.seam(images), layers_of(memory, model.num_layers), entry.rows_beside(memory)});
  }
  return model;
}

namespace {

/// An encoder reads a segment at once: each of its rows needs a position.
void check_places(const EncoderOptions& stack, const ModelOptions& options, const core::ModelOutline& model) {
  const auto limit = model.whole && !model.causal ? row_limit(stack.attention) : std::nullopt;
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

void check_embedding(const EncoderOptions& stack, const ModelOptions& options, const base::Where& where) {
  const EmbeddingOptions& embedding = options.embedding;
  const int64_t dim = stack.dim, width = embedding.dim.value_or(dim);
  const bool adaptive = embedding.type == EmbeddingOptions::Type::adaptive;
  where.require(adaptive || width == dim, "embedding", "expected embedding.dim = backbone.dim = {}, found {}", dim,
                width);
  where.require(adaptive || (embedding.cutoffs.empty() && embedding.div_val == 1), "embedding", "{}",
                "cutoffs and div_val belong to type = \"adaptive\", found type \"token\"");
  where.require(!adaptive || embedding.div_val == 1 || !embedding.cutoffs.empty(), "embedding",
                "div_val = {} divides the clusters' widths, but there are no cutoffs", embedding.div_val);
}

void check_in(const EncoderOptions& stack, const ModelOptions& options, const core::ModelOutline& model,
              const base::Where& where) {
  check_memories(options, model, where);
  check_embedding(stack, options, where);
}

void check_in(const EncoderDecoderOptions& pairs, const ModelOptions& options, const core::ModelOutline& model,
              const base::Where& where) {
  check_memories(options, model, where);
  using Shared = EmbeddingOptions::Shared;
  const EmbeddingOptions& embedding = options.embedding;
  where.require(embedding.type == EmbeddingOptions::Type::token, "embedding",
                "translation models do not support adaptive embeddings: expected type = \"token\", found \"adaptive\"");
  where.require(!embedding.dim || *embedding.dim == pairs.dim, "embedding",
                "expected embedding.dim = backbone.dim = {}, found {}", pairs.dim, embedding.dim.value_or(0));
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

void check_in(const VisionOptions& vision, const ModelOptions& options, const core::ModelOutline& model,
              const base::Where& where) {
  const std::string& type = options.backbone.type;
  where.require(!where.given("embedding"), "embedding",
                "backbone.type = \"{}\" embeds the patches of an image; drop the key", type);
  where.require(!options.adapters || model.takes_tasks, "adapters", "requires backbone.type = \"vit\", found \"{}\"",
                type);
  const bool attends = std::visit([](const auto& chosen) { return chosen.kHasAttention; }, vision);
  where.require(attends || options.memory.empty(), "memory",
                "backbone.type = \"{}\" has no attention, which a memory wraps; drop the key", type);
  check_memories(options, model, where);
}

}  // namespace

void BackboneOptions::validate(const base::Where& where) const {
  std::visit([&](const auto& chosen) { validate_in(chosen, causal(), where); }, options);
}

std::optional<int64_t> ModelOptions::num_classes() const {
  const auto& count = Mechanisms::all().heads.find(head.type()).num_classes;
  return count ? std::optional(count(head)) : std::nullopt;
}

bool ModelOptions::shares_embedding() const {
  const heads::Entry& entry = Mechanisms::all().heads.find(head.type());
  const bool sides = std::holds_alternative<EncoderDecoderOptions>(backbone.options);
  return (sides && embedding.shared != EmbeddingOptions::Shared::none) || (!entry.num_classes && entry.is_tied(head));
}

void ModelOptions::validate(const base::Where& where) const {
  where.require(!preset, "preset",
                "'{}' has not been expanded; options with a preset are read by models::read_model_options",
                preset.value_or(""));
  const core::ModelOutline model = outline_of(*this);
  std::visit([&](const auto& chosen) { check_in(chosen, *this, model, where); }, backbone.options);
  if (model.whole || head.type() != Mechanisms::all().heads.names().front())
    Mechanisms::all().heads.find(head.type()).check(head, model, where);
  if (const auto* stack = std::get_if<EncoderOptions>(&backbone.options)) check_places(*stack, *this, model);
}

}  // namespace mnemo::models
