#include "models/registry.h"

namespace mnemo::models {

const Mechanisms& Mechanisms::all() {
  static const Mechanisms mechanisms = [] {
    Mechanisms all;
    attention::add_attentions(all.attention_types, all.attentions);
    memory::add_attentions(all.attention_types, all.attentions);
    attention::add_image_attentions(all.image_attention_types, all.image_attentions);
    memory::add_memories(all.memory_types, all.memories);
    heads::add_heads(all.head_types, all.heads);
    return all;
  }();
  return mechanisms;
}

}  // namespace mnemo::models
