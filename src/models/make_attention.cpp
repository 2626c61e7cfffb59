#include "models/make_attention.h"

#include <algorithm>

#include "core/attention.h"
#include "models/options.h"
#include "models/registry.h"

namespace mnemo::models {
namespace {

/// Wraps `core` in the memories of the list that serve the layer and have a factory of this kind.
template <class Wrap>
std::unique_ptr<core::Attention> wrapped(std::unique_ptr<core::CoreAttention> core,
                                         const std::vector<base::TypedOptions>& memories,
                                         const core::AttentionBuild& build, const Wrap& wrap) {
  std::unique_ptr<core::Attention> made = std::move(core);
  std::string inner;
  for (const base::TypedOptions& memory : memories) {
    const memory::Entry& entry = Mechanisms::all().memories.find(memory.type());
    if (!serves(memory, build.layer_number)) continue;
    with_location(memory, [&] {
      if (!wrap.has(entry)) return;
      base::require(made->as_core() != nullptr,
                    "memory: '{}' needs the heads before their output projection, which '{}' around the attention of "
                    "layer {} does not return; put '{}' after it in the list",
                    memory.type(), inner, build.layer_number, inner);
      made = wrap(entry, memory,
                  std::unique_ptr<core::CoreAttention>(static_cast<core::CoreAttention*>(made.release())));
      inner = memory.type();
    });
  }
  return made;
}

}  // namespace

std::optional<core::RowLimit> row_limit(const base::TypedOptions& attention) {
  return Mechanisms::all().attentions.find(attention.type()).row_limit(attention);
}

std::optional<std::vector<int64_t>> own_layers(const base::TypedOptions& memory) {
  return Mechanisms::all().memories.find(memory.type()).layers(memory);
}

bool serves(const base::TypedOptions& memory, int64_t layer) {
  const auto chosen = own_layers(memory);
  return !chosen || std::find(chosen->begin(), chosen->end(), layer) != chosen->end();
}

void require_layers(const std::vector<base::TypedOptions>& memories, int64_t num_layers) {
  for (const base::TypedOptions& memory : memories) {
    const auto chosen = own_layers(memory);
    if (!chosen) continue;
    base::require(!chosen->empty(), "{}: expected at least one layer (all: leave the key out), found none",
                  memory.where("layers"));
    for (const int64_t number : *chosen) {
      base::require(std::count(chosen->begin(), chosen->end(), number) == 1,
                    "{}: expected each number once, found {} again", memory.where("layers"), number);
      base::require(number < num_layers, "{}: expected numbers of layers, 0 to {}, found {}", memory.where("layers"),
                    num_layers - 1, number);
    }
  }
}

std::vector<int64_t> layers_of(const base::TypedOptions& memory, int64_t num_layers) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    if (serves(memory, layer)) layers.push_back(layer);
  }
  return layers;
}

std::unique_ptr<core::Attention> make_attention(const base::TypedOptions& core,
                                                const std::vector<base::TypedOptions>& memories,
                                                const core::AttentionBuild& build) {
  struct {
    const core::AttentionBuild& build;
    bool has(const memory::Entry& entry) const { return entry.wrap_attention != nullptr; }
    std::unique_ptr<core::Attention> operator()(const memory::Entry& entry, const base::TypedOptions& memory,
                                                std::unique_ptr<core::CoreAttention> inner) const {
      return entry.wrap_attention(memory, build, std::move(inner));
    }
  } const wrap{build};
  auto made = with_location(core, [&] { return Mechanisms::all().attentions.find(core.type()).make(core, build); });
  return wrapped(std::move(made), memories, build, wrap);
}

std::unique_ptr<core::Attention> make_image_attention(const base::Node& core,
                                                      const std::vector<base::TypedOptions>& memories,
                                                      const core::AttentionBuild& build,
                                                      const core::ImageLayout& image) {
  struct {
    const core::AttentionBuild& build;
    const core::ImageLayout& image;
    bool has(const memory::Entry& entry) const { return entry.wrap_image_attention != nullptr; }
    std::unique_ptr<core::Attention> operator()(const memory::Entry& entry, const base::TypedOptions& memory,
                                                std::unique_ptr<core::CoreAttention> inner) const {
      return entry.wrap_image_attention(memory, build, image, std::move(inner));
    }
  } const wrap{build, image};
  const Mechanisms& mechanisms = Mechanisms::all();
  // Image backbones use cores that other models cannot select.
  const bool own = mechanisms.image_attentions.contains(type_of(core));
  const base::TypedOptions read = (own ? mechanisms.image_attention_types : mechanisms.attention_types).read(core);
  auto made = (own ? mechanisms.image_attentions : mechanisms.attentions).find(read.type()).make(read, build);
  return wrapped(std::move(made), memories, build, wrap);
}

}  // namespace mnemo::models
