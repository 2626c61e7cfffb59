#include "base/synonyms.h"

#include <algorithm>

#include "base/option_rules.h"

namespace mnemo::base {
namespace {

constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
    {"attention", "model.backbone.attention"},
    {"attention_dropout", "model.backbone.dropout"},
    {"attn_implementation", "model.backbone.attention"},
    {"backbone", "model.backbone"},
    {"batch", "train.batch_size"},
    {"batch_size", "train.batch_size"},
    {"beta1", "train.optimiser.betas"},
    {"beta2", "train.optimiser.betas"},
    {"betas", "train.optimiser.betas"},
    {"bf16", "train.precision"},
    {"block_size", "model.segment_size"},
    {"bs", "train.batch_size"},
    {"checkpoint_every", "train.save_every"},
    {"checkpoints", "train.save_every"},
    {"context_length", "model.segment_size"},
    {"ctx_len", "model.segment_size"},
    {"d_ff", "model.backbone.ffn_dim"},
    {"d_model", "model.backbone.dim"},
    {"data_dir", "data.train"},
    {"dataset", "data.train"},
    {"device", "--device"},
    {"dim", "model.backbone.dim"},
    {"dim_feedforward", "model.backbone.ffn_dim"},
    {"dropout", "model.backbone.dropout"},
    {"dropout_rate", "model.backbone.dropout"},
    {"embedding", "model.embedding"},
    {"epochs", "train.steps"},
    {"eval_interval", "train.eval_every"},
    {"eval_steps", "train.eval_every"},
    {"ffn_dim", "model.backbone.ffn_dim"},
    {"file", "data.train"},
    {"fp16", "train.precision"},
    {"grad_accum", "train.accumulate"},
    {"grad_clip", "train.clip_norm"},
    {"gradient_accumulation", "train.accumulate"},
    {"gradient_accumulation_steps", "train.accumulate"},
    {"gradient_checkpointing", "train.recompute"},
    {"gradient_clipping", "train.clip_norm"},
    {"head", "model.head"},
    {"hidden_dim", "model.backbone.dim"},
    {"hidden_dropout_prob", "model.backbone.dropout"},
    {"hidden_size", "model.backbone.dim"},
    {"intermediate_size", "model.backbone.ffn_dim"},
    {"iterations", "train.steps"},
    {"label_smoothing_factor", "data.label_smoothing"},
    {"learning_rate", "train.optimiser.lr"},
    {"level", "data.unit"},
    {"log_interval", "train.log_every"},
    {"logging_steps", "train.log_every"},
    {"lora_alpha", "train.lora.alpha"},
    {"lora_r", "train.lora.rank"},
    {"lr", "train.optimiser.lr"},
    {"lr_scheduler", "train.schedule"},
    {"lr_scheduler_type", "train.schedule"},
    {"max_epochs", "train.steps"},
    {"max_grad_norm", "train.clip_norm"},
    {"max_iters", "train.steps"},
    {"max_new_tokens", "generate.tokens"},
    {"max_seq_len", "model.segment_size"},
    {"max_seq_length", "model.segment_size"},
    {"max_steps", "train.steps"},
    {"memory", "model.memory"},
    {"mixed_precision", "train.precision"},
    {"model_name_or_path", "model.from"},
    {"momentum", "train.optimiser.momentum"},
    {"n_embd", "model.backbone.dim"},
    {"n_head", "model.backbone.num_heads"},
    {"n_heads", "model.backbone.num_heads"},
    {"n_layer", "model.backbone.num_layers"},
    {"n_layers", "model.backbone.num_layers"},
    {"num_attention_heads", "model.backbone.num_heads"},
    {"num_epochs", "train.steps"},
    {"num_heads", "model.backbone.num_heads"},
    {"num_hidden_layers", "model.backbone.num_layers"},
    {"num_layers", "model.backbone.num_layers"},
    {"num_steps", "train.steps"},
    {"num_train_epochs", "train.steps"},
    {"optimiser", "train.optimiser"},
    {"optimizer", "train.optimiser"},
    {"out", "--out"},
    {"output_dir", "--out"},
    {"path", "data.train"},
    {"per_device_eval_batch_size", "train.eval_batch_size"},
    {"per_device_train_batch_size", "train.batch_size"},
    {"precision", "train.precision"},
    {"preset", "model.preset"},
    {"pretrained_model_name_or_path", "model.from"},
    {"processes", "--processes"},
    {"rope", "model.backbone.attention.rotary"},
    {"rotary", "model.backbone.attention.rotary"},
    {"save_interval", "train.save_every"},
    {"save_steps", "train.save_every"},
    {"schedule", "train.schedule"},
    {"scheduler", "train.schedule"},
    {"seed", "train.seed"},
    {"segment_size", "model.segment_size"},
    {"seq_len", "model.segment_size"},
    {"sequence_length", "model.segment_size"},
    {"steps", "train.steps"},
    {"temperature", "generate.sampling.temperature"},
    {"threads", "train.threads"},
    {"tie_word_embeddings", "model.head.tied"},
    {"tokenizer", "data.tokenizer"},
    {"tokenizer_name", "data.tokenizer"},
    {"top_k", "generate.sampling.top_k"},
    {"top_p", "generate.sampling.top_p"},
    {"train_file", "data.train"},
    {"unit", "data.unit"},
    {"val", "data.valid"},
    {"validation", "data.valid"},
    {"validation_file", "data.valid"},
    {"vocab_size", "model.embedding.vocab_size"},
    {"warmup", "train.schedule.warmup_steps"},
    {"warmup_steps", "train.schedule.warmup_steps"},
    {"wd", "train.optimiser.weight_decay"},
    {"weight_decay", "train.optimiser.weight_decay"},
};

/// The letters and digits of a text, in lower case.
std::string letters_of(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') out += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) out += c;
  }
  return out;
}

bool is_letter(char c) { return letters_of(std::string_view(&c, 1)) != ""; }

/// Whether the letters from the beginning of some word of a text on are those.
bool begins_word(std::string_view text, const std::string& letters) {
  for (size_t i = 0; i < text.size(); ++i) {
    if ((i == 0 || !is_letter(text[i - 1])) && is_letter(text[i]) && letters_of(text.substr(i)).starts_with(letters))
      return true;
  }
  return false;
}

}  // namespace

std::span<const std::pair<std::string_view, std::string_view>> key_synonyms() { return kSynonyms; }

std::optional<std::string> key_called(std::string_view name) {
  std::string plain(name);
  std::replace(plain.begin(), plain.end(), '-', '_');
  for (const auto& [synonym, key] : kSynonyms) {
    if (synonym == plain) return std::string(key);
  }
  return std::nullopt;
}

std::optional<size_t> described_as(std::string_view name, const std::vector<std::string>& descriptions) {
  constexpr size_t kShortest = 3, kLongest = 64;
  const std::string plain = letters_of(name.substr(0, kLongest));
  if (plain.size() < kShortest) return std::nullopt;
  std::optional<size_t> found;
  for (size_t i = 0; i < descriptions.size(); ++i) {
    if (!begins_word(descriptions[i], plain)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

std::optional<std::string> type_described_as(std::string_view name, const PolyType& types) {
  const std::vector<std::string> names = types.types();
  std::vector<std::string> meanings;
  for (const std::string& type : names) meanings.push_back(types.meaning(type));
  const std::optional<size_t> found = described_as(name, meanings);
  return found ? std::optional(names[*found]) : std::nullopt;
}

}  // namespace mnemo::base
