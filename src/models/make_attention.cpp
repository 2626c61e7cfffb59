#include "models/make_attention.h"

#include "memory/learnable_tokens.h"
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

std::unique_ptr<core::Attention> make_image_attention(const base::Node& core, const std::vector<base::Node>& memories, const core::AttentionBuild& build,
                                                      const core::ImageLayout& image) {
  const Mechanisms& mechanisms = Mechanisms::all();
  const std::string type = type_of(core);
  // Backbones of images ask for cores that no other model can name.
  auto made = mechanisms.image_attentions.contains(type) ? mechanisms.image_attentions.find(type)(mechanisms.image_attention_types.complete(core), build)
                                                         : mechanisms.attentions.find(type)(core, build);
  for (const base::Node& memory : memories) {
    if (type_of(memory) == memory::LearnableTokens::kType) continue;  // rows of the backbone, not of one attention
    const auto& entry = mechanisms.memories.find(type_of(memory));
    if (entry.wrap_image_attention) return entry.wrap_image_attention(memory, build, image, std::move(made));
  }
  return made;
}

}  // namespace mnemo::models
