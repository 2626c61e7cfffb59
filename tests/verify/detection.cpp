#include "tests/verify/detection.h"

#include <torch/types.h>

#include "base/error.h"

namespace mnemo::verify {

namespace {
constexpr const char* kInput = "step.0.input.";
}

DetectionStep::DetectionStep(const GoldenFile& file) : file_(file) {
  for (const auto& [name, tensor] : file.under(kInput)) {
    const bool leaf = file.contains(std::string("grad.") + kInput + name);
    inputs_[name] = tensor.clone().set_requires_grad(leaf);
  }
}

const at::Tensor& DetectionStep::input(const std::string& name) const {
  const auto found = inputs_.find(name);
  base::require(found != inputs_.end(), "{}: expected {}{}, found none", file_.path(), kInput, name);
  file_.find(kInput + name);  // asked for: see GoldenFile::require_all_used
  return found->second;
}

std::vector<at::Tensor> DetectionStep::inputs(const std::string& name) const {
  std::vector<at::Tensor> list;
  while (has(fmt::format("{}.{}", name, list.size()))) list.push_back(input(fmt::format("{}.{}", name, list.size())));
  base::require(!list.empty(), "{}: expected {}{}.0, found none", file_.path(), kInput, name);
  return list;
}

void DetectionStep::output(const std::string& name, const at::Tensor& value) { outputs_[name] = value; }

void DetectionStep::outputs(const std::string& name, const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < values.size(); ++i) output(fmt::format("{}.{}", name, i), values[i]);
}

GoldenReport DetectionStep::take(const weights::NamedTensors& parameters) {
  GoldenComparison comparison(file_);
  at::Tensor loss;
  for (const auto& [name, expected] : file_.under("step.0.output.")) {
    const auto found = outputs_.find(name);
    base::require(found != outputs_.end(), "{}: this build does not compute step.0.output.{}", file_.path(), name);
    comparison.compare("outputs", "step.0.output." + name, expected, found->second);
    const at::Tensor cotangent = file_.step(0, "cotangent." + name);
    if (!cotangent.defined()) continue;
    const at::Tensor part = (cotangent * found->second).sum();
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined() && loss.requires_grad()) loss.backward();
  const auto compare_gradients = [&](const char* group, const std::string& name, const at::Tensor& tensor) {
    if (const at::Tensor expected = file_.find(name); expected.defined())
      comparison.compare(group, name, expected, tensor.grad());
  };
  for (const auto& [name, tensor] : inputs_)
    compare_gradients("gradients of inputs", std::string("grad.") + kInput + name, tensor);
  for (const auto& [name, tensor] : parameters)
    compare_gradients("gradients of parameters", "grad.param." + name, tensor);
  return comparison.take();
}

std::vector<double> numbers_of(const base::Node& list) {
  std::vector<double> out;
  for (const base::Node& item : list.items()) out.push_back(item.as_double());
  return out;
}

std::pair<int64_t, int64_t> pair_of(const base::Node& list) {
  base::require(list.size() == 2, "{}: expected two integers, found {}", list.where(), list.found());
  return {list.items()[0].as_int(), list.items()[1].as_int()};
}

ops::BoxWeights weights_of(const base::Node& list) {
  base::require(list.size() == 4, "{}: expected four weights, found {}", list.where(), list.found());
  const std::vector<double> values = numbers_of(list);
  return {values[0], values[1], values[2], values[3]};
}

ops::RoiAlignOptions roi_options_of(const base::Node& config) {
  const auto [height, width] = pair_of(config.at("output_size"));
  const base::Node* aligned = config.find("aligned");
  return {height, width, config.at("sampling_ratio").as_int(), aligned != nullptr && aligned->as_bool()};
}

ops::RoiLevels roi_levels_of(const base::Node& config) {
  return {config.at("canonical_scale").as_double(), config.at("canonical_level").as_int(),
          numbers_of(config.at("scales"))};
}

std::vector<at::Tensor> anchors_of(const base::Node& config, std::pair<int64_t, int64_t> image,
                                   const std::vector<std::pair<int64_t, int64_t>>& grids) {
  const base::Node &sizes = config.at("sizes"), &ratios = config.at("ratios"), &strides = config.at("strides");
  base::require(sizes.size() == grids.size() && ratios.size() == grids.size() &&
                    (strides.is_string() || strides.size() == grids.size()),
                "{}: expected sizes, ratios and strides of {} levels", config.where(), grids.size());
  std::vector<at::Tensor> out;
  for (size_t l = 0; l < grids.size(); ++l) {
    const auto stride = strides.is_string() ? ops::image_stride(image, grids[l]) : pair_of(strides.items()[l]);
    out.push_back(ops::level_anchors({numbers_of(sizes.items()[l]), numbers_of(ratios.items()[l])}, grids[l], stride,
                                     config.at("round").as_bool(), at::kDouble));
  }
  return out;
}

}  // namespace mnemo::verify
