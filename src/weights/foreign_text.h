#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/node.h"
#include "weights/foreign.h"

namespace mnemo::ops {
enum class Activation;  // ops/activation.h
}

namespace mnemo::weights {

/// A Hugging Face config.json of a text model, key by key.
class TextConfig {
 public:
  /// Throws InputError where a key that any of them may have is of another type: `architectures` (a list of names),
  /// `dtype`, `torch_dtype`, `problem_type` (names), `id2label` and `label2id` (objects).
  explicit TextConfig(const base::Node& config);

  bool has(std::string_view key) const;
  /// The value under that key, or `otherwise` if it is missing or null.
  base::Node get(std::string_view key, const base::Node& otherwise) const;
  int64_t integer(std::string_view key, int64_t otherwise) const;
  double number(std::string_view key, double otherwise) const;
  bool flag(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, std::string_view otherwise) const;
  /// An integer above 0. Throws InputError naming the key if it is missing or smaller.
  int64_t size(std::string_view key) const;
  int64_t size(std::string_view key, int64_t otherwise) const;
  /// A token of a vocabulary of `words`. Throws InputError naming the key for one outside it.
  int64_t token(std::string_view key, int64_t otherwise, int64_t words) const;
  /// Throws InputError if `alias`, another name that transformers has for `key`, is there with another value.
  void require_alias(std::string_view alias, std::string_view key, int64_t value) const;
  /// Throws InputError where `is_causal` is there: in transformers true changes the encoder of a model of pairs, false
  /// and null its decoder.
  void require_no_causal() const;
  /// Throws InputError where `is_causal` is there and not true, since null is false in transformers, and unless every
  /// layer has attention of that type, as `layer_types` would otherwise deny.
  void require_causal(int64_t layers, std::string_view layer_type = "full_attention") const;
  /// Throws InputError unless the key is missing, null or `expected`: no other value is supported.
  void only(std::string_view key, const base::Node& expected) const;
  /// The name of our activation for one of theirs: gelu (erf), gelu_new, gelu_fast, gelu_pytorch_tanh, relu, silu,
  /// swish. Throws InputError for any other.
  std::string activation(std::string_view key, std::string_view otherwise) const;
  /// The table `rotary` of our attention, for heads of `head_dim`: rope_theta and rope_scaling, or rope_parameters.
  ///   base, base_key        the default of rope_theta, and its key beside the others
  ///   partial, partial_key  the same of the share of a head that is turned; key empty: the architecture turns whole
  ///                         heads
  /// Throws InputError for a rope type that is not known, and for settings that do not name one.
  base::Node rotary(int64_t head_dim, double base, double partial, std::string_view base_key,
                    std::string_view partial_key) const;
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

 private:
  const base::Node& config_;
};

/// Whether `model_type` of a config.json is this.
bool has_model_type(const base::Node& config, std::string_view type);

/// Their name for our activation.
std::string_view their_activation(ops::Activation activation);

/// The attention's rotary positions; without any the usual ones, which config.json of a format with them says then.
base::Node rotary_of(const base::Node& attention);

/// The rest of a config.json for rotary positions: rope_theta, rope_scaling, or what partial models say.
void write_rotary(base::Node& config, const base::Node& rotary);

/// Sets head.tied of `options`: the output matrix is the file's own where it has one that is not a copy of the
/// embedding of a tied model. Throws InputError if there is none and the config does not tie it.
void fit_output(base::Node& options, const base::Node& config, const ForeignFormat& format, const TensorFile& file,
                std::string_view output, bool tied_by_default);

/// Throws InputError if one of `names` is in the file with other numbers than the embedding, of which it is a copy.
void require_copies(const base::Node& config, const ForeignFormat& format, const TensorFile& file,
                    std::initializer_list<std::string_view> names);

/// Whether both have the same type, shape and numbers.
bool is_copy(const at::Tensor& one, const at::Tensor& other);

/// The tensor of that name, with or without the format's prefix; null if there is none.
const at::Tensor* find_tensor(const ForeignFormat& format, const TensorFile& file, std::string_view name);

ForeignFormat huggingface_gpt2_format();
ForeignFormat huggingface_llama_format();
ForeignFormat huggingface_mistral_format();
ForeignFormat huggingface_qwen2_format();
ForeignFormat huggingface_gpt_neox_format();
ForeignFormat huggingface_bert_format();
ForeignFormat huggingface_roberta_format();
ForeignFormat huggingface_deberta_format();
ForeignFormat huggingface_t5_format();
/// T5 v1.1: gated feed-forward.
ForeignFormat huggingface_t5_gated_format();
ForeignFormat huggingface_marian_format();

}  // namespace mnemo::weights
