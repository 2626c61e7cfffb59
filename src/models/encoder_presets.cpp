#include "models/encoder_presets.h"

#include <fmt/format.h>

#include <array>
#include <string>

namespace mnemo::models {
namespace {

constexpr int64_t kListOpsWords = 16;

// Tay et al. 2021 with the settings of their code. Their weights use Xavier initialisation, with a standard deviation
// of 0.036 to 0.044 at these widths.
std::string arena_encoder(int64_t layers, const char* attention) {
  return fmt::format(R"(
segment_size = 2000
[embedding]
scale = false
init_std = 1.0
[backbone]
type = "encoder"
num_layers = {}
dim = 512
num_heads = 8
ffn_dim = 1024
activation = "gelu_tanh"
norm = "pre"
norm_eps = 1e-6
final_norm = true
position = {{ type = "sinusoidal" }}
dropout = 0.1
activation_dropout = 0.1
init_std = 0.04
attention = {}
[head]
type = "classification"
num_classes = 10
hidden_dim = 1024
)",
                     layers, attention);
}

constexpr const char* kSoftmax = R"({ type = "softmax", bias = false, dropout = 0.1 })";
constexpr const char* kBigBird = R"({ type = "bigbird", bias = false, block_size = 64, num_random_blocks = 3 })";
constexpr const char* kReformer = R"({ type = "lsh", variant = "lra", bias = false })";

}  // namespace

void add_encoder_presets(std::vector<Preset>& presets) {
  static const std::array<std::string, 6> texts = {arena_encoder(4, kSoftmax),  arena_encoder(4, kBigBird),
                                                   arena_encoder(4, kReformer), arena_encoder(6, kSoftmax),
                                                   arena_encoder(6, kBigBird),  arena_encoder(6, kReformer)};
  constexpr std::string_view counted = "no figure is published; docs/encoder.md counts";
  const auto add = [&](std::string_view name, std::string_view about, size_t text) {
    presets.push_back({name, about, texts[text], kListOpsWords, 0, counted});
  };
  add("lra_transformer", "encoder of the Long Range Arena for Long ListOps, 4 layers as released (Tay et al. 2021)", 0);
  add("lra_bigbird", "the same with BigBird attention", 1);
  add("lra_reformer", "the same with Reformer attention as in the Long Range Arena", 2);
  add("lra_transformer_6_layers", "encoder of the Long Range Arena with 6 layers (Zhang et al. 2024, appendix)", 3);
  add("lra_bigbird_6_layers", "the same with BigBird attention", 4);
  add("lra_reformer_6_layers", "the same with Reformer attention as in the Long Range Arena", 5);
}

}  // namespace mnemo::models
