#include "models/encoder_decoder.h"

#include "models/registry.h"

namespace mnemo::models {
namespace {

base::Node default_attention() { return base::Node::table({{"type", attention::kDefaultPairAttention}}); }

}  // namespace

const base::PolyType& pair_attention_types() { return Mechanisms::all().attention_types; }
const base::PolyType& pair_memory_types() { return Mechanisms::all().memory_types; }

PairEncoderOptions::PairEncoderOptions() : attention(default_attention()) {}
PairDecoderOptions::PairDecoderOptions() : attention(default_attention()), cross_attention(default_attention()) {}

backbones::LayerStackOptions EncoderDecoderOptions::stack(int64_t num_layers) const {
  backbones::LayerStackOptions stack;
  stack.num_layers = num_layers;
  stack.dim = dim;
  stack.num_heads = num_heads;
  stack.head_dim = head_dim;
  stack.ffn_dim = ffn_dim;
  stack.activation = activation;
  stack.norm = norm;
  stack.norm_eps = norm_eps;
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

void EncoderDecoderOptions::validate(const base::Where& where) const {
  where.require(head_dim.has_value() || dim % num_heads == 0, "num_heads",
                "expected a divisor of dim = {} (or head_dim set), found {}", dim, num_heads);
  where.require(position.type != backbones::PositionOptions::Type::sinusoidal ||
                    position.frequencies == PairPositionOptions::Frequencies::fairseq || dim % 2 == 0,
                "dim", "position.frequencies = \"paper\" needs an even dim, found {}", dim);
}

}  // namespace mnemo::models
