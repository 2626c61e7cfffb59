#include "models/make_attention.h"

#include "models/options.h"
#include "models/registry.h"

namespace mnemo::models {

std::unique_ptr<core::Attention> make_attention(const base::Node& core, const std::vector<base::Node>& memories, const core::AttentionBuild& build) {
  const Mechanisms& mechanisms = Mechanisms::all();
  auto made = mechanisms.attentions.find(type_of(core))(core, build);
  for (const base::Node& memory : memories) {
    const auto& entry = mechanisms.memories.find(type_of(memory));
    if (entry.wrap_attention) return entry.wrap_attention(memory, build, std::move(made));
  }
  return made;
}

}  // namespace mnemo::models
