#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/load.h"
#include "tests/verify/text.h"
#include "tests/verify/vision.h"

namespace mnemo::verify {
namespace {

constexpr const char* kExpectations = "expect.safetensors";
constexpr double kSingleTolerance = 1e-5;

/// The results of the folder's model on the file's pixels, under the file's names.
std::map<std::string, at::Tensor> outcomes(const std::string& folder, const weights::TensorFile& file,
                                           at::ScalarType dtype, at::Device device, const std::string& path) {
  const bundle::AnyModel loaded = bundle::load_any(folder, {.dtype = dtype, .device = device});
  const models::Model& model = *loaded.model;
  core::Segment segment;
  segment.pixels = file.at("pixels", path).to(device, dtype).clone().set_requires_grad(true);
  HiddenRows hidden(loaded.format);
  const core::StepResult step = model.forward(segment, model.initial_state(1), {}, hidden.observer());
  const at::Tensor logits = model.logits(step.hidden).squeeze(1),
                   cotangent = file.at("cotangent.logits", path).to(device, dtype);
  base::require(cotangent.sizes() == logits.sizes(), "{}: cotangent.logits: expected {}, found {}", path,
                c10::str(logits.sizes()), c10::str(cotangent.sizes()));
  (cotangent * logits).sum().backward();
  std::map<std::string, at::Tensor> found = {{"logits", logits}, {"grad.pixels", segment.pixels.grad()}};
  for (const auto& [name, rows] : hidden.rows) found["hidden." + name] = rows;
  weights::NamedTensors gradients;
  for (const auto& [name, tensor] : model.parameters().named())
    gradients.emplace_back(name, tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor));
  for (const auto& [name, gradient] :
       loaded.format == nullptr ? gradients : weights::to_theirs(*loaded.format, gradients))
    found["grad." + name] = gradient;
  return found;
}

std::string group_of(const std::string& name) {
  return name == "logits"              ? "outputs"
         : name.starts_with("hidden.") ? "hidden rows"
         : name == "grad.pixels"       ? "gradients of inputs"
                                       : "gradients of parameters";
}

/// Expectations of a text model, by its kind.
GoldenReport verify_text(const TextFolder& text) {
  const bool recurrent = text.file.find("step.0.input.tokens") != nullptr;
  const bundle::AnyModel loaded = text.load(at::kFloat);
  const models::Model& model = *loaded.model;
  if (model.input_kind() == core::InputKind::pairs)
    return recurrent ? verify_pairs_recurrent(text) : verify_pairs_folder(text);
  base::require(model.input_kind() == core::InputKind::tokens, "{}: expected a model of texts, found {}", text.folder,
                core::model_of(model.input_kind()));
  if (!model.options().backbone.causal()) return recurrent ? verify_encoder_recurrent(text) : verify_encoder(text);
  return recurrent ? verify_causal_recurrent(text) : verify_causal(text);
}

}  // namespace

GoldenReport verify_folder(const std::string& folder, at::Device device) {
  const std::string path = base::join_path(folder, kExpectations);
  base::require(base::path_exists(path), "{}: expected a golden file, or a model folder that holds an {}", folder,
                kExpectations);
  const weights::TensorFile file = weights::read_safetensors(path);
  if (file.find("pixels") == nullptr) return verify_text({folder, path, file, device});
  GoldenComparison comparison(path, file.metadata, "mnemo-expect/1");
  const auto exact = outcomes(folder, file, at::kDouble, device, path),
             single = outcomes(folder, file, at::kFloat, device, path);
  for (const auto& [name, expected] : file.tensors) {
    if (name == "pixels" || name == "cotangent.logits") continue;
    const auto found = exact.find(name);
    base::require(found != exact.end(), "{}: the model has nothing named '{}'", path, name);
    comparison.compare(group_of(name), name, expected, shaped_like(expected, found->second));
    const double largest = expected.numel() == 0 ? 0.0 : expected.abs().max().item<double>();
    const double scale = largest > 0.0 ? largest : 1.0;
    comparison.compare("float32: " + group_of(name), name, expected / scale,
                       shaped_like(expected, single.at(name)).detach().to(at::kCPU, at::kDouble) / scale,
                       kSingleTolerance);
  }
  return comparison.take();
}

}  // namespace mnemo::verify
