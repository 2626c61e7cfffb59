#pragma once

#include <ATen/core/Tensor.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "models/model.h"

namespace mnemo::test {

/// Folders of published text models, and the names of the causal ones.
inline const std::string kTexts = MNEMO_SOURCE_DIR "/tests/golden/data/text_import/";
inline const std::vector<std::string> kCausal = {"gpt2",
                                                 "gpt2_published_names",
                                                 "llama",
                                                 "llama3",
                                                 "llama_head_dim",
                                                 "mistral",
                                                 "qwen2",
                                                 "gpt_neox",
                                                 "gpt_neox_published_names",
                                                 "gpt_neox_sequential"};

/// The logits of twelve tokens.
inline at::Tensor logits_of(const models::Model& model) {
  const at::NoGradGuard no_grad;
  core::Segment segment;
  segment.tokens = at::arange(12, at::kLong).remainder(core::token_input(model.input()).vocab_size).view({1, 12});
  return model.logits(model.forward(segment, model.initial_state(1)).hidden);
}

}  // namespace mnemo::test
