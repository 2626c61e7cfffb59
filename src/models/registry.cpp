#include "models/registry.h"

namespace mnemo::models {

const Mechanisms& Mechanisms::all() {
  static const Mechanisms mechanisms = [] {
    Mechanisms all;
    attention::add_attentions(all.attention_types, all.attentions);
    memory::add_attentions(all.attention_types, all.attentions);
    memory::add_memories(all.memory_types, all.memories);
    return all;
  }();
  return mechanisms;
}

}  // namespace mnemo::models
