#include "models/make_attention.h"

#include <algorithm>

#include "models/options.h"
#include "models/registry.h"

namespace mnemo::models {
namespace {

/// Wraps `core` in the memories of the list that serve the layer and have a factory of this kind.
template <class Wrap>
std::unique_ptr<core::Attention> wrapped(std::unique_ptr<core::CoreAttention> core,
                                         const std::vector<base::Node>& memories, const core::AttentionBuild& build,
                                         const Wrap& wrap) {
  std::unique_ptr<core::Attention> made = std::move(core);
  std::string inner;
  for (const base::Node& memory : memories) {
    const memory::Entry& entry = Mechanisms::all().memories.find(type_of(memory));
    if (!serves(memory, build.layer_number)) continue;
    with_location(memory, [&] {
      if (!wrap.has(entry)) return;
      auto* heads = dynamic_cast<core::CoreAttention*>(made.get());
      base::require(heads != nullptr,
                    "memory: '{}' needs the heads before their output projection, which '{}' around the attention of "
                    "layer {} does not return; put '{}' after it in the list",
                    type_of(memory), inner, build.layer_number, inner);
      made.release();
      made = wrap(entry, memory, std::unique_ptr<core::CoreAttention>(heads));
      inner = type_of(memory);
    });
  }
  return made;
}

}  // namespace

std::optional<core::RowLimit> row_limit(const base::Node& attention) {
  return Mechanisms::all().attentions.find(type_of(attention)).row_limit(attention);
}

bool serves(const base::Node& memory, int64_t layer) {
  const base::Node* chosen = memory.find("layers");
  if (chosen == nullptr || chosen->is_null()) return true;
  return std::any_of(chosen->items().begin(), chosen->items().end(),
                     [&](const base::Node& number) { return number.as_int() == layer; });
}

void require_layers(const std::vector<base::Node>& memories, int64_t num_layers) {
  for (const base::Node& memory : memories) {
    const base::Node* chosen = memory.find("layers");
    if (chosen == nullptr || chosen->is_null()) continue;
    const base::Where where(&memory, memory.path());
    where.require(!chosen->items().empty(), "layers",
                  "expected at least one layer (all: leave the key out), found none");
    for (const base::Node& number : chosen->items()) {
      where.require(number.as_int() < num_layers, "layers", "expected numbers of layers, 0 to {}, found {}",
                    num_layers - 1, number.as_int());
    }
  }
}

std::vector<int64_t> layers_of(const base::Node& memory, int64_t num_layers) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    if (serves(memory, layer)) layers.push_back(layer);
  }
  return layers;
}

std::unique_ptr<core::Attention> make_attention(const base::Node& core, const std::vector<base::Node>& memories,
                                                const core::AttentionBuild& build) {
  struct {
    const core::AttentionBuild& build;
    bool has(const memory::Entry& entry) const { return entry.wrap_attention != nullptr; }
    std::unique_ptr<core::Attention> operator()(const memory::Entry& entry, const base::Node& memory,
                                                std::unique_ptr<core::CoreAttention> inner) const {
      return entry.wrap_attention(memory, build, std::move(inner));
    }
  } const wrap{build};
  auto made = with_location(core, [&] { return Mechanisms::all().attentions.find(type_of(core)).make(core, build); });
  return wrapped(std::move(made), memories, build, wrap);
}

std::unique_ptr<core::Attention> make_image_attention(const base::Node& core, const std::vector<base::Node>& memories,
                                                      const core::AttentionBuild& build,
                                                      const core::ImageLayout& image) {
  struct {
    const core::AttentionBuild& build;
    const core::ImageLayout& image;
    bool has(const memory::Entry& entry) const { return entry.wrap_image_attention != nullptr; }
    std::unique_ptr<core::Attention> operator()(const memory::Entry& entry, const base::Node& memory,
                                                std::unique_ptr<core::CoreAttention> inner) const {
      return entry.wrap_image_attention(memory, build, image, std::move(inner));
    }
  } const wrap{build, image};
  const Mechanisms& mechanisms = Mechanisms::all();
  const std::string type = type_of(core);
  // Image backbones use cores that other models cannot select.
  auto made = mechanisms.image_attentions.contains(type)
                  ? mechanisms.image_attentions.find(type).make(mechanisms.image_attention_types.complete(core), build)
                  : mechanisms.attentions.find(type).make(core, build);
  return wrapped(std::move(made), memories, build, wrap);
}

}  // namespace mnemo::models
