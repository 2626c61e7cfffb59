// Mnemo's parts among layers of LibTorch: an attention with memory inside a torch::nn model, and a torch::nn layer
// inside a Mnemo backbone. Each model learns something that it can only learn if its gradients reach both sides.
//   compose
#include <mnemo/api/attention_layer.h>
#include <mnemo/backbones/decoder.h>
#include <mnemo/layers/register_parameters.h>
#include <mnemo/mnemo.h>
#include <torch/nn.h>
#include <torch/optim/adam.h>

#include <cstdio>
#include <functional>
#include <stdexcept>

namespace {

using namespace mnemo;
namespace nn = torch::nn;

constexpr int64_t kSymbols = 8, kBatch = 16, kLength = 6, kDim = 32;

/// A torch::nn model with one attention of Mnemo and its gated recurrent cache.
struct Reader : nn::Module {
  nn::Embedding embed = register_module("embed", nn::Embedding(kSymbols, kDim));
  AttentionLayer attention{{.attention = "softmax",
                            .memory = {base::Node::table({{"type", "grc"}, {"lifetime", "sequence"}})},
                            .dim = kDim,
                            .num_heads = 4}};
  nn::Linear answer = register_module("answer", nn::Linear(kDim, kSymbols));
  Reader() { layers::register_parameters(*this, attention.parameters(), "attention."); }

  /// Logits [B,T,V] of one segment, and the state for the next.
  std::pair<at::Tensor, core::State> forward(const at::Tensor& tokens, const core::State& state) {
    const at::Tensor rows = embed(tokens);
    core::AttentionResult seen = attention.forward(rows, state);
    return {answer(rows + seen.y), std::move(seen.state)};
  }
};

/// A layer of one's own in the place of an attention: a causal convolution over the rows of a segment.
class Convolution : public core::Attention {
 public:
  explicit Convolution(nn::Conv1d conv) : conv_(std::move(conv)) {}
  core::AttentionResult forward(const core::AttentionInput& input, const core::State&) const override {
    const at::Tensor padded = at::constant_pad_nd(input.x.transpose(1, 2), {2, 0});  // [B,D,2+T]
    return {nn::Conv1d(conv_)->forward(padded).transpose(1, 2), {}};
  }
  core::State initial_state(int64_t) const override { return {}; }

 private:
  nn::Conv1d conv_;
};

backbones::LayerStackOptions two_layers() {
  backbones::LayerStackOptions options;
  options.num_layers = 2;
  options.dim = kDim;
  options.num_heads = 4;
  options.ffn_dim = 64;
  return options;
}

/// A Mnemo backbone whose first layer is that convolution and whose second is an attention of Mnemo.
struct Stack : nn::Module {
  nn::Embedding embed = register_module("embed", nn::Embedding(kSymbols, kDim));
  nn::Conv1d conv = register_module("conv", nn::Conv1d(nn::Conv1dOptions(kDim, kDim, 3)));
  layers::ParameterSet parts{/*seed=*/1};
  backbones::Decoder backbone{two_layers(), parts.root(),
                              [this](const core::AttentionBuild& build) -> std::unique_ptr<core::Attention> {
                                if (build.layer_number == 0) return std::make_unique<Convolution>(conv);
                                return make_attention({.attention = "relative"}, build);
                              }};
  nn::Linear answer = register_module("answer", nn::Linear(kDim, kSymbols));
  Stack() { layers::register_parameters(*this, parts); }

  at::Tensor forward(const at::Tensor& tokens) {
    const core::AttendTable table({core::SpanKind::tokens, tokens.size(1)});
    const core::BackboneInput input{
        .rows = embed(tokens), .tables = {&table}, .context = {}, .first_row = {}, .mode = core::Mode::train};
    return answer(backbone.forward(input, backbone.initial_state(tokens.size(0))).hidden);
  }
};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Trains until the loss is a tenth of guessing's. Throws if it gets nowhere, or a parameter never has a gradient.
void train(const char* name, nn::Module& model, const std::function<at::Tensor()>& loss_of_a_batch) {
  torch::optim::Adam optimiser(model.parameters(), torch::optim::AdamOptions(3e-3));
  const double goal = 0.1 * std::log(static_cast<double>(kSymbols));
  double loss = 0;
  int64_t step = 0;
  for (; step < 2000; ++step) {
    optimiser.zero_grad();
    const at::Tensor value = loss_of_a_batch();
    value.backward();
    if (step == 0) {
      for (const auto& item : model.named_parameters())
        require(item.value().grad().defined(), std::string(name) + ": no gradient reaches " + item.key());
    }
    optimiser.step();
    loss = value.item<double>();
    if (loss < goal) break;
  }
  require(loss < goal, std::string(name) + ": the loss stays at " + std::to_string(loss));
  std::printf("%s: %zu parameters, learned\n", name, model.parameters().size());
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return nn::functional::cross_entropy(logits.reshape({-1, kSymbols}), targets.reshape({-1}));
}

}  // namespace

int main() try {
  torch::manual_seed(1);
  Reader reader;
  // Each symbol of the second segment asks for the symbol that filled the first one: it is in the cache alone.
  train("attention with memory in a torch::nn model", reader, [&] {
    const at::Tensor symbol = at::randint(kSymbols, {kBatch, 1}, at::kLong);
    const core::State after = reader.forward(symbol.expand({kBatch, kLength}), reader.attention.initial_state(kBatch))
                                  .second;
    const at::Tensor question = at::zeros({kBatch, kLength}, at::kLong);
    return cross_entropy(reader.forward(question, after).first, symbol.expand({kBatch, kLength}));
  });
  Stack stack;
  // The answer to a symbol is the one before it.
  train("torch::nn layer in a Mnemo backbone", stack, [&] {
    const at::Tensor tokens = at::randint(kSymbols, {kBatch, kLength}, at::kLong);
    return cross_entropy(stack.forward(tokens).narrow(1, 1, kLength - 1), tokens.narrow(1, 0, kLength - 1));
  });
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
