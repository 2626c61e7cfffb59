#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/detection/anchors.h"
#include "ops/detection/boxes.h"
#include "ops/detection/roi_align.h"
#include "tests/verify/golden_file.h"
#include "weights/safetensors.h"

namespace mnemo::verify {

/// One step of a golden file of detection: its inputs, of which those with a stored gradient are leaves, and the
/// comparison of outputs and gradients.
class DetectionStep {
 public:
  explicit DetectionStep(const GoldenFile& file);
  const GoldenFile& file() const { return file_; }
  bool has(const std::string& name) const { return inputs_.contains(name); }
  /// Throws InputError that names the input if there is none.
  const at::Tensor& input(const std::string& name) const;
  /// Inputs NAME.0, NAME.1 ...
  std::vector<at::Tensor> inputs(const std::string& name) const;
  void output(const std::string& name, const at::Tensor& value);
  void outputs(const std::string& name, const std::vector<at::Tensor>& values);
  /// Compares all outputs of the file, differentiates, compares the gradients of inputs and of `parameters`.
  GoldenReport take(const weights::NamedTensors& parameters = {});

 private:
  const GoldenFile& file_;
  std::map<std::string, at::Tensor> inputs_, outputs_;
};

/// Parts of a config.
std::vector<double> numbers_of(const base::Node& list);
std::pair<int64_t, int64_t> pair_of(const base::Node& list);
ops::BoxWeights weights_of(const base::Node& list);
ops::RoiAlignOptions roi_options_of(const base::Node& config);
ops::RoiLevels roi_levels_of(const base::Node& config);
/// Anchors of each level in an image of that size.
std::vector<at::Tensor> anchors_of(const base::Node& config, std::pair<int64_t, int64_t> image,
                                   const std::vector<std::pair<int64_t, int64_t>>& grids);

}  // namespace mnemo::verify
