#include "models/pair_presets.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace mnemo::models {
namespace {

// About 37,000 byte-pair tokens of both languages together (Vaswani et al. 2017, section 5.1).
constexpr int64_t kWmtTokens = 37'000, kIwsltTokens = 10'000;

// Post-norm, ReLU, one table for source, target and output.
constexpr const char* kLayers = R"(
[embedding]
init_std = {init_std}
shared = "{shared}"
[backbone]
type = "encoder_decoder"
dim = {dim}
num_heads = {heads}
ffn_dim = {ffn_dim}
dropout = {dropout}
init_std = {weight_std}
encoder = {{ num_layers = 6 }}
decoder = {{ num_layers = 6 }}
[head]
bias = false
)";

std::string layers(int64_t dim, int64_t heads, int64_t ffn_dim, double dropout, const char* shared) {
  using fmt::arg;
  // fairseq: embeddings N(0, 1/sqrt(D)), maps of Xavier's width (D to D: sqrt(2/(2D))).
  const double std = 1.0 / std::sqrt(static_cast<double>(dim));
  return fmt::format(kLayers, arg("dim", dim), arg("heads", heads), arg("ffn_dim", ffn_dim), arg("dropout", dropout),
                     arg("shared", shared), arg("init_std", std), arg("weight_std", std));
}

}  // namespace

void add_pair_presets(std::vector<Preset>& presets) {
  static const std::string base = layers(512, 8, 2048, 0.1, "all"), big = layers(1024, 16, 4096, 0.3, "all"),
                           iwslt = layers(512, 4, 1024, 0.3, "decoder");
  presets.push_back({"transformer_base", "the base Transformer for translation (Vaswani et al. 2017)", base, kWmtTokens,
                     65, "Vaswani et al. 2017, table 3; 37,000 is its approximate number of tokens"});
  presets.push_back({"transformer_big", "the big Transformer for translation (Vaswani et al. 2017)", big, kWmtTokens,
                     213, "Vaswani et al. 2017, table 3; 37,000 is its approximate number of tokens"});
  presets.push_back({"transformer_iwslt_de_en",
                     "the Transformer of fairseq for IWSLT14, 4 heads and narrow feed-forwards (Ott et al. 2019)",
                     iwslt, kIwsltTokens});
}

}  // namespace mnemo::models
