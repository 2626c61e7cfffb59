#include <torch/types.h>

#include <torch/csrc/autograd/autograd.h>

#include <deque>

#include "base/error.h"
#include "core/backbone.h"
#include "tests/verify/vision.h"

namespace mnemo::verify {
namespace {

/// Our backbone options for a stack of blocks: a model with one stage whose patches are single pixels, without what
/// comes before and after the stage.
base::Node stack_config(const GoldenFile& file) {
  base::Node config = file.config();
  base::Node& backbone = *config.find("backbone");
  const auto rename = [&](const char* from, const char* to, bool as_list) {
    const base::Node* given = backbone.find(from);
    if (given == nullptr) return;
    base::Node value = *given;
    backbone.erase(from);
    backbone.set(to, as_list ? base::Node::array({value}) : value);
  };
  const std::string type = backbone.at("type").as_string();
  rename("grid", "image_size", false);
  backbone.set("patch_size", 1);
  if (type != "vit") {
    rename("num_layers", "depths", true);
    rename("num_heads", "num_heads", true);
  }
  if (type == "swin") {
    // Our Swin always shifts by half a window.
    const base::Node shift = backbone.at("shift_size");
    const base::Node& window = backbone.at("window_size");
    for (size_t axis = 0; axis < 2; ++axis) {
      base::require(shift.is_array() && shift.size() == 2 && window.is_array() && window.size() == 2 &&
                        shift.items()[axis].as_int() == window.items()[axis].as_int() / 2,
                    "{}: expected shift_size to be half of window_size", file.path());
    }
    backbone.erase("shift_size");
  }
  if (type == "pvt") {
    rename("dim", "dims", true);
    rename("mlp_ratio", "mlp_ratios", true);
    rename("sr_ratio", "sr_ratios", true);
  }
  base::Node memories = base::Node::array();
  for (base::Node memory : config.at("memory").items()) {
    // qkv_bias applies to both branches.
    if (const base::Node* bias = backbone.find("qkv_bias")) memory.set("qkv_bias", *bias);
    memories.push_back(memory);
  }
  config.set("memory", memories);
  return config;
}

/// The golden files' names of the parameters of blocks, which are under `layers` ("backbone.layers.#"). The rules are
/// string views into `kept`.
weights::ForeignFormat block_names(const std::string& layers, bool joint, std::deque<std::string>& kept) {
  const auto keep = [&](std::string name) -> std::string_view { return kept.emplace_back(std::move(name)); };
  weights::ForeignFormat format;
  format.name = "golden blocks";
  const auto rule = [&](const char* ours, const char* theirs, int64_t part = 0, int64_t parts = 1) {
    format.tensors.push_back({keep(layers + "." + ours), keep(std::string("blocks.#.") + theirs), part, parts});
  };
  rule("norm1.*", "norm1.*");
  rule("norm2.*", "norm2.*");
  rule("ffn.0.*", "mlp.fc1.*");
  rule("ffn.1.*", "mlp.fc2.*");
  if (joint) {
    rule("attn.q.*", "attn.qkv.*", 0, 3);
    rule("attn.k.*", "attn.qkv.*", 1, 3);
    rule("attn.v.*", "attn.qkv.*", 2, 3);
  } else {
    rule("attn.q.*", "attn.q.*");
    rule("attn.k.*", "attn.kv.*", 0, 2);
    rule("attn.v.*", "attn.kv.*", 1, 2);
  }
  rule("attn.o.*", "attn.proj.*");
  rule("attn.sr.*", "attn.sr.*");
  rule("attn.sr_norm.*", "attn.norm.*");
  rule("attn.relative_position_bias_table", "attn.relative_position_bias_table");
  rule("attn.grc.*", "grc.*");
  return format;
}

/// A model of the file's blocks, and the mapping of names to those in the file.
struct Stack {
  explicit Stack(const GoldenFile& file)
      : model(base::read_options<models::ModelOptions>(stack_config(file)), 0, at::kDouble, file.budget()) {
    const std::string& first = model.backbone().layer_name(0);
    const std::string layers = first.substr(0, first.rfind(".0.attn"));
    format = block_names(layers + ".#", !file.contains("param.blocks.0.attn.kv.weight"), names);
    model.parameters().to(at::kDouble, file.device());
    weights::load_theirs(format, file.parameters(), model.parameters().named(), file.path());
  }
  /// The file's name of a state field, "blocks.L.grc.cache"; empty for other fields.
  std::string buffer_name(const std::string& path) const {
    for (int64_t layer = 0; layer < model.backbone().num_layers(); ++layer) {
      const std::string mine = model.backbone().layer_name(layer) + ".grc.";
      if (const size_t at = path.find(mine); at != std::string::npos)
        return fmt::format("blocks.{}.grc.{}", layer, path.substr(at + mine.size()));
    }
    return "";
  }

  models::Model model;
  std::deque<std::string> names;
  weights::ForeignFormat format;
};

}  // namespace

GoldenReport verify_vision_stack(const GoldenFile& file) {
  const Stack stack(file);
  GoldenComparison comparison(file);
  const base::Node modes = file.metadata("steps");
  const int64_t steps = file.num_steps();
  base::require(modes.is_array() && static_cast<int64_t>(modes.size()) == steps,
                "{}: expected the mode of each of its {} steps in 'steps'", file.path(), steps);
  const at::Tensor first = file.step(0, "input.x");
  base::require(first.defined() && first.dim() >= 3, "{}: expected step.0.input.x", file.path());
  core::State state = stack.model.initial_state(first.size(0))
                          .map([&](const core::Field& field, const at::Tensor& tensor) {
                            const at::Tensor given = file.find("buffer." + stack.buffer_name(field.path));
                            return given.defined() ? given.clone() : tensor;
                          });
  std::vector<at::Tensor> inputs;
  at::Tensor scalar = at::zeros({}, first.options());
  for (int64_t k = 0; k < steps; ++k) {
    const at::Tensor given = file.step(k, "input.x");
    base::require(given.defined() && given.dim() == first.dim(), "{}: expected step.{}.input.x", file.path(), k);
    inputs.push_back(given.clone().set_requires_grad(true));
    const at::Tensor& x = inputs.back();
    const auto compare = [&](const std::string& name, const at::Tensor& rows) {
      const at::Tensor expected = file.step(k, "output." + name);
      if (expected.defined())
        comparison.compare("outputs", fmt::format("step.{}.output.{}", k, name), expected, shaped_like(expected, rows));
    };
    core::Segment segment;
    segment.rows = x.dim() == 4 ? x.flatten(1, 2) : x;
    segment.mode = modes.items()[static_cast<size_t>(k)].as_string() == "train" ? core::Mode::train
                                                                                : core::Mode::evaluate;
    const core::StepResult step = stack.model.forward(
        segment, state, {}, [&](std::string_view name, const at::Tensor& rows) {
          for (int64_t layer = 0; layer < stack.model.backbone().num_layers(); ++layer) {
            if (name.ends_with(fmt::format("layers.{}", layer))) compare(fmt::format("hidden.blocks.{}", layer), rows);
          }
        });
    compare("x", step.hidden);
    state = step.state;
    for (const auto& [field, tensor] : state.fields()) {
      const std::string name = fmt::format("step.{}.buffer.{}", k, stack.buffer_name(field.path));
      if (const at::Tensor expected = file.find(name); expected.defined())
        comparison.compare("buffers", name, expected, tensor);
    }
    const at::Tensor cotangent = file.step(k, "cotangent.x");
    if (cotangent.defined()) scalar = scalar + (cotangent * step.hidden.reshape(x.sizes())).sum();
  }
  if (scalar.requires_grad()) torch::autograd::backward({scalar}, {}, /*retain_graph=*/false);
  weights::NamedTensors gradients;
  for (const auto& [name, tensor] : stack.model.parameters().named()) {
    gradients.emplace_back(name, tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor));
  }
  for (const auto& [name, found] : weights::to_theirs(stack.format, gradients)) {
    if (const at::Tensor expected = file.find("grad.param." + name); expected.defined()) {
      comparison.compare("gradients of parameters", "grad.param." + name, expected, found);
    }
  }
  for (int64_t k = 0; k < steps; ++k) {
    const std::string name = fmt::format("grad.step.{}.input.x", k);
    if (const at::Tensor expected = file.find(name); expected.defined())
      comparison.compare("gradients of inputs", name, expected, inputs[static_cast<size_t>(k)].grad());
  }
  return comparison.take();
}

}  // namespace mnemo::verify
