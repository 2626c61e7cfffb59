#pragma once

#include <string>
#include <string_view>

#include "base/node.h"
#include "models/options.h"
#include "weights/foreign_text.h"

/// The common part of the config.json files of BERT, RoBERTa and DeBERTa.
namespace mnemo::weights {

/// The first entry of a config.json's `architectures`; empty if there is none.
std::string architecture_of(const base::Node& config);

/// A family's default sizes, for keys that its config.json leaves out; here BERT's.
struct EncoderSizes {
  int64_t vocab_size = 30522, dim = 768, num_layers = 12, num_heads = 12, ffn_dim = 3072;
};

/// The [model] table of a post-norm encoder, but for positions, attention and head.
base::Node encoder_options(const TextConfig& keys, double norm_eps, const EncoderSizes& unsaid = {});
/// Our head for masked tokens.
base::Node masked_head(const std::string& activation, double norm_eps);
/// Its activation: hidden_act. Throws InputError for one that the head lacks.
std::string masked_activation(const TextConfig& keys);
/// Throws InputError if a model with that head has an output matrix, or a bias beside it, of its own: ours is the
/// embedding. `head` is the name of the head in the file.
void fit_masked_head(const base::Node& options, const base::Node& config, const ForeignFormat& format,
                     const TensorFile& file, std::string_view head);
/// Our head for classes, which reads the first token through a pooler with that function.
base::Node first_token_head(const base::Node& config, const std::string& pooler);

/// The names of a family's models in `architectures`: with a head for classes, with one for masked tokens, and with
/// neither.
struct EncoderNames {
  std::string_view classifier, masked, bare;
  /// The architecture of a model of ours.
  std::string_view of(const models::ModelOptions& options) const;
  bool contain(std::string_view architecture) const {
    return architecture == classifier || architecture == masked || architecture == bare;
  }
};

/// Our head without classes, for a model that has none yet: it reads the first token, through a pooler with that
/// function.
base::Node bare_head(const std::string& pooler);
/// config.json of such a model, but for what the families differ in. Throws InputError naming an option that they
/// cannot express.
base::Node encoder_config(const models::ModelOptions& options, const EncoderNames& names);

}  // namespace mnemo::weights
