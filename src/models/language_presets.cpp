#include "models/language_presets.h"

#include <fmt/format.h>

#include <string>

namespace mnemo::models {
namespace {

constexpr int64_t kWikiText103Words = 267'735, kEnwik8Bytes = 204;

// Dai et al. 2019 with the settings of their scripts. In evaluation they use segments of 64 (base), 128 (large) and 80
// (enwik8) tokens.
constexpr const char* kBaseLayers = R"(
segment_size = 150
[embedding]
type = "adaptive"
cutoffs = [20000, 40000, 200000]
[backbone]
num_layers = 16
dim = 410
num_heads = 10
head_dim = 41
ffn_dim = 2100
dropout = 0.1
activation_dropout = 0.1
output_dropout = 0.1
attention = {{ type = "relative", position_dropout = 0.1{} }}
[head]
adaptive = {{ cutoffs = [20000, 40000, 200000], tie_projections = [false, true, true, true] }}
{})";

constexpr const char* kTransformerXlLarge = R"(
segment_size = 384
[embedding]
type = "adaptive"
cutoffs = [20000, 40000, 200000]
div_val = 4
[backbone]
num_layers = 18
dim = 1024
num_heads = 16
head_dim = 64
ffn_dim = 4096
dropout = 0.2
activation_dropout = 0.2
output_dropout = 0.2
attention = { type = "relative", dropout = 0.2, position_dropout = 0.2, eval_clamp_len = 1000 }
[head]
adaptive = { cutoffs = [20000, 40000, 200000], div_val = 4, tie_projections = [false, true, true, true] }
[[memory]]
type = "segment_cache"
mem_len = 384
eval_mem_len = 1600
eval_same_length = true
)";

constexpr const char* kEnwik8Layers = R"(
segment_size = 512
[backbone]
num_layers = 12
dim = 512
num_heads = 8
head_dim = 64
ffn_dim = 2048
dropout = 0.1
activation_dropout = 0.1
output_dropout = 0.1
attention = {{ type = "relative", position_dropout = 0.1{} }}
{})";

constexpr const char* kSegmentCache = R"([[memory]]
type = "segment_cache"
mem_len = {}
eval_mem_len = {}
eval_same_length = true
)";

// Bulatov et al. 2022, table 2: memory 10, no cache.
constexpr const char* kRmtMemory = R"([[memory]]
type = "recurrent_tokens"
num_mem_tokens = 10
init = "repeated"
bptt_depth = 3
)";

// fairseq's transformer_lm_wiki103: pre-norm without a final norm, no biases in the softmax, no projection for the
// shortlist.
constexpr const char* kAdaptiveLayers = R"(
segment_size = 512
[embedding]
type = "adaptive"
cutoffs = [20000, 60000]
div_val = 4
[backbone]
num_layers = {}
dim = 1024
num_heads = 8
ffn_dim = 4096
norm = "pre"
position = {{ type = "sinusoidal" }}
dropout = 0.3
activation_dropout = 0.1
layer_drop = {}
attention = {{ type = "softmax", dropout = 0.1 }}
[head]
bias = false
adaptive = {{ cutoffs = [20000, 60000], div_val = 4, shortlist_projection = false, dropout = 0.2 }}
)";

// Radford et al. 2019 and Meta's card of Llama 3.2, as their config.json say.
constexpr const char* kGpt2 = R"(
segment_size = 1024
[embedding]
scale = false
[backbone]
num_layers = 12
dim = 768
num_heads = 12
ffn_dim = 3072
activation = "gelu_tanh"
norm = "pre"
final_norm = true
dropout = 0.1
position = { type = "learned", max_len = 1024 }
attention = { type = "softmax", dropout = 0.1 }
[head]
bias = false
)";

constexpr const char* kLlama321b = R"(
segment_size = 131072
[embedding]
scale = false
[backbone]
num_layers = 16
dim = 2048
num_heads = 32
ffn_dim = 8192
ffn_gated = true
ffn_bias = false
activation = "silu"
norm = "pre"
norm_type = "rms"
final_norm = true
[backbone.attention]
type = "softmax"
bias = false
num_kv_heads = 8
[backbone.attention.rotary]
base = 500000.0
scaling = { type = "llama3", factor = 32.0, low_freq_factor = 1.0, high_freq_factor = 4.0, original_max_len = 8192 }
[head]
bias = false
)";

}  // namespace

void add_language_presets(std::vector<Preset>& presets) {
  static const std::string transformer_xl_base = fmt::format(kBaseLayers, ", eval_clamp_len = 400",
                                                             fmt::format(kSegmentCache, 150, 640)),
                           rmt = fmt::format(kBaseLayers, "", kRmtMemory), enwik8 = fmt::format(kEnwik8Layers, "", ""),
                           transformer_xl_enwik8 = fmt::format(kEnwik8Layers, ", eval_clamp_len = 820",
                                                               fmt::format(kSegmentCache, 512, 2100)),
                           baevski_auli = fmt::format(kAdaptiveLayers, 16, 0.0),
                           kasai = fmt::format(kAdaptiveLayers, 32, 0.2);
  presets.push_back({"transformer_xl_wt103_base", "Transformer-XL base for WikiText-103, 16 layers (Dai et al. 2019)",
                     transformer_xl_base, kWikiText103Words, 151, "Dai et al. 2019, table 1"});
  presets.push_back({"transformer_xl_wt103_large", "Transformer-XL large for WikiText-103, 18 layers (Dai et al. 2019)",
                     kTransformerXlLarge, kWikiText103Words, 257,
                     "Dai et al. 2019, table 1; with the 18 layers of its released settings it is 285 M; 16 such "
                     "layers would be 257.9 M"});
  presets.push_back(
      {"enwik8_12_layers",
       "the 12-layer decoder for enwik8 without a memory, 512 wide (baseline of Dai et al. 2019, Bulatov et al. 2022)",
       enwik8, kEnwik8Bytes, 41, "Dai et al. 2019, table 2, of the same size with a cache"});
  presets.push_back({"transformer_xl_enwik8", "the same with Transformer-XL's cache (Dai et al. 2019)",
                     transformer_xl_enwik8, kEnwik8Bytes, 41, "Dai et al. 2019, table 2"});
  presets.push_back({"rmt_wt103",
                     "RMT for WikiText-103: the 16 layers of Transformer-XL base, memory 10 (Bulatov et al. 2022)", rmt,
                     kWikiText103Words});
  presets.push_back(
      {"baevski_auli", "adaptive input and softmax for WikiText-103, 16 layers (Baevski and Auli 2019; ABC's table 3a)",
       baevski_auli, kWikiText103Words, 247,
       "Baevski and Auli 2019; ABC's paper says about 242 M. Their vocabulary has 9 entries more, of 64 numbers each"});
  presets.push_back(
      {"kasai_32_layers", "the same with 32 layers and layer drop (Kasai et al. 2021b; ABC's table 3b)", kasai,
       kWikiText103Words, 484,
       "ABC's paper, about; twice its figure for 16 layers, though embedding and softmax (45 M) are there once"});
  presets.push_back({"gpt2", "GPT-2 of 12 layers (Radford et al. 2019), as published on Hugging Face", kGpt2, 50257,
                     124.439808, "counted from the published file; the paper says 117"});
  presets.push_back({"llama_3_2_1b", "Llama 3.2 1B (Meta 2024), as published on Hugging Face", kLlama321b, 128256,
                     1235.8144, "counted from the published file"});
}

}  // namespace mnemo::models
