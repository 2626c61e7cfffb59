#include "models/registry.h"

#include "heads/classification.h"
#include "heads/language_model.h"
#include "memory/learnable_tokens.h"

namespace mnemo::models {

const Mechanisms& Mechanisms::all() {
  static const Mechanisms mechanisms = [] {
    Mechanisms all;
    attention::add_attentions(all.attention_types, all.attentions);
    memory::add_attentions(all.attention_types, all.attentions);
    attention::add_image_attentions(all.image_attention_types, all.image_attentions);
    memory::add_memories(all.memory_types, all.memories);
    all.memory_types.add<memory::LearnableTokensOptions>(
        memory::LearnableTokens::kType, "learnable memory tokens for ViT layers, with several tasks in one model");
    all.head_types.add<heads::LanguageModelOptions>("language_model", "softmax over the vocabulary for each token");
    all.head_types.add<heads::ClassificationOptions>("classification", "one class per segment of an encoder");
    return all;
  }();
  return mechanisms;
}

}  // namespace mnemo::models
