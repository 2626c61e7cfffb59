#include "bundle/generation_file.h"

#include "base/file_io.h"
#include "bundle/published_config.h"
#include "models/presets.h"

namespace mnemo::bundle {
namespace {

/// Keys of an older config.json that are those of transformers' GenerationConfig today.
constexpr const char* kGenerationKeys[] = {"bad_words_ids",
                                           "begin_suppress_tokens",
                                           "bos_token_id",
                                           "constraints",
                                           "decoder_start_token_id",
                                           "diversity_penalty",
                                           "do_sample",
                                           "early_stopping",
                                           "encoder_no_repeat_ngram_size",
                                           "encoder_repetition_penalty",
                                           "eos_token_id",
                                           "exponential_decay_length_penalty",
                                           "force_words_ids",
                                           "forced_bos_token_id",
                                           "forced_decoder_ids",
                                           "forced_eos_token_id",
                                           "guidance_scale",
                                           "length_penalty",
                                           "max_length",
                                           "max_new_tokens",
                                           "min_length",
                                           "min_new_tokens",
                                           "no_repeat_ngram_size",
                                           "num_beam_groups",
                                           "num_beams",
                                           "pad_token_id",
                                           "penalty_alpha",
                                           "renormalize_logits",
                                           "repetition_penalty",
                                           "sequence_bias",
                                           "stop_strings",
                                           "suppress_tokens",
                                           "temperature",
                                           "top_k",
                                           "top_p",
                                           "watermarking_config"};

}  // namespace

std::map<std::string, std::string> generation_file_of(const std::string& folder) {
  const std::string path = base::join_path(folder, kGenerationConfig);
  if (base::path_exists(path)) return {{kGenerationConfig, base::read_file(path, uint64_t{16} << 20)}};
  const PublishedConfig found = find_published(folder);
  if (found.format == nullptr || !found.format->variants) return {};
  const models::BackboneOptions backbone = models::read_model_options(found.format->options(found.config)).backbone;
  if (!backbone.causal()) return {};  // an encoder writes nothing
  base::Node settings = base::Node::table();
  for (const char* key : kGenerationKeys) {
    if (const base::Node* value = found.config.find(key)) settings.set(key, *value);
  }
  if (settings.size() == 0) return {};
  return {{kGenerationConfig, base::to_json(settings) + "\n"}};
}

}  // namespace mnemo::bundle
