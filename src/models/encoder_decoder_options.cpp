#include "models/encoder_decoder_options.h"

#include "models/registry.h"

namespace mnemo::models {
namespace {

base::TypedOptions default_attention() {
  return {pair_attention_types(), base::Node::table({{"type", attention::kDefaultPairAttention}})};
}

}  // namespace

const base::PolyType& pair_attention_types() { return Mechanisms::all().attention_types; }
const base::PolyType& pair_memory_types() { return Mechanisms::all().memory_types; }

PairEncoderOptions::PairEncoderOptions() : attention(default_attention()) {}
PairDecoderOptions::PairDecoderOptions() : attention(default_attention()), cross_attention(default_attention()) {}

template <class Side>
backbones::LayerStackOptions EncoderDecoderOptions::stack(const Side& side) const {
  backbones::LayerStackOptions stack;
  stack.num_layers = side.num_layers;
  stack.dim = dim;
  stack.num_heads = side.num_heads.value_or(num_heads);
  stack.head_dim = head_dim;
  stack.ffn_dim = side.ffn_dim.value_or(ffn_dim);
  stack.activation = activation;
  stack.norm = norm;
  stack.norm_type = norm_type;
  stack.norm_eps = norm_eps;
  stack.ffn_gated = ffn_gated;
  stack.ffn_bias = ffn_bias;
  stack.final_norm = norm == Norm::pre;
  stack.position.type = position.type;
  stack.position.frequencies = position.frequencies;
  stack.position.first = position.first;
  stack.position.max_len = position.max_len;
  stack.position.skips_padding = true;
  stack.dropout = dropout;
  stack.activation_dropout = activation_dropout;
  stack.init_std = init_std;
  return stack;
}

template backbones::LayerStackOptions EncoderDecoderOptions::stack(const PairEncoderOptions&) const;
template backbones::LayerStackOptions EncoderDecoderOptions::stack(const PairDecoderOptions&) const;

void EncoderDecoderOptions::validate(const base::Where& where) const {
  for (const int64_t heads : {encoder.num_heads.value_or(num_heads), decoder.num_heads.value_or(num_heads)}) {
    where.require(head_dim.has_value() || dim % heads == 0, "num_heads",
                  "expected a divisor of dim = {} (or head_dim set), found {}", dim, heads);
  }
  where.require(position.type != backbones::PositionOptions::Type::sinusoidal ||
                    position.frequencies == PairPositionOptions::Frequencies::fairseq || dim % 2 == 0,
                "dim", "position.frequencies = \"paper\" or \"marian\" needs an even dim, found {}", dim);
}

}  // namespace mnemo::models
