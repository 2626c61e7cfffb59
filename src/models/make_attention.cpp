#include "models/make_attention.h"

#include "memory/learnable_tokens.h"
#include "models/options.h"
#include "models/registry.h"

namespace mnemo::models {

void RowLimit::require(int64_t wanted, const std::string& what) const {
  base::Where(&table, table.path())
      .require(wanted <= rows, key, "has places for {} rows, expected {} at least: {}", rows, wanted, what);
}

std::optional<RowLimit> row_limit(const base::Node& attention) {
  const auto number = [](const base::Node& table, const char* key) { return table.at(key).as_int(); };
  const std::string type = type_of(attention);
  if (type == "linformer") return RowLimit{number(attention, "max_len"), attention, "max_len"};
  if (type != "abc") return std::nullopt;
  const base::Node& control = attention.at("control");
  const std::string control_type = type_of(control);
  if (control_type == "linformer") return RowLimit{number(control, "max_len"), control, "max_len"};
  const int64_t slots = number(attention, "num_slots");
  if (control_type == "compressive") return RowLimit{slots * number(control, "compression"), attention, "num_slots"};
  if (control_type == "identity") return RowLimit{slots, attention, "num_slots"};
  return std::nullopt;
}

std::unique_ptr<core::Attention> make_attention(const base::Node& core, const std::vector<base::Node>& memories,
                                                const core::AttentionBuild& build) {
  const Mechanisms& mechanisms = Mechanisms::all();
  auto made = with_location(core, [&] { return mechanisms.attentions.find(type_of(core))(core, build); });
  for (const base::Node& memory : memories) {
    const auto& entry = mechanisms.memories.find(type_of(memory));
    if (entry.wrap_attention)
      return with_location(memory, [&] { return entry.wrap_attention(memory, build, std::move(made)); });
  }
  return made;
}

std::unique_ptr<core::Attention> make_image_attention(const base::Node& core, const std::vector<base::Node>& memories,
                                                      const core::AttentionBuild& build,
                                                      const core::ImageLayout& image) {
  const Mechanisms& mechanisms = Mechanisms::all();
  const std::string type = type_of(core);
  // Backbones of images ask for cores that no other model can name.
  auto made = mechanisms.image_attentions.contains(type)
                  ? mechanisms.image_attentions.find(type)(mechanisms.image_attention_types.complete(core), build)
                  : mechanisms.attentions.find(type)(core, build);
  for (const base::Node& memory : memories) {
    if (type_of(memory) == memory::LearnableTokens::kType) continue;  // rows of the backbone, not of one attention
    const auto& entry = mechanisms.memories.find(type_of(memory));
    if (entry.wrap_image_attention) return entry.wrap_image_attention(memory, build, image, std::move(made));
  }
  return made;
}

}  // namespace mnemo::models
